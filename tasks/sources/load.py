"""From rows to examples: parsed, parted into disjoint splits, each gold answer checked by the task's own verifier."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from tasks.base import SPLITS, Example, Score, Split
from tasks.sources.rows import Row
from tasks.sources.schema import Field, check
from tasks.splits import content_key

__all__ = ["VALIDATION_SHARE", "Item", "Loaded", "load"]

VALIDATION_SHARE = 0.1  # of train, where a data set has no validation split
_LISTED = 10  # faults that an error shows
_ORDER: tuple[Split, ...] = ("test", "validation", "train")  # of two equal items the copy in the earlier split stays


@dataclass(frozen=True)
class Item:
    """What a row says.

    Attributes:
        prompt_text: the text of the problem; it alone decides the split where the data set does not, and names the item
            where no field does.
        difficulty: a label to break results down by, "" for none.
        data: what the task needs to write the prompt and to score; plain JSON values.
        split: the published split of an item, for one file that holds them all; None to part by the text's hash.
    """

    prompt_text: str
    difficulty: str
    data: Mapping[str, Any]
    split: Split | None = None


class Source(Protocol):
    """What a task over published items says of them; see ``DataTask``."""

    name: ClassVar[str]
    fields: ClassVar[tuple[Field, ...]]
    id_fields: ClassVar[tuple[str, ...]]
    shares_prompts: ClassVar[bool]

    @property
    def on_bad_item(self) -> str:
        """Whether to "stop" at bad items or "drop" them."""
        ...

    def parse(self, row: Row) -> "Item":
        """Return what a row says."""
        ...

    def prompt(self, example: Example) -> str:
        """Return the prompt."""
        ...

    def gold(self, example: Example) -> str:
        """Return a response that must pass."""
        ...

    def score_many(self, pairs: Iterable[tuple[Example, str]]) -> list[Score]:
        """Return one score a pair."""
        ...


@dataclass(frozen=True)
class Loaded:
    """The examples of every split, in the order of the data, and what was left out of them.

    Attributes:
        examples: split -> examples; empty where the data set has none.
        dropped: one line an item, its place and the reason.
        fingerprints: of tasks over these items, by their settings.
    """

    examples: Mapping[Split, tuple[Example, ...]]
    dropped: tuple[str, ...]
    fingerprints: dict[str, str] = field(default_factory=dict[str, str], compare=False)


@dataclass
class _Faults:
    """Items that cannot be used: left out or, at the end of each stage, reason to stop."""

    task: str
    drop: bool
    lines: list[str] = field(default_factory=list[str])

    def settle(self, what: str, total: int) -> None:
        if not self.lines or self.drop:
            return
        more = len(self.lines) - _LISTED
        listed = "; ".join(self.lines[:_LISTED]) + (f"; and {more} more" if more > 0 else "")
        raise ValueError(
            f"{self.task}: {len(self.lines)} of {total} items {what}: {listed}. Mend the data, or leave these items "
            'out with on_bad_item="drop"'
        )


@dataclass(frozen=True)
class _Placed:
    """An example and where it comes from."""

    place: str
    example: Example


def load(task: Source, parts: Mapping[Split | None, Sequence[Row]]) -> Loaded:
    """Return the examples of all splits.

    Args:
        task: parses, prompts and scores.
        parts: rows by split; those under None are parted by the hash of each text.

    Raises:
        ValueError: a row breaks the schema; an item cannot be parsed, occurs twice or has a gold answer that does not
            pass (unless ``on_bad_item`` is "drop"); a verifier could not be run.
    """
    faults = _Faults(task.name, task.on_bad_item == "drop")
    total = sum(map(len, parts.values()))
    placed = _parse_all(task, parts, faults)
    faults.settle("cannot be read", total)
    placed = _without_copies(task, placed, faults)
    faults.settle("occur twice", total)
    placed = _with_right_gold(task, placed, faults)
    faults.settle("have a gold answer that does not pass", total)
    examples: dict[Split, tuple[Example, ...]] = {
        split: tuple(found.example for found in placed if found.example.split == split) for split in SPLITS
    }
    return Loaded(examples, tuple(faults.lines))


def _parse_all(task: Source, parts: Mapping[Split | None, Sequence[Row]], faults: _Faults) -> list[_Placed]:
    carve = "validation" not in parts
    placed: list[_Placed] = []
    for part, rows in parts.items():
        for row in rows:
            check(row, task.fields)
            try:
                item = task.parse(row)
                if not item.prompt_text.strip():
                    raise ValueError("the prompt is empty")
            except ValueError as error:
                faults.lines.append(f"{row.place}: {error}")
                continue
            text = " ".join(item.prompt_text.split())
            key, owner = content_key(task.name, text)
            split = (item.split or owner) if part is None else _carved(part, key) if carve else part
            placed.append(_Placed(row.place, Example(_id(task, row, key), split, item.difficulty, _plain(row, item))))
    return placed


def _carved(part: Split, key: str) -> Split:
    """Return validation for a tenth of train, by the item's hash."""
    point = int(key, 16) / 16 ** len(key)
    return "validation" if part == "train" and point < VALIDATION_SHARE else part


def _id(task: Source, row: Row, key: str) -> str:
    """Return the first identifying field that the row has, else the hash of its text."""
    found = (row.values.get(name) for name in task.id_fields)
    return next((str(value) for value in found if value is not None and value != ""), key)


def _plain(row: Row, item: Item) -> dict[str, Any]:
    try:
        return json.loads(json.dumps(dict(item.data), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{row.place}: the task's data are no plain JSON values ({error}); mend its parse()"
        ) from error


def _without_copies(task: Source, placed: Sequence[_Placed], faults: _Faults) -> list[_Placed]:
    """Return the items that are no copies; of copies the first stays, in test before train."""
    owners: dict[tuple[str, ...], _Placed] = {}
    copies: set[int] = set()
    for split in _ORDER:
        for index, found in enumerate(placed):
            if found.example.split != split:
                continue
            keys = _identity(task, found)
            same, owner = _copied(keys, found, owners, task.shares_prompts)
            if owner is None:
                owners.update({key: owners.get(key, found) for key in keys})
            else:
                copies.add(index)
                faults.lines.append(f"{_label(found)} has {same} of {_label(owner)}")
    return [found for index, found in enumerate(placed) if index not in copies]


def _identity(task: Source, found: _Placed) -> tuple[tuple[str, ...], ...]:
    """Return what tells an item from others: its prompt whatever the white space, prompt and data, its id."""
    prompt = " ".join(task.prompt(found.example).split())
    data = json.dumps(found.example.data, sort_keys=True)
    return ("prompt", prompt), ("item", prompt, data), ("id", found.example.id)


def _copied(
    keys: tuple[tuple[str, ...], ...], found: _Placed, owners: Mapping[tuple[str, ...], _Placed], shares: bool
) -> tuple[str, _Placed | None]:
    """Return what an earlier item has in common with this one, and that item; None where this one is no copy.

    ``shares`` lets two items of a split share a prompt if their data differ; two splits never do.
    """
    prompt, item, name = map(owners.get, keys)
    if prompt and (not shares or prompt.example.split != found.example.split or prompt.example.id == found.example.id):
        return "the prompt", prompt
    if item:
        return "the prompt", item
    return f"the id {found.example.id!a}", name


def _label(found: _Placed) -> str:
    return f"{found.place} ({found.example.split})"


def _with_right_gold(task: Source, placed: Sequence[_Placed], faults: _Faults) -> list[_Placed]:
    """Return the items whose gold answer passes."""
    scores = task.score_many([(found.example, task.gold(found.example)) for found in placed])
    broken = [(found, score) for found, score in zip(placed, scores, strict=True) if score.verdict == "infra"]
    if broken:
        found, score = broken[0]
        raise ValueError(
            f"{task.name}: the verifier could not be run on {len(broken)} of {len(placed)} gold answers, first "
            f"{found.place} ({score.reason or 'no reason given'}); the data are not at fault, mend the verifier's "
            "surroundings"
        )
    right: list[_Placed] = []
    for found, score in zip(placed, scores, strict=True):
        if score.verdict == "pass":
            right.append(found)
        else:
            faults.lines.append(f"{found.place}: {score.verdict} ({score.reason or 'no reason given'})")
    return right
