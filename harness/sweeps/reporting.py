"""Write the report of a study: of a sweep's folder, or of committed records. No torch."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.config.errors import UserError
from harness.sweeps.layout import is_study, read_sweep
from harness.sweeps.study import records_of

__all__ = ["write_reports"]


def write_reports(
    folder: Path,
    out: Path,
    *,
    baseline: str | None = None,
    figures: Sequence[str] | None = None,
    style: str | None = None,
    formats: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write tables, figures and the page of a sweep's folder or of committed records.

    Args:
        folder: a sweep's folder (its records are made anew), or one that holds the CSV files, or records/ with them.
        out: gets tables/, figures/ and, if all figures are drawn, page.html.
        baseline: an arm; the sweep's own if None.
        figures: names; all if None.
        style: a matplotlib style file.
        formats: of the figures; all if None.
        say: told of each figure that is left out for want of data.

    Raises:
        UserError: there are no records, a name is unknown, or a figure asked for by name has no data.
    """
    from harness.reports.report import FORMATS, write_report
    from harness.reports.study import load_study
    from harness.sweeps.page_sources import page_sources

    try:
        study = load_study(records_of(folder))
        baseline = baseline or _baseline(folder, study.arms)
        chosen = {"baseline": baseline, "figures": figures, "style": style, "formats": formats or FORMATS, "say": say}
        page = page_sources(folder) if figures is None else None
        return write_report(study, out, page=page, **chosen)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


def _baseline(folder: Path, arms: Sequence[str]) -> str | None:
    """Return the baseline that a sweep names, in its folder or in the sweep.toml beside records; None if there is none.

    Of an arm with axes it is the first one.
    """
    if is_study(folder):
        return read_sweep(folder)["baseline"]
    file = folder / "sweep.toml"
    name = tomllib.loads(file.read_text(encoding="utf-8")).get("baseline") if file.is_file() else None
    return next((arm for arm in arms if name is not None and (arm == name or arm.startswith(f"{name} "))), None)
