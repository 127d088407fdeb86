"""Plain data as JSON, both ways: what crosses between a sandboxed program and its judge. Standard library only.

A frame is four bytes of length and JSON text. Containers are one-key objects, since JSON knows one kind of sequence and
string keys alone. Anything that is no plain data crosses as an opaque mark, which equals nothing.
"""

import collections
import decimal
import fractions
import json
import os
import struct
from typing import Any

__all__ = ["MAX_DEPTH", "Opaque", "WireError", "decode", "encode", "read_frame", "write_frame"]

MAX_DEPTH = 32
_MAX_INTEGER_BITS = 4096  # an int that prints without the interpreter's limit on digits
_SMALL = 2**53
_BIG = 64  # what a value costs that crosses as text
_MAX_DECIMAL = 1000  # characters
_MAX_PARTS = 3
_MAX_COLLISIONS = 64
_HEADER = struct.Struct(">I")
_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class WireError(Exception):
    """A frame or a value that cannot be taken."""


class Opaque:
    """A value that did not cross; equal to nothing, itself included."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def encode(value: object, depth: int = 0) -> Any:
    """Return ``value`` as JSON values.

    An instance of a subclass crosses as what it subclasses, a view or a wrapper as the plain value that it equals, any
    other object as a mark.

    Raises:
        WireError: nested deeper than ``MAX_DEPTH`` or an int of more than 4096 bits.
    """
    if depth > MAX_DEPTH:
        raise WireError(f"data nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, int):
        number = int.__int__(value)
        if number.bit_length() > _MAX_INTEGER_BITS:
            raise WireError(f"an int of more than {_MAX_INTEGER_BITS} bits")
        return number if -_SMALL < number < _SMALL else {"int": hex(number)}
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return {name: [encode(item, depth + 1) for item in kind.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in dict.items(value)]}
    return _rare(value, depth)


def _rare(value: object, depth: int) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [encode(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, fractions.Fraction):
        return {"fraction": [encode(value.numerator), encode(value.denominator)]}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    for kinds, make in _STANDS_FOR:
        if isinstance(value, kinds):
            return encode(make(value), depth)
    return {"opaque": type(value).__name__[:80]}


_STANDS_FOR: tuple[tuple[Any, Any], ...] = (
    ((type({}.keys()), type({}.items())), set),
    (collections.UserList, list),
    ((collections.UserDict, collections.ChainMap), dict),
    (collections.UserString, str),
)


def decode(data: Any, budget: int, depth: int = 0) -> tuple[Any, int]:
    """Return the value that ``data`` stands for, and what is left of ``budget`` (entries and characters).

    Whatever was forged takes no longer than what ``encode`` makes.

    Raises:
        WireError: ``data`` is not what ``encode`` makes, has more entries and characters than the budget, or many keys
            that share a hash.
    """
    if depth > MAX_DEPTH:
        raise WireError(f"data nested deeper than {MAX_DEPTH}")
    if data is None or type(data) in (bool, float) or _is_small(data):
        return data, _spend(budget, 1)
    if type(data) is str:
        return data, _spend(budget, 1 + len(data))
    if type(data) is not dict or len(data) != 1:
        raise WireError("a value that is no plain data")
    ((kind, body),) = data.items()
    try:
        return _decode_tagged(kind, body, budget, depth + 1)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise WireError(f"a {kind[:20]} that is none ({type(error).__name__})") from None


def _is_small(data: object) -> bool:
    return type(data) is int and -_SMALL < data < _SMALL


def _decode_tagged(kind: str, body: Any, budget: int, depth: int) -> tuple[Any, int]:
    if kind in _SEQUENCES:
        items, budget = _decode_items(body, budget, depth)
        if kind in ("set", "frozenset"):
            _refuse_collisions(items)
        return _SEQUENCES[kind](items), budget
    if kind == "dict":
        pairs: list[list[Any]] = []
        for pair in body:
            values, budget = _decode_items(pair, budget, depth)
            pairs.append(values)
        _refuse_collisions([key for key, _ in pairs])
        return dict(pairs), budget  # pyright: ignore[reportArgumentType, reportCallIssue]
    if kind in ("int", "bytes", "decimal", "opaque"):
        if type(body) is not str:
            raise WireError(f"a {kind} that is none")
        return _decode_text(kind, body), _spend(budget, _BIG + len(body))
    makers: dict[str, tuple[Any, type]] = {
        "complex": (complex, float),
        "range": (range, int),
        "fraction": (fractions.Fraction, int),
    }
    maker, part = makers[kind] if kind in makers else _refuse("a value of unknown kind")
    parts, budget = _decode_items(body, budget, depth)
    if len(parts) > _MAX_PARTS or not all(type(value) is part for value in parts):
        raise WireError(f"a {kind} that is none")
    return maker(*parts), budget


def _decode_text(kind: str, body: str) -> Any:
    if kind == "int":
        if len(body) > 3 + _MAX_INTEGER_BITS // 4:
            raise WireError(f"an int of more than {_MAX_INTEGER_BITS} bits")
        return int(body, 16)
    if kind == "decimal":
        return decimal.Decimal(body) if len(body) <= _MAX_DECIMAL else _refuse("a decimal of too many digits")
    return bytes.fromhex(body) if kind == "bytes" else Opaque(body[:80])


def _refuse(why: str) -> Any:
    raise WireError(why)


def _refuse_collisions(items: list[Any]) -> None:
    """Refuse many keys of one hash: a set or dict of them takes the square of their number to build."""
    hashes = collections.Counter(map(hash, items))
    if len(items) - len(hashes) > _MAX_COLLISIONS and max(hashes.values()) > _MAX_COLLISIONS:
        raise WireError(f"more than {_MAX_COLLISIONS} keys of one hash")


def _decode_items(body: Any, budget: int, depth: int) -> tuple[list[Any], int]:
    if type(body) is not list:
        raise WireError("a sequence that is none")
    items: list[Any] = []
    for item in body:
        value, budget = decode(item, budget, depth)
        items.append(value)
    return items, budget


def _spend(budget: int, amount: int) -> int:
    if amount > budget:
        raise WireError("returned more data than the limit")
    return budget - amount


def write_frame(fd: int, message: Any) -> None:
    """Write one frame; blocks until all of it is taken.

    Raises:
        OSError: the other end is gone.
    """
    text = json.dumps(message).encode()
    data = memoryview(_HEADER.pack(len(text)) + text)
    while data:
        data = data[os.write(fd, data) :]


def read_frame(fd: int, max_bytes: int) -> Any:
    """Read one frame; blocks until all of it is there.

    Raises:
        EOFError: the other end is gone.
        WireError: the frame is longer than ``max_bytes`` or no JSON.
    """
    (length,) = _HEADER.unpack(_read(fd, _HEADER.size))
    if length > max_bytes:
        raise WireError("returned more data than the limit")
    try:
        return json.loads(_read(fd, length))
    except (ValueError, RecursionError):
        raise WireError("a frame that is no JSON") from None


def _read(fd: int, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = os.read(fd, min(length, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
