"""Plug-ins from files and packages, and what changes their hash."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from harness import plugins
from harness.cli import main
from harness.compatibility import check_run
from harness.config.errors import UserError
from harness.config.loading import resolve_run
from harness.config.schema import Plugin
from tasks import contract

ROOT = Path(__file__).parents[2]


def copy_of_grpo(folder, change=("", "")):
    path = folder / "mine.py"
    path.write_text((ROOT / "objectives/grpo.py").read_text().replace(*change))
    return Plugin.model_validate({"name": f"{path}:GRPO", "clip_low": 0.1})


def test_plugins_of_the_package_are_built_with_their_settings():
    assert plugins.objective(Plugin.model_validate({"name": "gspo", "clip_low": 0.1})).clip_low == 0.1
    assert plugins.trust_region(Plugin.model_validate({"name": "dual", "delta": 1})).delta == 1.0
    assert plugins.task(Plugin.model_validate({"name": "arithmetic", "operands": [2]})).operands == (2,)


def test_a_class_of_a_file_is_built(tmp_path):
    plugin = copy_of_grpo(tmp_path)
    assert plugins.objective(plugin).clip_low == 0.1
    assert plugins.label(plugin) == "GRPO"
    assert plugins.file_class(plugin.name) is plugins.file_class(plugin.name)


def test_an_edited_file_is_read_anew(tmp_path):
    first = type(plugins.objective(copy_of_grpo(tmp_path)))
    assert (
        type(plugins.objective(copy_of_grpo(tmp_path, ("sequence_mean(step)", "0.5 * sequence_mean(step)"))))
        is not first
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n\nimport nothing_like_it\n", r"mine\.py, line 3: ModuleNotFoundError: No module named"),
        ("raise SystemExit(0)\n", r"mine\.py, line 1: SystemExit: 0"),
        ("def f(:\n", r"mine\.py, line 1: SyntaxError: "),
        ("def f():\n    return 1 / 0\n\nf()\n", r"mine\.py, line 2: ZeroDivisionError: division by zero"),
        ("class Other:\n    pass\n", r"mine\.py has no class Mine; its classes: Other"),
        ("class Mine:\n    pass\n", r"is no objective: its class must derive from objectives\.base\.Objective"),
        ("from objectives import Objective\nclass Mine(Objective):\n    pass\n", "is abstract: it lacks aggregation"),
    ],
)
def test_a_bad_file_is_told_with_its_line(tmp_path, source, message):
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(UserError, match=message) as caught:
        plugins.objective(Plugin(name=f"{tmp_path / 'mine.py'}:Mine"))
    assert "\n" not in str(caught.value)


def test_a_plugin_of_another_kind_is_refused():
    with pytest.raises(UserError, match="unknown objective 'arithmetic'"):
        plugins.objective(Plugin(name="arithmetic"))


def test_an_entry_point_is_found_and_must_not_shadow_the_package(monkeypatch, tmp_path):
    copy_of_grpo(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    group = "evengrad.objectives"
    points = [importlib.metadata.EntryPoint(name, "mine:GRPO", group) for name in ("theirs", "ppo")]
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: points if group == "evengrad.objectives" else []
    )
    assert type(plugins.objective(Plugin(name="theirs"))).__module__ == "mine"
    with pytest.raises(UserError, match="'ppo' is in the package and in the entry points"):
        plugins.objective(Plugin(name="ppo"))


TASK = """
from dataclasses import dataclass
from tasks import Task
from tasks.arithmetic import Arithmetic

@dataclass(frozen=True)
class Mine(Arithmetic):
    def {method}:
        {body}

def function():
    pass

class Plain:
    pass

class Undecorated(Task):
    examples = prompt = gold = score = demonstrations = fingerprint = None
"""


def task_file(folder, method="unused(self)", body="pass"):
    path = folder / "my_tasks.py"
    path.write_text(TASK.format(method=method, body=body))
    return f"{path}:Mine"


@pytest.fixture
def points(monkeypatch, tmp_path):
    """Return a function that installs {name: place} as entry points of tasks."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_tasks", raising=False)

    def install(**places):
        made = [importlib.metadata.EntryPoint(name, place, "evengrad.tasks") for name, place in places.items()]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: made if group == "evengrad.tasks" else [])

    task_file(tmp_path)
    yield install
    sys.modules.pop("my_tasks", None)


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("my_tasks:function", "is no task: its class must derive from tasks.base.Task"),
        ("my_tasks:Plain", "is no task: its class must derive from tasks.base.Task"),
        ("my_tasks", "is no task: its class must derive from tasks.base.Task"),
        ("my_tasks:Undecorated", "is no dataclass: decorate it"),
        ("my_tasks:Nothing", "AttributeError: module 'my_tasks' has no attribute 'Nothing'"),
        ("no_such_module:Mine", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("tasks:Task", "is abstract: it lacks"),
    ],
)
def test_a_broken_entry_point_is_listed_with_its_fault_and_stops_no_other(points, capsys, place, fault):
    points(broken=place, theirs="my_tasks:Mine")
    assert main(["list", "tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (told,) = [line for line in lines if line.startswith("broken: BROKEN entry point: ")]
    assert fault in told
    assert {"arithmetic", "theirs", "math"} <= {line.partition(":")[0] for line in lines}
    assert main(["check", "broken"]) == 2
    captured = capsys.readouterr()
    assert fault in captured.err
    assert captured.err.count("\n") == 1
    assert plugins.find_any("arithmetic").__name__ == "Arithmetic"
    assert plugins.find_any("theirs").__name__ == "Mine"


def test_an_entry_point_with_a_name_of_the_package_is_told_in_the_list(points, capsys):
    points(arithmetic="my_tasks:Mine")
    assert main(["list", "tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "arithmetic: BROKEN entry point: task 'arithmetic' is in the package and in the entry points" in "\n".join(
        lines
    )
    assert sum(line.startswith("arithmetic: Chains of sums") for line in lines) == 1
    assert main(["check", "arithmetic"]) == 2
    assert "rename yours" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("SystemExit(0)", "SystemExit: 0"),
        ("OSError('gone')", "OSError: gone"),
        ("ImportError('lacks x')", "ImportError: lacks x"),
        ("type('MyError', (Exception,), {})('mine')", "MyError: mine"),
    ],
)
@pytest.mark.parametrize("method", ["score(self, example, response)", "examples(self, split)"])
def test_whatever_a_task_raises_breaks_its_contract(tmp_path, capsys, method, error, told):
    assert main(["check", task_file(tmp_path, method, f"raise {error}")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(contract.CHECKS)
    assert any(line.startswith("BROKEN ") and line.endswith(told) for line in lines)


@pytest.mark.parametrize("error", ["SystemExit(0)", "OSError('gone')", "KeyError('x')"])
def test_a_task_that_cannot_be_built_is_told_in_a_line(tmp_path, capsys, error):
    assert main(["check", task_file(tmp_path, "__post_init__(self)", f"raise {error}")]) == 2
    line = capsys.readouterr().err
    assert "task 'Mine' cannot be built: " + error.partition("(")[0] in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("error", ["SystemExit(0)", "OSError('gone')"])
def test_whatever_an_objective_raises_breaks_its_contract(tmp_path, capsys, error):
    plugin = copy_of_grpo(tmp_path, ("return sequence_mean(step)", f"raise {error}"))
    assert main(["check", plugin.name]) == 1
    assert f"BROKEN  The contract can be run.: {error.partition('(')[0]}: " in capsys.readouterr().out


def test_a_module_that_exits_is_told_in_a_line(tmp_path, capsys):
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(0)\n")
    assert main(["check", f"{tmp_path / 'exits.py'}:Mine"]) == 2
    assert "exits.py, line 2: SystemExit: 0" in capsys.readouterr().err


def test_the_hash_covers_the_file_and_what_it_imports_but_not_its_place(tmp_path):
    own = plugins.source_hash("objective", Plugin(name="grpo"))
    assert plugins.source_hash("objective", copy_of_grpo(tmp_path)) == own
    assert plugins.source_hash("objective", copy_of_grpo(tmp_path, ("eq. 3", "eq. 4"))) != own
    assert plugins.source_hash("objective", Plugin(name="gspo")) != own
    assert len(own) == 64


def test_a_new_objective_changes_no_hash_of_another(monkeypatch, tmp_path):
    from harness import sources

    package = tmp_path / "objectives"
    package.mkdir()
    for name in ("ops", "checks"):
        (package / f"{name}.py").write_text(f"# {name}\n")
    mine = package / "mine.py"
    mine.write_text("from objectives.ops import x\nimport objectives.checks\n")
    monkeypatch.setattr(sources, "__file__", str(tmp_path / "harness/sources.py"))
    before = sources.hash_sources(mine)
    (package / "new.py").write_text("# new\n")
    assert sources.hash_sources(mine) == before
    (package / "checks.py").write_text("# other\n")
    assert sources.hash_sources(mine) != before


def test_a_checked_run_gives_what_tables_say():
    region = {"name": "dual", "delta": 0.5, "unit": "per_token"}
    run = resolve_run({"budget": {"axis": "updates", "amount": 8}, "trust_region": region})
    facts = {"objective": "grpo", "region": "dual", "delta": 0.5, "delta_unit": "per_token"}
    assert check_run(run) == facts
    run = resolve_run({"budget": {"axis": "updates", "amount": 8}})
    assert check_run(run) == {"objective": "grpo", "region": "none", "delta": None, "delta_unit": ""}


def test_a_portable_run_names_no_place(tmp_path):
    objective = {"name": f"{tmp_path}/mine.py:Mine", "x": 1}
    run = resolve_run({"budget": {"axis": "updates", "amount": 8}, "objective": objective})
    tables = plugins.portable(run)
    assert tables["objective"] == {"name": "Mine", "x": 1}
    assert tables["task"] == {"name": "arithmetic"}
    assert str(tmp_path) not in str(tables)


def test_the_hash_covers_what_runs_beside_a_program_of_a_folder(monkeypatch, tmp_path):
    from harness import sources

    child = tmp_path / "tasks" / "child"
    child.mkdir(parents=True)
    for name in ("__main__", "driver", "wire"):
        (child / f"{name}.py").write_text(f"# {name}\n")
    mine = tmp_path / "tasks" / "mine.py"
    mine.write_text("from tasks.child.wire import x\n")
    monkeypatch.setattr(sources, "__file__", str(tmp_path / "harness/sources.py"))
    before = sources.hash_sources(mine)
    (child / "driver.py").write_text("# other\n")
    assert sources.hash_sources(mine) != before


GSM = {"budget": {"axis": "updates", "amount": 8}, "policy": {"name": "some/model"}}


def test_a_runs_identity_is_the_data_and_not_their_place(tmp_path):
    import shutil

    import tasks
    from harness.engine.identity import identity

    sample = Path(tasks.__file__).parent / "samples" / "gsm8k"
    shutil.copytree(sample, tmp_path / "one")
    shutil.copytree(sample, tmp_path / "two")
    one, two = (
        identity(resolve_run({**GSM, "task": {"name": "gsm8k", "source": f"{tmp_path}/{n}"}})) for n in ("one", "two")
    )
    assert one == two
    assert str(tmp_path) not in str(one)
    lines = (tmp_path / "two" / "test.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "two" / "test.jsonl").write_text("".join(lines[1:]))
    other = identity(resolve_run({**GSM, "task": {"name": "gsm8k", "source": f"{tmp_path}/two"}}))
    assert other["sources"]["problems"] != one["sources"]["problems"]


@pytest.mark.parametrize(
    ("task", "cause"),
    [
        ({"name": "gsm8k", "source": "nowhere"}, "no such file or folder"),
        ({"name": "math", "test": "{tmp}/test.jsonl"}, "no such file"),
        ({"name": "programs"}, "give source="),
        ({"name": "gsm8k", "sauce": "x"}, "unknown setting 'sauce'"),
    ],
)
def test_data_that_cannot_be_had_are_refused_before_anything_is_computed(tmp_path, task, cause):
    task = {key: value.replace("{tmp}", str(tmp_path)) for key, value in task.items()}
    with pytest.raises(UserError, match=cause) as refusal:
        check_run(resolve_run({**GSM, "task": task}))
    assert "\n" not in str(refusal.value)
