"""Say at the end of a run which tests it left out because they need an environment or a machine of their own."""

from collections import Counter

import pytest

_LEFT_OUT = {
    "vllm": "need vLLM, in an environment of its own: README, vLLM, has the command that makes it and runs them",
    "gpu": "need a GPU: pytest -m gpu",
}
_counts: Counter[str] = Counter()


def pytest_deselected(items: list[pytest.Item]) -> None:
    _counts.update(name for item in items for name in _LEFT_OUT if item.get_closest_marker(name))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if num := sum("no chromium" in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(
            f"NOT RUN: {num} tests of the page need apt-get install chromium", yellow=True, bold=True
        )
    for name, count in _counts.items():
        if f"not {name}" not in config.getoption("markexpr"):  # left out for another reason
            continue
        terminalreporter.write_line(f"NOT RUN: {count} tests {_LEFT_OUT[name]}", yellow=True, bold=True)
