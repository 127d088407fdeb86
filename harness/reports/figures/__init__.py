"""Paper figures of a study, by name: ``FIGURES[name](study, baseline=None, style=None) -> Figure``."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

from harness.reports.figures import (
    bars,
    curves,
    orders,
    places,
    points,
    rates,
    ratios,
    routing,
    scaling,
    sensitivity,
    stability,
    surrogates,
    trials,
)
from harness.reports.figures.absent import NoData
from harness.reports.figures.dynamics import DYNAMICS
from harness.reports.figures.style import applied, settle
from harness.reports.study import Study

__all__ = ["FIGURES", "Drawing", "NoData"]


class Drawing(Protocol):
    """A registered figure."""

    def __call__(self, study: Study, baseline: str | None = None, style: str | Path | None = None) -> Figure:
        """Draw the figure.

        Args:
            study: the records.
            baseline: the arm that differences are taken to; None chooses ``Study.baseline()``.
            style: a matplotlib style file or name, applied on top of the project's style.

        Raises:
            NoData: the study has nothing to draw it from.
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
        curves.learning_curves_flops,
        curves.learning_curves_tokens,
        curves.learning_curves_updates,
        points.final_scores,
        points.paired_differences,
        orders.rank_stability,
        orders.performance_profiles,
        orders.compute_to_threshold,
        scaling.pareto,
        scaling.sigmoid_fit,
        rates.pass_at_k,
        rates.majority_at_k,
        sensitivity.sensitivity,
        sensitivity.off_policy_stress,
        trials.tuning_trials,
        stability.stability,
        bars.clip_fraction,
        bars.dead_fraction,
        places.clip_by_length,
        *DYNAMICS,
        ratios.ratio_distribution,
        ratios.log_ratio_variance,
        places.ratio_by_position,
        places.sampler_trainer,
        routing.routing_replay,
        surrogates.surrogate_shape,
    )
}
