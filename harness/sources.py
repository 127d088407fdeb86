"""Hash the source that decides what a plug-in computes."""

import ast
import functools
import hashlib
from pathlib import Path

__all__ = ["hash_sources"]

_OWN_PACKAGES = ("objectives", "tasks")


def hash_sources(file: Path) -> str:
    """Return the SHA-256 of a file and of every module of objectives and tasks it imports, directly or not.

    The place of the files does not matter, nor does what stands beside them: a new objective changes no other's hash.
    """
    digest, seen, waiting = hashlib.sha256(), set[Path](), [file.resolve()]
    while waiting:
        path = waiting.pop(0)
        if path not in seen:
            seen.add(path)
            source = path.read_bytes()
            digest.update(hashlib.sha256(source).digest())
            waiting += [*_own_imports(source), *_beside(path)]
    return digest.hexdigest()


def _beside(path: Path) -> list[Path]:
    """Return the files that run with one of a folder that is run as a program: nothing imports those by name."""
    return sorted(path.parent.glob("*.py")) if (path.parent / "__main__.py").is_file() else []


@functools.lru_cache(maxsize=1024)
def _own_imports(source: bytes) -> list[Path]:
    """Return the files of the modules of the two packages that a source imports, in the order of their names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    root = Path(__file__).resolve().parent.parent
    own = sorted(name.replace(".", "/") for name in names if name.split(".")[0] in _OWN_PACKAGES)
    candidates = [root / suffix for name in own for suffix in (f"{name}.py", f"{name}/__init__.py")]
    return [path for path in candidates if path.is_file()]
