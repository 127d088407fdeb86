"""What every arm has spent, on every axis of the ledger."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

from harness.reports.comparison import budget_text
from harness.reports.formats import Table, amount, columns, scientific
from harness.reports.scores import COSTS, by_arm, states
from harness.reports.study import Study

_HEADER = {
    "spent_flops": "FLOPs (useful)",
    "executed_flops": "FLOPs (executed)",
    "generated_tokens": "generated tokens",
    "trained_tokens": "trained tokens",
    "updates": "updates",
    "iterations": "iterations",
    "eval_flops": "evaluation FLOPs",
    "discarded_flops": "discarded FLOPs",
}


def cost_table(study: Study) -> Table:
    """Report the mean amounts of each arm's completed cells, one row a task and arm."""
    numbers, rows = [], []
    for task in study.tasks:
        for arm in study.arms:
            cells, (completed, failures) = by_arm(study)[task, arm], states(study)[task, arm]
            done = cells[cells["final"].notna()]
            row = {name: float(done[name].mean()) if len(done) else math.nan for name in COSTS}
            numbers.append({"task": task, "arm": arm, "completed": len(done), "total": len(cells), **row})
            texts = [scientific(row[n]) if n.endswith("flops") else amount(row[n]) for n in _HEADER]
            rows.append([task, arm, completed, *texts, failures])
    notes = [
        "Means over completed cells. Useful FLOPs are what the algorithm needs, by closed form; executed ones count "
        "padding and recomputation too. Evaluation is outside the budget; discarded FLOPs went into rollouts that no "
        "longer fitted, inside it."
    ]
    header = ["task", "arm", "seeds", *_HEADER.values(), "failures"]
    work, flops = header[5:9], [*header[3:5], *header[9:-1]]
    parts = columns(header, [*header[:2], *flops], [*header[:2], *work], [*header[:3], header[-1]])
    return Table("costs", f"What the arms spent ({budget_text(study)})", header, rows, notes, numbers, parts)
