"""The last resort on two expressions: math-verify, in a locked-in process that is stopped when it takes too long.

math-verify parses LaTeX and compares with sympy, which can take for ever or evaluate what it reads; here neither does
harm. Its own time limits use signals and are off.
"""

from tasks.base import Verdict
from tasks.sandbox.outcome import Failure, Limits
from tasks.sandbox.program import SandboxError
from tasks.sandbox.server import ServerPool
from tasks.sandbox.servers import process

__all__ = ["verify"]

_LIMITS = Limits(seconds=1.0, wall_seconds=8.0, memory_bytes=500_000_000, recursion=2000, values=1000)
_SAME = """
import logging
from math_verify import parse, verify
logging.disable()

def same(gold, answer):
    read = [parse(f"${text}$", parsing_timeout=None) for text in (gold, answer)]
    return bool(all(read) and verify(*read, strict=True, timeout_seconds=None))
"""
# One of each kind, so that whatever sympy imports late is there before the doors close.
_WARM_UP = (
    _SAME
    + r"""
for gold, answer in (
    (r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"[0,1)\cup(2,3]", r"(2,3]\cup[0,1)"),
    (r"\{1,2\}", r"\{2,1\}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}"),
    (r"\sin x", r"\cos(\pi/2-x)"),
    ("y=2x+3", "2x+3=y"),
    (r"\log_2 8", "3"),
    (r"\binom{5}{2}", "3!"),
    ("1+2i", "2i+1"),
    (r"50\%", "e^{2}"),
    ("x<5", "5>x"),
    (r"\text{A}", "B"),
):
    same(gold, answer)
"""
)
_POOL = ServerPool(["math_verify", "sympy"], warm_up=_WARM_UP)


def verify(gold: str, answer: str) -> Verdict:
    """Return "pass" where math-verify holds two LaTeX expressions for equal, else "wrong".

    "timeout" where it takes more than two seconds of computing; "memory", "error" and "unsupported" where something
    else stops it; "infra" where it cannot be run at all.
    """
    try:
        with process(_LIMITS, pool=_POOL) as program:
            failure = program.do("load", code=_SAME, main=False, judged=[])
            found = failure or program.ask("eval", text=f"same({gold!r}, {answer!r})")
    except (SandboxError, OSError):
        return "infra"
    if isinstance(found, Failure):
        return found.verdict
    return "pass" if found is True else "wrong"
