"""Where an iteration's time goes by kind of operator: the reason why it is longer than its products."""

import time

from torch.profiler import ProfilerActivity, profile

from harness.bench.ours import opened
from harness.engine.train import iterate

__all__ = ["KINDS", "operator_shares"]

KINDS = {
    "products": ("mm", "addmm", "bmm", "baddbmm", "linear", "mkldnn_linear", "_grouped_mm"),
    "attention": ("scaled_dot_product", "_flash_attention", "_scaled_dot_product"),
    "copies": ("cat", "copy_", "clone", "index", "gather", "scatter", "masked_scatter", "constant_pad", "contiguous"),
}
"""Beginnings of operator names; what begins with none of them is "elementwise and reductions"."""
_REST, _OUTSIDE = "elementwise and reductions", "Python and starting kernels"


def operator_shares(workload: str, threads: int) -> dict[str, float]:
    """Return the share of one iteration's time that each kind of operator takes by itself."""
    with opened(workload, threads) as (run, recorder):
        iterate(run, recorder)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            begun = time.perf_counter()
            iterate(run, recorder)
            whole = time.perf_counter() - begun
    seconds = dict.fromkeys((*KINDS, _REST), 0.0)
    for event in profiler.key_averages():
        if event.key.startswith("aten::"):
            seconds[_kind(event.key.removeprefix("aten::"))] += event.self_cpu_time_total / 1e6
    seconds[_OUTSIDE] = max(0.0, whole - sum(seconds.values()))
    return {kind: value / whole for kind, value in seconds.items()}


def _kind(name: str) -> str:
    return next((kind for kind, beginnings in KINDS.items() if name.startswith(beginnings)), _REST)
