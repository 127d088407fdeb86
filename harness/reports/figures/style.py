"""One look for all figures: colour-blind safe, one colour an objective, dashed with a trust region.

A user's own matplotlib style file is applied on top; nothing here touches matplotlib's global state for good.
"""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import style as mpl_style
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.study import Study

COLUMN, PAGE = 3.25, 6.75
"""Widths of a paper's column and page, inches."""
COLOR_MAP = "cividis"
"""Of heat maps: as light in grey print as it is in colour, and the same to the colour-blind."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours without the yellow, which is too pale for a line on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHED = (0, (3.2, 1.4))
GREY = "#BBBBBB"
DARK = "#444444"
SMALL = 7
"""Smallest font, points."""
POINTS_PER_INCH = 72
LINE_HEIGHT = 1.35
PLACE_DECIMALS = 6
"""Of a panel's place as a share of the figure: far above the noise of the layout, far below a dot."""
CHARACTER_WIDTH = 0.48
"""Of the font size, on the average; used to wrap and to place text before it is drawn."""
RC = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "figure.dpi": 200,
    "savefig.dpi": 200,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.2,
    "axes.formatter.use_mathtext": True,
    "image.cmap": COLOR_MAP,
    "pdf.fonttype": 42,
    "svg.hashsalt": "evengrad",
    "text.usetex": False,
}


X_LABEL_HEIGHT = 0.17
"""Inches that a label of the x axis under all panels takes."""
X_LABEL, Y_LABEL = "x-label", "y-label"
"""Ids of labels that stand once for all panels."""


@dataclass(frozen=True)
class Look:
    """How one arm is drawn."""

    color: str
    marker: str
    dashed: bool

    @property
    def line(self) -> dict:
        """Keyword arguments for a line."""
        return {"color": self.color, "linestyle": DASHED if self.dashed else "-"}

    @property
    def face(self) -> str:
        """Fill of a marker: hollow with a trust region."""
        return "white" if self.dashed else self.color


@contextmanager
def applied(style: str | Path | None = None) -> Iterator[None]:
    """Use this style, and a user's style (file or name) on top, inside the block.

    Raises:
        ValueError: matplotlib finds no such style.
    """
    with mpl.rc_context(mpl.rcParamsDefault):
        mpl.rcParams.update(RC)
        if style is not None:
            try:
                mpl_style.use(str(style))
            except OSError as error:
                raise ValueError(f"no matplotlib style {str(style)!r}: give a file or a name ({error})") from error
        yield


def families(study: Study) -> dict[str, list[str]]:
    """Group the arms by objective: an arm's name up to its "+" (the trust region), in the study's order."""
    return _families(study.arms)


def _families(arms: Sequence[str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for arm in arms:
        grouped.setdefault(arm.split("+")[0], []).append(arm)
    return grouped


def has_region(study: Study, arm: str) -> bool:
    """Say whether the arm's cells name a trust region."""
    regions = study.cells.loc[study.cells["arm"] == arm, "region"].str.lower()
    return bool((~regions.isin(["", "none", "unconstrained"])).any())


def looks(study: Study) -> dict[str, Look]:
    """Give each arm its look."""
    return looks_of(study.arms, lambda arm: has_region(study, arm))


def looks_of(arms: Sequence[str], has_region: Callable[[str], bool]) -> dict[str, Look]:
    """Give arms their looks: colour and marker by objective, dashed and hollow with a trust region."""
    found = {}
    for place, variants in enumerate(_families(arms).values()):
        turn = place // len(PALETTE)
        for variant, arm in enumerate(variants):
            marker = MARKERS[(place % len(PALETTE) + turn + variant // 2) % len(MARKERS)]
            found[arm] = Look(PALETTE[place % len(PALETTE)], marker, has_region(arm))
    return {arm: found[arm] for arm in arms}


def compose(figure: Figure, handles: Sequence[Artist], caption: Sequence[str]) -> None:
    """Put the legend above the panels and the caption below, with room of their own.

    Args:
        figure: made with ``layout="constrained"``; it grows by the height of legend and caption.
        handles: legend entries with labels; may be empty.
        caption: sentences, each starts a line; wrapped to the figure's width.
    """
    width = figure.get_figwidth()
    per_line = int(width * POINTS_PER_INCH / (CHARACTER_WIDTH * SMALL * 1.12))
    text = "\n".join(textwrap.fill(line, per_line) for line in caption)
    below = (text.count("\n") + 1.4) * SMALL * LINE_HEIGHT / POINTS_PER_INCH
    above, columns = 0.0, 1
    if handles:
        longest = max(len(str(handle.get_label())) for handle in handles)
        entry = (longest * CHARACTER_WIDTH * 1.15 + 5.5) * SMALL
        columns = min(len(handles), max(1, int(width * POINTS_PER_INCH / entry)))
        columns = -(-len(handles) // -(-len(handles) // columns))
        above = (-(-len(handles) // columns) + 0.6) * SMALL * 1.6 / POINTS_PER_INCH
    under = below
    below += X_LABEL_HEIGHT * any(label.get_gid() == X_LABEL for label in figure.texts)
    height = figure.get_figheight() + below + above
    figure.set_figheight(height)
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0, below / height, 1, 1 - (below + above) / height))
    for label in figure.texts:  # the layout puts them at the edge and the middle of the whole figure
        if label.get_gid() == X_LABEL:
            label.set_y((below - X_LABEL_HEIGHT + 0.03) / height)
        elif label.get_gid() == Y_LABEL:
            label.set_y((below + (height - below - above) / 2) / height)
    figure.text(0.01, (under - 0.35 * SMALL * LINE_HEIGHT / POINTS_PER_INCH) / height, text, va="top", fontsize=SMALL)
    if handles:
        figure.legend(handles=handles, loc="upper center", ncols=columns, bbox_to_anchor=(0.5, 1), borderaxespad=0.3)


def settle(figure: Figure) -> None:
    """Lay the panels out once, for good, and round their places.

    The solver of the layout orders its variables by memory address, so the last bits of a place differ from run to run.
    """
    figure.draw_without_rendering()  # the layout alone, without a draw, meets stale limits and cuts labels off
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(float(end), PLACE_DECIMALS) for end in axes.get_position().bounds])


def arm_handles(study: Study) -> list[Artist]:
    """Return one legend line an arm."""
    return [
        Line2D([], [], label=arm, marker=look.marker, markerfacecolor=look.face, **look.line)
        for arm, look in looks(study).items()
    ]


def of_arm(frame: pd.DataFrame, task: str, arm: str) -> pd.DataFrame:
    """Return the rows of one task and arm."""
    return frame[(frame["task"] == task) & (frame["arm"] == arm)]
