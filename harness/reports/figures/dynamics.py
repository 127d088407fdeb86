"""What training does, update by update: one figure a column of metrics.csv, all drawn the same way."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from harness.reports.figures.absent import NoData
from harness.reports.figures.lines import draw_bounds, draw_panels, log_y, runs_by_arm
from harness.reports.figures.panels import are_many, family_panels, label_axes, seeds_caption, trouble_caption
from harness.reports.figures.rows import draw_rows
from harness.reports.figures.style import arm_handles, compose
from harness.reports.study import Study

__all__ = ["DYNAMICS", "of_updates"]

STEPS = "optimizer steps"
_KL_NEW = "KL(old || new) after the last update of each rollout, k3 estimate"
_KL_REF = "KL(policy || reference) after the last update of each rollout, k3 estimate"
_READS = "no arm reads the reference policy (trust_region = reference_penalty does)"


@dataclass(frozen=True)
class Dynamics:
    """One figure.

    Attributes:
        name: of the figure.
        column: of metrics.csv.
        label: of the y axis.
        doc: what the figure shows.
        note: a sentence for the caption.
        log: whether y is on a log axis.
        bounds: unit of the trust regions' bounds that belong on the y axis.
        absent: which runs have the column, said where no cell has it.
    """

    name: str
    column: str
    label: str
    doc: str
    note: str = ""
    log: bool = False
    bounds: str = ""
    absent: str = ""


_SPECS = (
    Dynamics(
        *("reward", "reward_mean", "reward"),
        "Draw the mean task reward of the rollouts against updates.",
        "Reward of the sampled responses, not of an evaluation.",
    ),
    Dynamics(
        *("entropy", "entropy_nats", "entropy\n(nats per token)"),
        "Draw the policy's entropy per token against updates.",
    ),
    Dynamics(
        *("kl_old", "kl_old_per_sequence_nats", "KL(old || new)\n(nats per response)"),
        "Draw KL(old || new) per response against updates, with the trust regions' bounds in that unit.",
        f"{_KL_NEW}, summed over a response.",
        log=True,
        bounds="per_sequence",
    ),
    Dynamics(
        *("kl_old_per_token", "kl_old_per_token_nats", "KL(old || new)\n(nats per token)"),
        "Draw KL(old || new) per token against updates, with the trust regions' bounds in that unit.",
        f"{_KL_NEW}, mean over tokens.",
        log=True,
        bounds="per_token",
    ),
    Dynamics(
        *("kl_ref", "kl_ref_per_sequence_nats", "KL(policy || ref)\n(nats per response)"),
        "Draw the KL divergence from the reference policy per response against updates.",
        f"{_KL_REF}, summed over a response; arms that do not read the reference policy have none.",
        log=True,
        absent=_READS,
    ),
    Dynamics(
        *("grad_norm", "grad_norm", "gradient norm"),
        "Draw the gradient's norm before clipping against updates.",
        "Mean over the updates of a rollout.",
        log=True,
    ),
    Dynamics(
        *("response_length", "response_tokens_mean", "response length\n(tokens)"),
        "Draw the mean response length against updates.",
    ),
    Dynamics(
        *("truncated", "length_limited_frac", "share cut off"),
        "Draw the share of responses that the length limit cuts off against updates.",
    ),
    Dynamics(
        *("informative_groups", "informative_frac", "share of groups\nwith mixed rewards"),
        "Draw the share of groups whose rewards differ against updates: without a difference there is no gradient.",
    ),
    Dynamics(
        *("all_right_groups", "all_right_frac", "share of groups\nall right"),
        "Draw the share of groups whose every response is right against updates.",
        absent="records from before all_right_frac was logged",
    ),
    Dynamics(
        *("up_clipped", "clip_pos_high_frac", "share of tokens\nclipped upwards"),
        "Draw the share of loss tokens with a positive advantage that the clip stops above ratio 1 against updates.",
        log=True,
        absent="no arm clips",
    ),
    Dynamics(
        *("up_clipped_probability", "clip_pos_high_prob_mean", "probability of\nup-clipped tokens"),
        "Draw the mean probability of the tokens that are clipped upwards against updates (DAPO, figure 3a).",
        "A token that is hardly likely is clipped upwards at once: what clip-higher is for.",
        absent="no arm clips a token upwards, or records from before it was logged",
    ),
)


def of_updates(study: Study, column: str, absent: str = "") -> pd.DataFrame:
    """Return a metric of every iteration: columns cell, step (iteration), x (updates), y.

    An iteration that the budget cut short is left out.

    Raises:
        NoData: no cell has the metric.
    """
    rows = study.metrics.dropna(subset=[column, "updates"])
    if rows.empty:
        raise NoData(f"metrics.csv has no {column}" + (f": {absent}" if absent else ""))
    measured = rows["kl_old_per_sequence_nats"].notna()
    known = measured.groupby(rows["cell"]).transform("any")
    rows = rows[measured | ~known]
    columns = {"step": rows["iteration"], "x": rows["updates"], "y": rows[column]}
    return rows[["cell"]].assign(**columns)


def _draw(study: Study, spec: Dynamics) -> Figure:
    runs = runs_by_arm(study, of_updates(study, spec.column, spec.absent))
    notes = [spec.note, *_other_bounds(study, spec)]
    if are_many(study):
        figure = draw_rows(study, runs, STEPS, spec.label, spec.log)
        text = f"Colour: mean over completed seeds; white: not recorded or past the end. {seeds_caption(study)}"
        compose(figure, [], [text, *filter(None, notes), *trouble_caption(study)])
        return figure
    figure, panels = family_panels(study)
    _, crossed = draw_panels(study, panels, runs, spec.column, "range")
    if spec.log:
        log_y(panels)
    drawn = draw_bounds(study, panels, spec.bounds) if spec.bounds else False
    label_axes(panels, STEPS, spec.label)
    text = "Line: mean over seeds; band: their range" + ("; x: a run that did not complete." if crossed else ".")
    notes += ["Horizontal dashes: the trust region's bound delta."] if drawn else []
    compose(
        figure,
        arm_handles(study),
        [f"{text} {seeds_caption(study)}", *filter(None, notes), *trouble_caption(study)],
    )
    return figure


def _other_bounds(study: Study, spec: Dynamics) -> list[str]:
    """Say of each bound in the other unit that it is not on this axis."""
    if spec.bounds != "per_sequence":
        return []
    bounds = study.cells[study.cells["delta"].notna() & (study.cells["delta_unit"] == "per_token")]
    rows = bounds[["arm", "delta"]].drop_duplicates()
    return [f"{row.arm}: bound {row.delta:g} nats per token, not on this axis." for row in rows.itertuples()]


def _named(spec: Dynamics) -> Callable[[Study, str], Figure]:
    def draw(study: Study, baseline: str) -> Figure:
        return _draw(study, spec)

    draw.__name__, draw.__doc__ = spec.name, spec.doc
    return draw


DYNAMICS = tuple(_named(spec) for spec in _SPECS)
"""The figures, in the order of the list."""
