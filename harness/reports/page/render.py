"""Render the page: a jinja2 template that escapes everything, with style, script and figures inside.

The page's own policy lets nothing run but its one script and loads nothing from anywhere, so that a response cannot act
even if it were not escaped.
"""

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from harness.reports.figures import FIGURES
from harness.reports.formats import Table
from harness.reports.page.content import (
    SHOWN_ROWS,
    PageSources,
    arm_grid,
    cell_grid,
    counts,
    failure_grid,
    grid,
)
from harness.reports.study import Study
from harness.reports.tables import NOT_REPRODUCIBLE
from harness.terminal import visible

__all__ = ["PAGE", "render_page"]

PAGE = "page.html"
COLOURS = 256
"""Of a figure on the page; a third of the bytes of the file in figures/, and no difference to the eye."""


def render_page(
    study: Study, baseline: str, tables: Sequence[Table], figures: Mapping[str, bytes], sources: PageSources
) -> bytes:
    """Return the page as UTF-8; byte-equal for byte-equal records and the same libraries.

    Args:
        study: the records.
        baseline: the arm that differences are taken to.
        tables: of ``all_tables``; those that are not reproducible are left out, and their files named.
        figures: name -> PNG; an empty mapping leaves the section out.
        sources: provenance and samples.
    """
    lasting = [table for table in tables if NOT_REPRODUCIBLE not in table.title]
    style, script = _asset("page.css"), _asset("page.js")
    text = (
        _environment()
        .get_template("page.html")
        .render(
            provenance=sources.provenance,
            baseline=baseline,
            counts=counts(study),
            failures=failure_grid(study),
            tables=[grid(table) for table in lasting],
            left_out=[table.name for table in tables if table not in lasting],
            figures=[_figure(name, png) for name, png in figures.items()],
            cells=cell_grid(study),
            arms=arm_grid(study),
            samples=sources.samples,
            samples_note=sources.samples_note,
            budgets=_budgets(study),
            shown_rows=SHOWN_ROWS,
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash(style),
            script_hash=_hash(script),
        )
    )
    return text.encode("utf-8")


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("harness.reports.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: Any) -> Any:
    """Write what a browser would obey or hide (direction marks, control characters) as an escape."""
    return visible(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> str:
    return (files("harness.reports.page") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the source expression that allows an inline style or script of exactly this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _figure(name: str, png: bytes) -> dict[str, Any]:
    with Image.open(io.BytesIO(png)) as image:
        width, height = image.size
        few = image.convert("RGB").quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small = io.BytesIO()
    few.save(small, "PNG", optimize=True)
    data = min(png, small.getvalue(), key=len)
    caption = " ".join((FIGURES[name].__doc__ or name).split("\n\n")[0].split())
    return {
        **{"name": name, "title": name.replace("_", " "), "caption": caption, "width": width, "height": height},
        "address": Markup("data:image/png;base64," + base64.b64encode(data).decode()),
    }


def _budgets(study: Study) -> str:
    from harness.reports.comparison import budget_text

    return budget_text(study)
