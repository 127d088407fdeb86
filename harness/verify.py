"""``evengrad verify``: score a file of responses with a task, without a policy and without torch.

A line of the file is ``{"id": example id, "response": text}`` or ``{"id": ..., "responses": [text, ...]}``; an id may
come several times, other keys are left alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.jsonl import read_rows
from harness.scoring import Group, examples_of, sample_row, score_pairs, summarise
from harness.terminal import visible
from tasks.base import SPLITS, Example, Score, Split, Task
from tasks.settings import near_match

__all__ = ["GOLD", "Verified", "read_responses", "verify"]

GOLD = "gold"
"""In place of a file: the task's own gold response to every example of the split."""
_FIELDS = ("id", "response", "responses")


@dataclass(frozen=True)
class Verified:
    """Scored responses.

    Attributes:
        name: of the task.
        source: the file, or ``GOLD``.
        split: that the examples are of.
        num_examples: examples of the split, answered or not.
        rows: one a response, in the order of the file, as ``harness.scoring.sample_row`` makes them.
        summary: of ``harness.scoring.summarise``, one group an example that has a response.
    """

    name: str
    source: str
    split: Split
    num_examples: int
    rows: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def all_passed(self) -> bool:
        """Whether every response passes."""
        return all(row["verdict"] == "pass" for row in self.rows)


def verify(task: Task, name: str, source: str, split: Split) -> Verified:
    """Score responses.

    Args:
        task: the judge.
        name: what to call it.
        source: a JSONL file, or ``GOLD``.
        split: where the ids are looked up.

    Raises:
        UserError: the file, a line of it or the split cannot be used; the message names the line.
    """
    examples = examples_of(task, split)
    if source == GOLD:
        pairs = [(example, task.gold(example)) for example in examples]
    else:
        pairs = read_responses(Path(source), task, examples, split)
    scores = score_pairs(task, pairs)
    prompts: dict[str, int] = {}
    grouped: list[list[Score]] = []
    rows: list[dict[str, Any]] = []
    for (example, response), score in zip(pairs, scores, strict=True):
        number = prompts.setdefault(example.id, len(prompts))
        if number == len(grouped):
            grouped.append([])
        rows.append(sample_row(example, number, len(grouped[number]), task.prompt(example), response, score))
        grouped[number].append(score)
    difficulties = {row["prompt_index"]: row["difficulty"] for row in rows}
    groups = [Group(difficulties[number], scores) for number, scores in enumerate(grouped)]
    return Verified(name, source, split, len(examples), rows, summarise(groups))


def read_responses(path: Path, task: Task, examples: Sequence[Example], split: Split) -> list[tuple[Example, str]]:
    """Return (example, response) of every response in a file, in its order.

    Raises:
        UserError: it cannot be read, holds no response, or a line is not what it should be; the line is named.
    """
    known = {example.id: example for example in examples}
    pairs: list[tuple[Example, str]] = []
    for place, row in read_rows(path):
        key = row.get("id")
        if not isinstance(key, str):
            raise UserError(_lacking(place, row, "id") if key is None else f"{place}: id = {key!r} should be text")
        texts = list(_texts(place, row))
        if key not in known:
            raise UserError(f"{place}: unknown id {key!r}{_whereabouts(key, task, known, split)}")
        pairs += [(known[key], text) for text in texts]
    if not pairs:
        raise UserError(
            f'{path} holds no responses: write lines such as {{"id": "{examples[0].id}", "response": "..."}}'
        )
    return pairs


def _texts(place: str, row: dict[str, Any]) -> Iterator[str]:
    if "response" in row and "responses" in row:
        raise UserError(f"{place}: both response and responses; write one of them")
    if "responses" in row:
        found = row["responses"]
        if not isinstance(found, list) or not found:
            kind = "an empty one" if found == [] else _kind(found)
            raise UserError(f"{place}: responses should be a list of texts, got {kind}")
    elif "response" in row:
        found = [row["response"]]
    else:
        raise UserError(_lacking(place, row, "response"))
    for text in found:
        if not isinstance(text, str):
            raise UserError(f"{place}: a response should be text, got {_kind(text)}")
        yield text


def _lacking(place: str, row: dict[str, Any], field: str) -> str:
    near = get_close_matches(field, [key for key in row if key not in _FIELDS], n=1)
    keys = ", ".join(visible(key) for key in row) or "none"
    hint = f", did you mean {field!r} by {near[0]!r}?" if near else ""
    return f'{place}: {field} is missing{hint} (keys there: {keys}); expected {{"id": ..., "response": ...}}'


def _whereabouts(key: str, task: Task, known: dict[str, Example], split: Split) -> str:
    for other in SPLITS:
        if other != split and any(example.id == key for example in _examples_or_none(task, other)):
            return f": it is of split {other}, not {split}; give --split {other}"
    return f" in split {split}{near_match(key, known)}"


def _examples_or_none(task: Task, split: Split) -> Sequence[Example]:
    try:
        return task.examples(split)
    except ValueError:  # a split that a data set does not have holds nothing
        return ()


def _kind(value: object) -> str:
    return {"NoneType": "null", "str": "text", "dict": "an object", "list": "a list", "bool": "a truth value"}.get(
        type(value).__name__, f"a number ({value})"
    )
