"""Tasks whose items come from a file, a folder or a hub data set."""

import dataclasses
import functools
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tasks.base import SPLITS, Example, Split, Task
from tasks.settings import require
from tasks.sources.find import Origin, find, find_files, read
from tasks.sources.load import Item, Loaded, load
from tasks.sources.rows import Row
from tasks.sources.schema import Field
from tasks.splits import check_split, fingerprint

__all__ = ["DataTask"]

_SAMPLE = "sample"
_SAMPLES = Path(__file__).parent.parent / "samples"


@functools.lru_cache(maxsize=16)
def _loaded(task: "DataTask", origin: Origin, stamp: tuple[object, ...]) -> Loaded:
    """Load once a process; ``stamp`` makes a changed file another entry."""
    del stamp
    return load(task, read(origin))


@dataclass(frozen=True)
class DataTask(Task):
    """A task over published items. A subclass says what a row means and how a response is judged.

    Nothing is read before the first ``examples()``. An instance keeps what it read then; another instance with the same
    settings shares it until a file changes.

    Attributes:
        source: a file, a folder or a hub name; "" for the published data set, "sample" for the small one that ships.
        train: a file with the train items, in place of ``source``.
        validation: the same for validation; carved out of train by content hash where there is none.
        test: the same for test.
        on_bad_item: "stop" at items that are copies or whose gold answer does not pass, or "drop" them.
        name: the task's name; part of every content hash.
        hub: hub name of the published data set, "" where there is none.
        fields: the fields that every row must have.
        id_fields: fields that identify an item, the first one present counts; the hash of its text where there is none.
        shares_prompts: whether the published data set has items of one prompt and other answers.
        version: of the rules (parsing, prompt form, verdicts); raise it with every change of them.
    """

    source: str = ""
    train: str = ""
    validation: str = ""
    test: str = ""
    on_bad_item: str = "stop"

    name: ClassVar[str]
    hub: ClassVar[str] = ""
    fields: ClassVar[tuple[Field, ...]] = ()
    id_fields: ClassVar[tuple[str, ...]] = ()
    shares_prompts: ClassVar[bool] = False
    version: ClassVar[int] = 1
    sample: ClassVar[Mapping[str, object]] = {"source": _SAMPLE}
    # Where items come from does not decide prompts and verdicts; the items do, and they are in the fingerprint.
    places: ClassVar[frozenset[str]] = frozenset({"source", "train", "validation", "test", "on_bad_item"})

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other; reads nothing."""
        given = [split for split in SPLITS if getattr(self, split)]
        if self.source and given:
            raise ValueError(
                f"settings 'source' ({self.source!r}) and {given[0]!r} ({getattr(self, given[0])!r}) are both given, "
                "expected source alone or one file a split"
            )
        require(self.on_bad_item in ("stop", "drop"), "on_bad_item", self.on_bad_item, '"stop" or "drop"')

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings alone, so that a copy in another process reads for itself."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @abstractmethod
    def parse(self, row: Row) -> Item:
        """Return what a row says; its fields have been checked.

        Raises:
            ValueError: the row cannot be used; the message is the reason alone, its place is added.
        """

    @functools.cached_property
    def _items(self) -> Loaded:
        origin = self._origin()
        return _loaded(self, origin, origin.stamp())

    def _origin(self) -> Origin:
        if self.source == _SAMPLE:
            folder = _SAMPLES / self.name
            require(folder.is_dir(), "source", self.source, f"a path or a hub name: no sample of {self.name} ships")
            return find(str(folder))
        if self.train or self.validation or self.test:
            return find_files({"train": self.train, "validation": self.validation, "test": self.test})
        if not (self.source or self.hub):
            raise ValueError(
                f"{self.name} has no published data set: give source=... a file, a folder or a hub name, or a file a "
                "split with train=..., validation=..., test=..."
            )
        return find(self.source or self.hub)

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split in the order of the data; read at the first call, then kept.

        Raises:
            ValueError: ``split`` is unknown or holds nothing, or the data are faulty; one line.
        """
        check_split(split)
        found = self._items.examples[split]
        if not found:
            dropped = self._items.dropped
            note = f" ({len(dropped)} items were dropped, first {dropped[0]})" if dropped else ""
            raise ValueError(
                f"{self.name} has no {split} items{note}: give {split}=... a file, or a source that holds them"
            )
        return found

    def dropped(self) -> Sequence[str]:
        """Return one line for each item that ``on_bad_item="drop"`` left out: its place and the reason."""
        return self._items.dropped

    def fingerprint(self) -> str:
        """Return a hash of the settings, the rules' version and every item; the same data elsewhere have the same."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in self.places]
        settings = {name: getattr(self, name) for name in names}
        known, key = self._items.fingerprints, repr(settings)
        if key not in known:
            known[key] = self._hash(settings)
        return known[key]

    def _hash(self, settings: Mapping[str, Any]) -> str:
        texts = [
            json.dumps([split, example.id, example.difficulty, example.data, self.prompt(example)], sort_keys=True)
            for split in SPLITS
            for example in self._items.examples[split]
        ]
        return fingerprint(self.name, self.version, settings, texts)
