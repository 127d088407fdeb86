"""The two sides of ``evengrad compare``: ``FOLDER`` or ``FOLDER:ARM``, with what is known of each cell. No torch."""

from pathlib import Path

from harness.config.errors import UserError
from harness.reports.formats import Table, to_csv, to_latex, to_markdown
from harness.reports.side_by_side import Settings, Side, compare_sides
from harness.reports.study import load_study
from harness.sweeps.files import dump_json, write_atomic
from harness.sweeps.provenance import identities
from harness.sweeps.study import records_of

__all__ = ["compare", "write_table"]

_WRITERS = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
_OF_THE_ARM = ("config.objective", "config.trust_region", "sources.objective", "sources.trust_region")


def compare(first: str, second: str) -> Table:
    """Compare two studies or two arms.

    Args:
        first: a sweep's folder or one of compact records; with ``:ARM`` behind it, that arm alone.
        second: likewise.

    Raises:
        UserError: a side cannot be read, has no such arm, or one names an arm and the other does not.
    """
    try:
        return compare_sides(_side(first), _side(second))
    except ValueError as error:
        raise UserError(str(error)) from error


def write_table(table: Table, file: Path) -> None:
    """Write the table as its file's name asks: .md, .csv or .tex."""
    if file.suffix not in _WRITERS:
        raise UserError(f"{file} should end with .md, .csv or .tex")
    try:
        write_atomic(file, _WRITERS[file.suffix](table).encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error


def _side(word: str) -> Side:
    folder, arm = _split(word)
    return Side(word, load_study(records_of(folder)), arm, _settings(folder))


def _split(word: str) -> tuple[Path, str | None]:
    """Return folder and arm; both may hold colons, and the longest folder that exists wins."""
    parts = word.split(":")
    for length in range(len(parts), 0, -1):
        folder = Path(":".join(parts[:length]))
        if folder.is_dir():
            return folder, ":".join(parts[length:]) or None
    raise UserError(f"{word} is no folder of a study, nor FOLDER:ARM with such a folder in front")


def _settings(folder: Path) -> Settings | None:
    """Return for each cell that was begun what its identity holds beside objective and trust region, or None."""
    found = identities(folder)
    kept = {cell: {k: v for k, v in one.items() if not k.startswith(_OF_THE_ARM)} for cell, one in found.items()}
    return {
        cell: {k: v if isinstance(v, str) else dump_json(v) for k, v in one.items()} for cell, one in kept.items()
    } or None
