"""Paper figures of a study, by name: ``FIGURES[name](study, baseline=None, style=None) -> Figure``."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

from harness.reports.figures import bars, curves, points, ratios, surrogates
from harness.reports.figures.style import applied, settle
from harness.reports.study import Study

__all__ = ["FIGURES", "Drawing"]


class Drawing(Protocol):
    """A registered figure."""

    def __call__(self, study: Study, baseline: str | None = None, style: str | Path | None = None) -> Figure:
        """Draw the figure.

        Args:
            study: the records.
            baseline: the arm that differences are taken to; None chooses ``Study.baseline()``.
            style: a matplotlib style file or name, applied on top of the project's style.
        """
        ...


def _styled(draw: Callable[[Study, str], Figure]) -> Drawing:
    def drawing(study: Study, baseline: str | None = None, style: str | Path | None = None) -> Figure:
        with applied(style):
            figure = draw(study, study.baseline(baseline))
            settle(figure)
            return figure

    drawing.__doc__ = draw.__doc__
    return drawing


FIGURES: dict[str, Drawing] = {
    draw.__name__: _styled(draw)
    for draw in (
        curves.learning_curves,
        curves.learning_curves_by_objective,
        points.final_scores,
        points.paired_differences,
        bars.clip_fraction,
        bars.dead_fraction,
        curves.kl_old,
        curves.kl_old_per_token,
        curves.entropy,
        curves.response_length,
        ratios.ratio_distribution,
        surrogates.surrogate_shape,
    )
}
