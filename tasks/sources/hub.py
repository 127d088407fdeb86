"""Data sets by hub name, ``owner/name``, ``owner/name:config`` or ``owner/name:config@revision``, through datasets.

The library is an extra and imported at the first use. It would try a hub that does not answer again for a minute or
more, so the hub is asked once with a time limit before anything is loaded. With ``HF_HUB_OFFLINE=1`` nothing is asked
and a copy that an earlier run left in the cache is used.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tasks.sources.rows import ENDINGS, Row

__all__ = ["Name", "is_name", "read"]

_TIMEOUT = 10.0  # seconds for the one question whether the hub has the data set
_DEADLINE = 20.0  # seconds for that answer in all
_NAME = re.compile(r"([\w][\w.-]*)/([\w][\w.-]*)(?::([\w.-]+))?(?:@([\w./-]+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FIX = "or save the data as a file and give its path as source"


@dataclass(frozen=True)
class Name:
    """A hub name in its parts; the configuration and the revision are None where the name has none."""

    repository: str
    config: str | None
    revision: str | None

    @classmethod
    def parse(cls, name: str) -> "Name":
        """Read a hub name.

        Raises:
            ValueError: ``name`` has another form.
        """
        match = _NAME.fullmatch(name)
        if not match:
            raise ValueError(
                f"{name!r} is no hub name, expected owner/name, owner/name:config or with @revision behind"
            )
        owner, short, config, revision = match.groups()
        return cls(f"{owner}/{short}", config, revision)


def is_name(text: str) -> bool:
    """Return whether ``text`` has the form of a hub name and not the ending of a data file."""
    return bool(_NAME.fullmatch(text)) and not text.lower().endswith(ENDINGS)


def read(name: str, known: Collection[str]) -> dict[str, list[Row]]:
    """Return the rows of those splits of a hub data set whose names are in ``known``.

    Raises:
        ValueError: datasets is not installed; the hub cannot be reached; the data set, its configuration or its
            revision is unknown or not open; no split has a known name. One line with the fix.
    """
    parts = Name.parse(name)
    datasets, hub = _libraries()
    if not _offline(datasets):
        _ask(hub, parts)
    splits = _load(datasets, parts)
    if not any(split in known for split in splits):
        raise ValueError(
            f"hub data set {name} has no split of a known name, found {', '.join(splits) or 'none'}, expected "
            f"{', '.join(known)}; save the right one as a file and give it as train=..., validation=... or test=..."
        )
    return {split: list(_rows(parts.repository, split, splits[split])) for split in known if split in splits}


def _libraries() -> tuple[Any, Any]:
    try:
        import datasets
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            f"a hub name needs the extra 'hub' ({error}): run python -m pip install 'evengrad[hub]', {_FIX}"
        ) from error
    return datasets, huggingface_hub


def _offline(datasets: Any) -> bool:
    return bool(datasets.config.HF_HUB_OFFLINE)


def _ask(hub: Any, parts: Name) -> None:
    """Ask once, with a time limit, whether the hub has the data set."""
    name = parts.repository
    try:
        _within(_DEADLINE, lambda: hub.HfApi().dataset_info(name, revision=parts.revision, timeout=_TIMEOUT))
    except hub.errors.GatedRepoError as error:
        raise ValueError(f"hub data set {name} is gated: accept its terms, run hf auth login, {_FIX}") from error
    except hub.errors.RepositoryNotFoundError as error:
        raise ValueError(
            f"hub data set {name} is unknown or private, and no file or folder here has that name: check the spelling, "
            f"run hf auth login, {_FIX}"
        ) from error
    except hub.errors.RevisionNotFoundError as error:
        raise ValueError(
            f"hub data set {name} has no revision {parts.revision}; take one from its page, {_FIX}"
        ) from error
    except Exception as error:  # the transport's errors are of another library with every release of huggingface_hub
        raise ValueError(
            f"the hub cannot be reached for {name} ({_cause(error)}): check the network, set HF_HUB_OFFLINE=1 to use a "
            f"cached copy, {_FIX}"
        ) from error


def _within(seconds: float, call: Callable[[], object]) -> None:
    """Wait for a call in a thread of its own, which is given up with it: a server may send a byte now and then."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no whole answer within {seconds:g} s")
    if raised:
        raise raised[0]


def _load(datasets: Any, parts: Name) -> Any:
    """Return {split: table}."""
    name = parts.repository
    try:
        builder = datasets.load_dataset_builder(name, parts.config, revision=parts.revision)
    except ConnectionError as error:
        raise ValueError(
            f"hub data set {name} is not in the cache and the hub is not asked ({_cause(error)}): unset HF_HUB_OFFLINE "
            f"and check the network, {_FIX}"
        ) from error
    except ValueError as error:
        raise ValueError(f"hub data set {name}: {_cause(error)}; write {name}:CONFIG, {_FIX}") from error
    except Exception as error:  # datasets documents no closed set of errors for foreign repositories
        raise ValueError(
            f"hub data set {name} cannot be loaded ({_cause(error)}); check it on the hub, {_FIX}"
        ) from error
    # Where the hub is not asked, datasets takes the newest copy of the cache, whatever revision was asked for.
    exact = parts.revision and (_offline(datasets) or _COMMIT.fullmatch(parts.revision))
    if exact and builder.hash != parts.revision:
        raise ValueError(
            f"the cache holds {name} at revision {builder.hash}, expected {parts.revision}; unset HF_HUB_OFFLINE once "
            f"to fetch it, {_FIX}"
        )
    try:
        builder.download_and_prepare()
        return builder.as_dataset()
    except Exception as error:
        raise ValueError(
            f"hub data set {name} cannot be loaded ({_cause(error)}); check the network, {_FIX}"
        ) from error


def _rows(repository: str, split: str, table: Any) -> Iterator[Row]:
    for number, values in enumerate(table, start=1):
        yield Row(f"{repository} {split} row {number}", values)


def _cause(error: BaseException) -> str:
    """Return the error's kind and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
