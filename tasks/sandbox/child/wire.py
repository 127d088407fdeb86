"""Plain data as JSON, both ways: what crosses between a sandboxed program and its judge. Standard library only.

A frame is four bytes of length and JSON text. Containers are one-key objects, since JSON knows one kind of sequence and
string keys alone. Anything that is no plain data crosses as an opaque mark, which equals nothing.
"""

import fractions
import json
import os
import struct
from typing import Any

__all__ = ["MAX_DEPTH", "Opaque", "WireError", "decode", "encode", "read_frame", "write_frame"]

MAX_DEPTH = 32
_MAX_INTEGER_BITS = 4096  # an int that prints without the interpreter's limit on digits
_SMALL = 2**53
_BIG = 64  # what a long int costs: a dict of many that share a hash takes long to build
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
    """Return ``value`` as JSON values; instances of a subclass cross as what they subclass, others as a mark.

    Raises:
        WireError: nested deeper than ``MAX_DEPTH`` or an int of more than 4096 bits.
    """
    if depth > MAX_DEPTH:
        raise WireError(f"data nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, bool | str | float):
        return value if type(value) in (bool, str, float, type(None)) else _base(value)
    if isinstance(value, int):
        number = int(value)
        if number.bit_length() > _MAX_INTEGER_BITS:
            raise WireError(f"an int of more than {_MAX_INTEGER_BITS} bits")
        return number if -_SMALL < number < _SMALL else {"int": hex(number)}
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return {name: [encode(item, depth + 1) for item in kind.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in dict.items(value)]}
    return _rare(value)


def _base(value: object) -> Any:
    return str.__str__(value) if isinstance(value, str) else float.__float__(value)  # pyright: ignore[reportArgumentType]


def _rare(value: object) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, fractions.Fraction):
        return {"fraction": [encode(value.numerator), encode(value.denominator)]}
    return {"opaque": type(value).__name__[:80]}


def decode(data: Any, budget: int) -> tuple[Any, int]:
    """Return the value that ``data`` stands for, and what is left of ``budget`` (entries and characters).

    Raises:
        WireError: ``data`` is not what ``encode`` makes, or has more entries and characters than the budget.
    """
    if data is None or type(data) in (bool, int, float):
        return data, _spend(budget, 1)
    if type(data) is str:
        return data, _spend(budget, 1 + len(data))
    if type(data) is not dict or len(data) != 1:
        raise WireError("a value that is no plain data")
    ((kind, body),) = data.items()
    try:
        return _decode_tagged(kind, body, budget)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise WireError(f"a {kind[:20]} that is none ({type(error).__name__})") from None


def _decode_tagged(kind: str, body: Any, budget: int) -> tuple[Any, int]:
    if kind in _SEQUENCES:
        items, budget = _decode_items(body, budget)
        return _SEQUENCES[kind](items), budget
    if kind == "dict":
        found: dict[Any, Any] = {}
        for key, value in body:
            (key, value), budget = _decode_items([key, value], budget)
            found[key] = value
        return found, budget
    if kind == "int":
        if len(body) > 3 + _MAX_INTEGER_BITS // 4:
            raise WireError(f"an int of more than {_MAX_INTEGER_BITS} bits")
        return int(body, 16), _spend(budget, _BIG + len(body))
    if kind == "bytes":
        return bytes.fromhex(body), _spend(budget, len(body))
    if kind == "opaque":
        return Opaque(str(body)[:80]), _spend(budget, 1)
    parts, budget = _decode_items(body, budget)
    makers: dict[str, Any] = {"complex": complex, "range": range, "fraction": fractions.Fraction}
    if kind not in makers:
        raise WireError("a value of unknown kind")
    return makers[kind](*parts), budget


def _decode_items(body: Any, budget: int) -> tuple[list[Any], int]:
    if type(body) is not list:
        raise WireError("a sequence that is none")
    items: list[Any] = []
    for item in body:
        value, budget = decode(item, budget)
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
