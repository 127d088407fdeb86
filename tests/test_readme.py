"""The README says what is there: files of the tree, metrics of the log, commands of the door."""

import re
from pathlib import Path

from harness.reports.study import SCHEMA, load_study

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return README.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def glossary() -> set[str]:
    rows = re.findall(r"^\| (`.*?) \|", section("Metrics"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_metric_of_the_log_is_in_the_glossary_and_no_other() -> None:
    """The same of a run's metrics.jsonl: tests/harness/engine/test_metrics_of_a_run.py."""
    from harness.engine.metrics import StepMetrics

    more_than_a_number = {"ratio_hist", "c_per_advantage_hist", "verdicts", "clip_by_length_hist"}
    more_than_a_number |= {"ratio_by_position_hist", "log_ratio_variance_hist", "sampler_probability_hist"}
    columns = set(SCHEMA["metrics.csv"]) - {"cell"}
    assert glossary() == columns | more_than_a_number
    assert set(StepMetrics().summary()) <= glossary()
    assert set(load_study(ROOT / "results" / "claim" / "records").metrics.columns) - {"cell"} == columns


def test_every_module_stands_in_the_tree() -> None:
    tree = section("The tree")
    for package in ("objectives", "tasks"):
        for file in (ROOT / package).glob("*.py"):
            assert file.name == "__init__.py" or file.name in tree, file.name
    for file in (ROOT / "harness").glob("*.py"):
        assert file.name == "__init__.py" or file.name in tree, file.name
    for name in re.findall(r"(\w+\.py)", tree):
        assert list(ROOT.rglob(name)), name
    for region in (ROOT / "objectives" / "trust_region").glob("*.py"):
        assert region.stem in ("__init__", "base", "contract") or region.stem in tree, region.stem


def test_every_command_is_in_the_table() -> None:
    from harness.cli import main

    help_text = ""
    import contextlib
    import io

    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as printed:
        main(["--help"])
    help_text = printed.getvalue()
    commands = set(re.findall(r"^    (\w+) ", help_text, re.MULTILINE))
    assert commands == set(re.findall(r"^\| `evengrad (\w+)", README, re.MULTILINE))


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_task_of_the_tasks_readme_keeps_the_contract(tmp_path, capsys) -> None:
    from harness.cli import main

    text = (ROOT / "tasks" / "README.md").read_text(encoding="utf-8")
    (tmp_path / "doubling.py").write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1])
    assert main(["check", f"{tmp_path / 'doubling.py'}:Doubling"]) == 0, capsys.readouterr().out


def test_every_task_is_in_the_tasks_readme() -> None:
    import tasks

    text = (ROOT / "tasks" / "README.md").read_text(encoding="utf-8")
    gym = [name for name in tasks.names() if name.startswith("rg_")]
    assert f"`rg_*` ({len(gym)})" in text
    assert all(f"| `{name}` |" in text for name in tasks.names() if name not in gym)
