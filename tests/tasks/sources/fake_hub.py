"""As much of the hub's web interface as it takes to load a data set of two files."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COMMIT = "a" * 40
FILES = {
    "train.jsonl": b'{"problem": "1+1", "answer": 2}\n{"problem": "2+1", "answer": 3}\n',
    "test.jsonl": b'{"problem": "3+1", "answer": 4}\n',
}
API = "/api/datasets/me/sums"


def answer(path: str) -> tuple[int, object, dict[str, str]]:
    """Return status, body and headers."""
    path = path.split("?")[0]
    if path in (API, f"{API}/revision/main", f"{API}/revision/{COMMIT}"):
        return 200, {"id": "me/sums", "sha": COMMIT, "siblings": [{"rfilename": name} for name in FILES]}, {}
    if path.startswith(f"{API}/revision/"):
        return 404, {"error": "no such revision"}, {"X-Error-Code": "RevisionNotFound"}
    if path == f"{API}/tree/{COMMIT}":
        entries = [{"type": "file", "path": name, "size": len(data), "oid": name} for name, data in FILES.items()]
        return 200, entries, {}
    name = path.rpartition("/")[2]
    if path.startswith("/datasets/me/sums/resolve/") and name in FILES:
        return 200, FILES[name], {"ETag": hashlib.sha256(FILES[name]).hexdigest(), "X-Repo-Commit": COMMIT}
    if "/me/sums/" in path:
        return 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
    return 401, {"error": "no such repository"}, {"X-Error-Code": "RepoNotFound"}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        status, found, headers = answer(self.path)
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        for header, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_GET  # noqa: N815


@contextmanager
def serve() -> Iterator[str]:
    """Run the server in a thread and give its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
