"""One self-contained HTML page of a study: failures, tables that sort, figures, samples, configuration. No torch."""

from harness.reports.page.content import CellSamples, PageSources, Provenance
from harness.reports.page.render import PAGE, render_page

__all__ = ["PAGE", "CellSamples", "PageSources", "Provenance", "render_page"]
