"""Text for a reader: colour and boxes on a terminal, plain lines in a pipe, and no character that acts by itself."""

import io
import os
import pydoc
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["VERDICT_STYLES", "on_terminal", "percent", "shown", "table", "visible", "write"]

VERDICT_STYLES = {
    **{"pass": "green", "wrong": "red", "format": "yellow", "error": "magenta", "timeout": "magenta"},
    **{"memory": "magenta", "unsupported": "cyan", "infra": "bold red"},
}
"""Colour of each verdict on a terminal."""

_PIPE_WIDTH = 10_000
# Control, format (direction and joining), surrogate, private and unassigned characters, line and paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return ``text`` with every character that a terminal would obey or hide written as an escape, e.g. ``\x1b``.

    Args:
        text: anything, such as what a model wrote.
        lines: whether line ends and tabs stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or _harmless(c, lines) else ascii(c)[1:-1] for c in text)


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def percent(part: float, whole: float) -> str:
    """Return a share as "12.5%", "-" of nothing."""
    return f"{part / whole:.1%}" if whole else "-"


def shown(number: float | None, form: str = ".3f") -> str:
    """Return a number for a table, "-" where it is missing."""
    return "-" if number is None else format(number, form)


def table(heads: Sequence[str], rows: Iterable[Sequence[str | Text]], left: int = 1) -> Table:
    """Return a table whose first ``left`` columns stand left, the others right."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, head in enumerate(heads):
        made.add_column(Text(head), justify="left" if position < left else "right", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made


def write(parts: Iterable[Table | Text | str], *, page: bool = False) -> None:
    """Print the parts one below the other; through the pager of the environment if ``page``, on a terminal only."""
    terminal = on_terminal()
    pager = os.environ.get("PAGER", "less")
    styled = terminal and (not page or "less" in pager)
    text = _rendered(parts, terminal=terminal, styled=styled)
    encoding = sys.stdout.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    if page and terminal:
        os.environ.setdefault("LESS", "FRX")  # as git: leave at once what fits on the screen, obey colours
        pydoc.pager(text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


def _harmless(character: str, lines: bool) -> bool:
    if lines and character in "\n\t":
        return True
    return unicodedata.category(character) not in _INVISIBLE


def _rendered(parts: Iterable[Table | Text | str], *, terminal: bool, styled: bool) -> str:
    width = shutil.get_terminal_size().columns if terminal else _PIPE_WIDTH
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=styled, width=width, highlight=False, markup=False, emoji=False)
    for part in parts:
        if isinstance(part, Table):
            with console.capture() as capture:
                console.print(part)
            stream.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())
        elif isinstance(part, Text) and styled:
            console.print(part, soft_wrap=True)
        else:
            stream.write(f"{part}\n")
    return stream.getvalue()
