"""What updates of a mixture of experts do to its routes, and what replaying them does to the ratios."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.figures.dynamics import of_updates
from harness.reports.figures.lines import mean_line, runs_by_arm
from harness.reports.figures.panels import PANEL_HEIGHT, seeds_caption, trouble_caption
from harness.reports.figures.style import DARK, DASHED, PAGE, compose, looks
from harness.reports.study import Study


def routing_replay(study: Study, baseline: str) -> Figure:
    """Draw how many choices of experts an update changes, and the spread of ratios without and with routing replay."""
    changed = runs_by_arm(
        study, of_updates(study, "routed_changed_frac", "no policy is a mixture of experts (tiny-moe is)")
    )
    free = runs_by_arm(study, of_updates(study, "log_ratio_std_free"))
    replayed = runs_by_arm(study, of_updates(study, "log_ratio_std_replayed"))
    tasks = study.tasks
    figure = Figure(figsize=(PAGE, PANEL_HEIGHT * len(tasks) + 0.35), layout="constrained")
    grid = figure.subplots(len(tasks), 2, squeeze=False, sharex="row")
    looked = looks(study)
    for (left, right), task in zip(grid, tasks, strict=True):
        for arm in study.arms:
            look = looked[arm]
            style = {"color": look.color, "marker": look.marker, "markerfacecolor": look.face, "markevery": 3}
            line = mean_line(changed[task, arm])
            left.plot(line["x"], line["y"], **style)
            for runs, kind in ((free, "-"), (replayed, DASHED)):
                line = mean_line(runs[task, arm])
                right.plot(line["x"], line["y"], linestyle=kind, **style)
        left.set_ylabel("share of the experts\nchosen that change")
        right.set_ylabel(r"std of $\log(\pi_\theta / \pi_{old})$" + "\n(nats)")
        for axes in (left, right):
            axes.set_title(task)
            axes.set_ylim(bottom=0)
    for axes in grid[-1]:
        axes.set_xlabel("optimizer steps")
    handles = [
        Line2D([], [], label=arm, color=look.color, marker=look.marker, markerfacecolor=look.face)
        for arm, look in looked.items()
    ]
    handles += [
        Line2D([], [], label="routed freely", color=DARK),
        Line2D([], [], label="with the old policy's routes", color=DARK, linestyle=DASHED),
    ]
    caption = [
        "Means over completed seeds, measured on the tokens of a rollout after its last update: of the choices of "
        f"experts those that the policy no longer makes, and the spread of the token log-ratios. {seeds_caption(study)}"
    ]
    compose(figure, handles, [*caption, *trouble_caption(study)])
    return figure
