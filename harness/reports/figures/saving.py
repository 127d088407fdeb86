"""A figure as the bytes of a file that depend on the figure alone."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from PIL import Image

from harness.reports.figures.style import POINTS_PER_INCH, applied

__all__ = ["FORMATS", "require_formats", "save"]

FORMATS = ("png", "pdf", "svg")
PNG_COLORS = 256
_NO_METADATA = {
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
}
"""What would make the bytes depend on the time or on a version."""


def save(figure: Figure, kind: str, style: str | Path | None = None) -> bytes:
    """Render to PNG (200 dots an inch, 256 colours), PDF or SVG bytes that depend on the figure alone.

    Raises:
        ValueError: no such format.
    """
    require_formats([kind])
    buffer = BytesIO()
    with applied(style):  # of the canvas: ``Figure.savefig`` draws everything twice
        if kind == "png":
            return _few_colors(figure)
        dots, figure.dpi = figure.dpi, POINTS_PER_INCH
        try:
            if kind == "pdf":
                FigureCanvasPdf(figure).print_pdf(buffer, metadata=_NO_METADATA[kind])
            else:
                FigureCanvasSVG(figure).print_svg(buffer, metadata=_NO_METADATA[kind])
        finally:
            figure.dpi = dots
    return buffer.getvalue()


def require_formats(kinds: Sequence[str]) -> None:
    """Raise ValueError if one of ``kinds`` is no format of figures."""
    for kind in kinds:
        if kind not in FORMATS:
            raise ValueError(f"unknown figure format {kind!r}; known: {', '.join(FORMATS)}")


def _few_colors(figure: Figure) -> bytes:
    """Draw the picture with a palette: a third of the size, and no difference that an eye sees."""
    buffer, dots, before = BytesIO(), float(mpl.rcParams["savefig.dpi"]), figure.dpi
    figure.dpi = dots
    try:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    finally:
        figure.dpi = before
    palette = image.quantize(PNG_COLORS, dither=Image.Dither.NONE)
    palette.save(buffer, format="png", optimize=True, dpi=(dots, dots))
    return buffer.getvalue()
