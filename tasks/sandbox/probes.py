"""Programs that try what no program may: each must fail, or the locks of this machine do not hold."""

__all__ = ["PROBES"]

PROBES = {
    "reads files of the machine": "open('/etc/passwd').read()",
    "lists files of the machine": "import os\nassert os.listdir('/proc') or os.listdir('/etc')",
    "writes files": "open('/tmp/evengrad-probe', 'w').write('x')",
    "opens a socket": "import socket\nsocket.socket()",
    "starts a process": "import os\nif os.fork() == 0: os._exit(0)",
    "starts a thread": "import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()",
    "signals other processes": "import os\nos.kill(os.getppid(), 0)",
    "sets an alarm": "import signal\nsignal.alarm(100)\nassert signal.alarm(0) == 100",
    "takes memory without limit": "a = bytearray(400_000_000)",
    "computes without limit": "while True: pass",
    "changes its user": "import os\nos.setuid(0)\nos.seteuid(12345)",
}
"""What a program could reach -> code that ends without an exception where it does."""
