"""What crosses between a program and its judge."""

import collections
import enum
import fractions
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.sandbox.child.wire import Opaque, WireError, decode, encode, read_frame, write_frame

BUDGET = 100_000


def crossed(value, budget=BUDGET):
    return decode(json.loads(json.dumps(encode(value))), budget)[0]


keys = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
plain = st.recursive(
    keys,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner) | st.sets(keys),
    max_leaves=20,
)


def _same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(map(_same, a.values(), b.values()))
    return a == b


@given(plain)
def test_plain_data_cross_with_their_types(value):
    assert _same(crossed(value), value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.namedtuple("P", "x y")(1, 2), (1, 2)),
        (enum.IntEnum("E", "A").A, 1),
        (bytearray(b"ab"), b"ab"),
        (range(1, 9, 2), range(1, 9, 2)),
        (fractions.Fraction(1, 3), fractions.Fraction(1, 3)),
        (1 + 2j, 1 + 2j),
        (float("inf"), float("inf")),
        (2**4095, 2**4095),
    ],
)
def test_what_equals_a_built_in_value_crosses_as_one(value, expected):
    found = crossed(value)
    assert found == expected
    assert type(found) is type(expected)


class Agrees:
    def __eq__(self, other):
        return True

    __hash__ = None


class Lies(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


def test_an_object_that_equals_everything_equals_nothing_here():
    found = crossed([Agrees(), Lies(3)])
    assert isinstance(found[0], Opaque)
    assert found[0] != found[0]
    assert found != [1, 3]
    assert type(found[1]) is int
    assert found[1] != 4


@pytest.mark.parametrize("value", [2**4096, -(2**4096)])
def test_a_long_int_is_refused(value):
    with pytest.raises(WireError, match="4096 bits"):
        encode(value)


def test_deep_data_are_refused_on_both_sides():
    value = 0
    for _ in range(40):
        value = [value]
    with pytest.raises(WireError, match="nested deeper"):
        encode(value)


@pytest.mark.parametrize(
    "forged",
    [
        [1],
        {},
        {"list": 3},
        {"list": [1], "set": []},
        {"set": [{"list": []}]},
        {"dict": [[1]]},
        {"dict": [[{"list": []}, 1]]},
        {"int": "0x" + "f" * 5000},
        {"int": "zz"},
        {"int": 3},
        {"bytes": "0"},
        {"bytes": [1]},
        {"fraction": [1, 0]},
        {"complex": ["a"]},
        {"range": [1, 2, 0]},
        {"pickle": []},
    ],
)
def test_a_forged_value_is_refused(forged):
    with pytest.raises(WireError):
        decode(forged, BUDGET)


@pytest.mark.parametrize("value", [[0] * 200, "a" * 200, dict.fromkeys(range(150), 0), [[0] * 20] * 20, [2**70] * 4])
def test_the_budget_counts_entries_characters_and_long_ints(value):
    with pytest.raises(WireError, match="more data than the limit"):
        crossed(value, budget=199)


def test_ints_that_share_a_hash_are_few():
    with pytest.raises(WireError, match="more data"):
        crossed({k * (2**61 - 1): 0 for k in range(3000)}, budget=200_000)


@pytest.mark.parametrize("kind", ["set", "frozenset", "dict"])
@pytest.mark.parametrize(("num", "fine"), [(65, True), (66, False)])
def test_few_keys_of_one_hash_are_built(kind, num, fine):
    keys = [{"int": hex(k * (2**61 - 1))} for k in range(1, num + 1)]
    data = {kind: [[key, 0] for key in keys] if kind == "dict" else keys}
    if fine:
        assert len(decode(data, 10**9)[0]) == num
    else:
        with pytest.raises(WireError, match="keys of one hash"):
            decode(data, 10**9)


@pytest.mark.parametrize("forged", [{"fraction": ["1/3"]}, {"complex": ["1j"]}, {"range": [True]}, {"range": ["3"]}])
def test_parts_of_a_value_have_its_kind(forged):
    with pytest.raises(WireError, match="that is none"):
        decode(forged, BUDGET)


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_frames_follow_each_other(pipe):
    source, sink = pipe
    write_frame(sink, {"a": 1})
    write_frame(sink, "é" * 10_000)
    assert read_frame(source, 1000) == {"a": 1}
    assert read_frame(source, 100_000) == "é" * 10_000


@pytest.mark.parametrize(("data", "cause"), [(b"\xff\xff\xff\xff", "more data"), (b"\x00\x00\x00\x03{a}", "no JSON")])
def test_a_frame_that_is_none_is_refused(pipe, data, cause):
    os.write(pipe[1], data)
    with pytest.raises(WireError, match=cause):
        read_frame(pipe[0], 1000)


def test_a_nest_is_refused(pipe):
    text = b"[" * 30_000 + b"]" * 30_000
    os.write(pipe[1], len(text).to_bytes(4) + text)
    with pytest.raises(WireError, match="no JSON"):
        read_frame(pipe[0], 100_000)
