"""Write a study's report: every table and figure, each file whole or not at all."""

import difflib
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from harness.parents import end_with_parent
from harness.reports.figures import FIGURES
from harness.reports.figures.absent import NoData
from harness.reports.figures.saving import FORMATS, require_formats, save
from harness.reports.figures.style import applied
from harness.reports.formats import to_csv, to_latex, to_markdown
from harness.reports.page import PAGE, PageSources, render_page
from harness.reports.scores import outcomes
from harness.reports.study import Study
from harness.reports.tables import all_tables

_WRITERS = {"md": to_markdown, "csv": to_csv, "tex": to_latex}


def write_report(
    study: Study,
    folder: str | Path,
    baseline: str | None = None,
    figures: Iterable[str] | None = None,
    style: str | Path | None = None,
    page: PageSources | None = None,
    formats: Sequence[str] = FORMATS,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write ``folder``/tables/*.{md,csv,tex} and ``folder``/figures/*.{png,pdf,svg}.

    Args:
        study: the records.
        folder: made if absent; files of the same names are replaced.
        baseline: the arm that differences are taken to; None chooses ``Study.baseline()``.
        figures: names from ``FIGURES``; None draws all that the study has data for, an empty iterable none.
        style: a matplotlib style file or name, applied on top of the project's style.
        page: what page.html shows beside tables and figures; None writes no page.
        formats: of the figures, from ``FORMATS``.
        say: told of each figure that is left out for want of data, and why.

    Returns:
        The files written. All but tables/timing.* are byte-equal for byte-equal records and the same libraries.

    Raises:
        ValueError: an unknown figure, format, baseline or style, or a figure asked for by name that the study has no
            data for; nothing is written then.

    Example:
        >>> write_report(load_study("results/ladder/records"), "results/ladder", figures=["final_scores"])
    """
    names = _known_names(FIGURES if figures is None else figures)
    require_formats(formats)
    baseline = study.baseline(baseline)
    with applied(style):
        pass
    wanted = tuple(formats) if page is None else tuple(dict.fromkeys(["png", *formats]))
    with _drawn(names, study, baseline, style, wanted) as drawn:
        drawings = zip(names, drawn, strict=True)
        if figures is not None:
            drawings = _all_drawn(drawings)
        tables, pictures = all_tables(study, baseline), dict[str, bytes]()
        written = [
            _replace(Path(folder) / "tables" / f"{table.name}.{suffix}", write(table).encode("utf-8"))
            for table in tables
            for suffix, write in _WRITERS.items()
        ]
        for name, found in drawings:
            if isinstance(found, str):
                say(f"left out: figure {name}: {found}")
                continue
            for kind in formats:
                written.append(_replace(Path(folder) / "figures" / f"{name}.{kind}", found[kind]))
            if page is not None:
                pictures[name] = found["png"]
    if page is not None:
        written.append(_replace(Path(folder) / PAGE, render_page(study, baseline, tables, pictures, page)))
    return written


def _known_names(figures: Iterable[str]) -> list[str]:
    """Return the names; ValueError for one that is no figure's."""
    names = list(figures)
    for name in names:
        if name not in FIGURES:
            near = difflib.get_close_matches(name, FIGURES, n=3)
            raise ValueError(f"unknown figure {name!r}; {'near: ' + ', '.join(near) if near else ', '.join(FIGURES)}")
    return names


def _all_drawn(
    drawings: Iterable[tuple[str, dict[str, bytes] | str]],
) -> list[tuple[str, dict[str, bytes] | str]]:
    """Return the figures; ValueError with the reason for one that could not be drawn."""
    listed = list(drawings)
    for name, drawn in listed:
        if isinstance(drawn, str):
            raise ValueError(f"figure {name}: {drawn}")
    return listed


@contextmanager
def _drawn(
    names: Sequence[str], study: Study, baseline: str, style: str | Path | None, formats: Sequence[str]
) -> Iterator[Iterator[dict[str, bytes] | str]]:
    """Give an iterator over the figures, {format: bytes} or why there is none.

    Where processes can be forked, several are drawn at a time, from now on and beside what the caller does.
    """
    draw = partial(_draw, study=study, baseline=baseline, style=style, formats=formats)
    workers = min(len(names), os.cpu_count() or 1)
    if workers <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield map(draw, names)
        return
    outcomes(study)  # what all figures share is computed once, before the processes part
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=forked, initializer=end_with_parent) as pool:
        yield pool.map(draw, names)


def _draw(
    name: str, *, study: Study, baseline: str, style: str | Path | None, formats: Sequence[str]
) -> dict[str, bytes] | str:
    try:
        figure = FIGURES[name](study, baseline=baseline, style=style)
    except NoData as reason:
        return str(reason)
    return {kind: save(figure, kind, style) for kind in formats}


def _replace(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
