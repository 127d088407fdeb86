"""Segmenters: every token once, in order, masked ones never (spec/objectives.md, U34)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import objectives
from objectives.reference_engine import Case, random_case
from objectives.segments import fixed_count, fixed_length, segment_sums


def row(text: str) -> Tensor:
    """Return the mask of a row: x a token, . masked."""
    return torch.tensor([[letter == "x" for letter in text]], dtype=torch.bool)


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("xxxxxx", 2, [0, 0, 0, 1, 1, 1]),
        ("xxxxx", 2, [0, 0, 0, 1, 1]),
        ("xxxxx", 1, [0, 0, 0, 0, 0]),
        ("xxx", 3, [0, 1, 2]),
        ("xx", 5, [0, 1]),  # K > T
        ("x", 4, [0]),
        ("", 4, []),
        ("....", 3, [0, 0, 0, 0]),
        (".x..xx", 2, [0, 0, 0, 0, 0, 1]),
        ("xxxx..", 2, [0, 0, 1, 1, 0, 0]),
    ],
)
def test_fixed_count(text: str, count: int, expected: list[int]) -> None:
    assert fixed_count(row(text), count).tolist() == [expected]


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("xxxxx", 2, [0, 0, 1, 1, 2]),
        ("xxx", 1, [0, 1, 2]),
        ("xxx", 9, [0, 0, 0]),
        ("x", 1, [0]),
        ("...", 2, [0, 0, 0]),
        (".x..xx", 2, [0, 0, 0, 0, 0, 1]),
    ],
)
def test_fixed_length(text: str, length: int, expected: list[int]) -> None:
    assert fixed_length(row(text), length).tolist() == [expected]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 50])
@pytest.mark.parametrize("cut", [fixed_count, fixed_length])
def test_segments_cover_all_tokens_once_in_order(cut: Callable[[Tensor, int], Tensor], size: int) -> None:
    mask = random_case().rollout.response_mask
    segment = cut(mask, size)
    assert segment.dtype == torch.int64
    assert bool((segment[~mask] == 0).all())
    for ids, here in zip(segment, mask, strict=True):
        found = ids[here].tolist()
        assert found == sorted(found)
        assert sorted(set(found)) == list(range(len(set(found))))
        sizes = [found.count(k) for k in set(found)]
        if cut is fixed_count:
            assert len(sizes) == min(size, len(found))
            assert not sizes or max(sizes) - min(sizes) <= 1
        else:
            assert all(count == size for count in sizes[:-1])
            assert all(count <= size for count in sizes)


def test_segments_do_not_move_with_the_policy() -> None:
    objective = objectives.make("gspo_subsequence", num_segments=3)
    case = random_case()
    moved = Case(case.rollout, {name: value + 1 for name, value in case.current.items()})
    first, second = (objective.targets(one.rollout).extras["segment"] for one in (case, moved))
    assert torch.equal(first, second)
    assert torch.equal(first, fixed_count(case.rollout.scored, 3))


def test_segment_sums_by_hand() -> None:
    mask = row("xxx.x")
    x = torch.tensor([[1.0, 2, 4, float("nan"), 8]])
    sums, counts = segment_sums(x, torch.tensor([[0, 0, 1, 0, 1]]), mask)
    assert sums.tolist() == [[3, 12, 0, 0, 0]]
    assert counts.tolist() == [[2, 2, 0, 0, 0]]
