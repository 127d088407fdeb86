"""The README says what is there: files of the tree, metrics of the log, commands of the door."""

import re
from pathlib import Path

from harness.reports.study import load_study

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return README.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_metric_of_the_log_is_in_the_glossary_and_no_other() -> None:
    from harness.engine.metrics import StepMetrics

    rows = re.findall(r"^\| (`.*?) \|", section("Metrics"), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    logged = set(load_study(ROOT / "results" / "quick" / "records").metrics.columns) - {"cell"}
    assert logged <= documented
    assert set(StepMetrics().summary()) <= documented


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
