"""Which runs hold: collapsed, diverged and failed ones, and the worst seed."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.reports.figures.panels import ROW_HEIGHT, seeds_caption, trouble_caption
from harness.reports.figures.style import DARK, PAGE, SMALL, compose, looks, of_arm
from harness.reports.scores import COMPLETED, DIVERGED, outcomes, score_name
from harness.reports.stability import ENTROPY_FLOOR, REWARD_FALL, WINDOW, run_stability
from harness.reports.study import Study

BAR = 0.66
LEGEND_GREY = "#666666"
FATES = {
    "completed": ("#DDDDDD", ""),
    "collapsed": ("#E69F00", "////"),
    "diverged": ("#D55E00", "xxxx"),
    "failed otherwise": ("#0072B2", "...."),
    "running or missing": ("white", ""),
}


def stability(study: Study, baseline: str) -> Figure:
    """Draw what became of each arm's runs (collapsed, diverged, failed), and the worst seed beside the mean."""
    table = outcomes(study).assign(fate=lambda rows: fates(study, rows))
    tasks, arms = study.tasks, study.arms
    height = ROW_HEIGHT * max(len(arms), 3) + 0.6
    figure = Figure(figsize=(PAGE, height * len(tasks) + 0.2), layout="constrained")
    grid = figure.subplots(len(tasks), 2, squeeze=False, sharey=True, sharex="col")
    looked = looks(study)
    for (shares, scores), task in zip(grid, tasks, strict=True):
        for place, arm in enumerate(arms):
            here, left = of_arm(table, task, arm), 0.0
            for fate, (color, hatch) in FATES.items():
                share = float((here["fate"] == fate).mean())
                if share:
                    shares.barh(place, share, BAR, left, facecolor=color, hatch=hatch, edgecolor=DARK, linewidth=0.5)
                left += share
            final, look = here["score"].dropna().to_numpy("float64"), looked[arm]
            if not final.size:
                scores.annotate("n/a", (0.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL)
                continue
            scores.plot([final.min(), final.mean()], [place, place], color=look.color, linewidth=1)
            scores.plot([final.mean()], [place], look.marker, color=look.color, markerfacecolor="white")
            scores.plot([final.min()], [place], "<", color=look.color)
        shares.set_title(task)
        scores.set_title(task)
        shares.set_yticks(range(len(arms)), arms)
        shares.set_ylim(len(arms) - 0.4, -0.6)
        shares.set_xlim(0, 1)
        for axes in (shares, scores):
            axes.grid(axis="y", visible=False)
    grid[-1, 0].set_xlabel("share of planned runs")
    grid[-1, 1].set_xlabel(f"test score ({score_name(study)})")
    used = [fate for fate in FATES if (table["fate"] == fate).any()]
    handles: list[Artist] = [
        Patch(facecolor=FATES[fate][0], hatch=FATES[fate][1], edgecolor=DARK, linewidth=0.5, label=fate)
        for fate in used
    ]
    handles += [
        Line2D([], [], color=LEGEND_GREY, marker="<", linestyle="", label="worst seed"),
        Line2D([], [], color=LEGEND_GREY, marker="o", markerfacecolor="white", linestyle="", label="mean over seeds"),
    ]
    caption = [
        f"Diverged: a loss or gradient was not finite. Collapsed: entropy below {ENTROPY_FLOOR:g} nats per token, or "
        f"the reward's mean over {WINDOW} iterations fell by more than {REWARD_FALL:g} from its peak. Scores: "
        "completed runs, and the last one of diverged runs. "
        f"{seeds_caption(study)}"
    ]
    compose(figure, handles, [*caption, *trouble_caption(study)])
    return figure


def fates(study: Study, table: pd.DataFrame) -> pd.Series:
    """Return what became of each row of ``outcomes``, one of ``FATES``."""
    keys = ["task", "arm", "run"]
    judged = run_stability(study)
    collapsed = set(judged.loc[judged["collapsed"].astype(bool), keys].itertuples(index=False, name=None))
    words = {COMPLETED: "completed", DIVERGED: "diverged", "failed": "failed otherwise"}
    found = [words.get(status, "running or missing") for status in table["status"]]
    for place, run in enumerate(table[keys].itertuples(index=False, name=None)):
        if found[place] == "completed" and run in collapsed:
            found[place] = "collapsed"
    return pd.Series(found, table.index)
