"""Write a table as Markdown, CSV and LaTeX, byte for byte the same for the same numbers."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tabulate import tabulate

PLUS_MINUS = "±"
THOUSANDS_FROM = 1e6
FAILURES = "failures"
"""Name of the column that says what became of cells that did not complete."""
LONG = 44
"""Characters of an entry; a column with a longer one is broken into lines in LaTeX."""
WIDE = 7
"""Columns; a part with more is set smaller in LaTeX."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",  # \textquotedbl needs another font encoding than LaTeX's own
    "`": r"\textasciigrave{}",
    PLUS_MINUS: r"$\pm$",
}


@dataclass(frozen=True)
class Table:
    """A finished table: text for reading, numbers for computing.

    ``parts`` are the column groups that LaTeX sets one below the other where a page is too narrow for all.
    """

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    numbers: Sequence[dict[str, object]]
    """One dict a CSV row; float, int or str."""
    parts: Sequence[Sequence[int]] = field(default_factory=list)


def columns(header: Sequence[str], *parts: Sequence[str]) -> list[list[int]]:
    """Return ``Table.parts`` from the columns' names.

    Example:
        >>> columns(["task", "arm", "score", "failures"], ["task", "arm", "score"], ["task", "arm", "failures"])
        [[0, 1, 2], [0, 1, 3]]
    """
    return [[list(header).index(name) for name in part] for part in parts]


def number(value: float, digits: int = 3, signed: bool = False) -> str:
    """Write a number with fixed decimals, "n/a" for NaN and never "-0.000".

    Example:
        >>> number(-0.00001), number(0.25, 2, signed=True), number(float("nan"))
        ('0.000', '+0.25', 'n/a')
    """
    if math.isnan(value):
        return "n/a"
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def scientific(value: float) -> str:
    """Write a large amount with three figures, "1.23e+12"; "n/a" for NaN."""
    return "n/a" if math.isnan(value) else f"{value:.2e}"


def amount(value: float) -> str:
    """Write a count: whole below a million ("12,800"), else three figures; "n/a" for NaN."""
    if math.isnan(value):
        return "n/a"
    return f"{value:,.0f}" if abs(value) < THOUSANDS_FROM else scientific(value)


def escape_latex(text: str) -> str:
    r"""Escape LaTeX's special characters; set "1.2e+12" and leading minus signs as mathematics.

    Example:
        >>> escape_latex("gspo_subsequence & 5%")
        'gspo\\_subsequence \\& 5\\%'
    """
    escaped = "".join(_LATEX.get(character, character) for character in text)
    escaped = re.sub(r"-(?=-)", "-{}", escaped)  # two hyphens are no dash
    escaped = re.sub(
        r"(?<![\w.])(-?\d+(?:\.\d+)?)e([+-])0*(\d+)",
        lambda found: rf"${found[1]} \times 10^{{{'-' if found[2] == '-' else ''}{found[3]}}}$",
        escaped,
    )
    return re.sub(r"(?<![\w$.{-])-(?=\d)", "$-$", escaped)


def to_markdown(table: Table) -> str:
    """Return the title, a pipe table and the reading note."""
    rows = [[_cell(entry) for entry in row] for row in table.rows]
    body = tabulate(rows, headers=list(table.header), tablefmt="pipe", disable_numparse=True)
    notes = "\n".join(f"- {note}" for note in table.notes)
    return f"# {table.title}\n\n{body}\n\n{notes}\n"


def to_csv(table: Table) -> str:
    """Return the numbers with nine significant figures; an empty entry is a missing one."""
    columns = list(table.numbers[0]) if table.numbers else []
    lines = [",".join(columns)]
    lines += [",".join(_csv(row[column]) for column in columns) for row in table.numbers]
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """Return booktabs tables (one a part) with the title as caption; LaTeX needs the package booktabs."""
    parts = [part for part in table.parts or [range(len(table.header))] if not _says_nothing(table, part)]
    grouped = len({row[0] for row in table.rows}) < len(table.rows)
    out = [r"% needs \usepackage{booktabs}", r"\begin{table*}[t]", r"\centering\setlength{\tabcolsep}{3pt}"]
    out += [rf"\caption{{{escape_latex(table.title)}}}", rf"\label{{tab:{table.name}}}"]
    for place, part in enumerate(parts):
        if place:
            out.append(r"\par\medskip")
        out.append(r"\scriptsize" if len(part) > WIDE else r"\footnotesize")
        out += [rf"\begin{{tabular}}{{{''.join(_alignment(table, column) for column in part)}}}", r"\toprule"]
        out += [_latex_row([table.header[column] for column in part]), r"\midrule"]
        previous = None
        for row in table.rows:
            if grouped and previous is not None and row[0] != previous:
                out.append(r"\midrule")
            previous = row[0]
            out.append(_latex_row([row[column] for column in part]))
        out += [r"\bottomrule", r"\end{tabular}"]
    out += [r"\par\medskip\begin{minipage}{\linewidth}\footnotesize"]
    whole = [] if len(parts) == len(table.parts or parts) else ["All cells completed."]
    out += [escape_latex(note) + r"\par" for note in (*table.notes, *whole)]
    return "\n".join([*out, r"\end{minipage}", r"\end{table*}"]) + "\n"


def _says_nothing(table: Table, part: Sequence[int]) -> bool:
    """Return whether a part lists failures where there are none, and beside them nothing that no other part has."""
    last = part[-1]
    if len(table.parts) < 2 or table.header[last] != FAILURES or any(row[last] != "none" for row in table.rows):  # noqa: PLR2004
        return False
    shown = {column for other in table.parts if other is not part for column in other}
    return {table.header[column] for column in set(part) - shown} <= {"seeds", FAILURES}


def _alignment(table: Table, column: int) -> str:
    """Return how LaTeX sets a column: a long text, such as a cause, is broken into lines."""
    long = any(len(row[column]) > LONG for row in table.rows)
    return r"p{0.36\linewidth}" if long else "l"


def _latex_row(entries: Sequence[str]) -> str:
    return " & ".join(escape_latex(entry) for entry in entries) + r" \\"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _csv(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.9g}"
    text = " ".join(str(value).split())
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"') else text
