"""Finding tasks by presence, and errors that say how to fix a setting."""

import dataclasses
import sys

import pytest

import tasks
from tasks.base import Task
from tasks.settings import build

TASK = """
from dataclasses import dataclass
from tasks.arithmetic import Arithmetic

@dataclass(frozen=True)
class {name}(Arithmetic):
    bonus: float = 0.5
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that counts as part of the package."""
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("tasks.dropped"):
            del sys.modules[name]


def test_names_are_the_files_that_hold_a_task():
    assert {"arithmetic", "synthesis"} <= set(tasks.names())
    assert not {"base", "splits", "sandbox", "contract", "settings", "program_families"} & set(tasks.names())
    assert tasks.names() == sorted(tasks.names())
    assert all(isinstance(tasks.make(name), Task) for name in tasks.names())


def test_a_dropped_file_is_registered(folder):
    (folder / "dropped_one.py").write_text(TASK.format(name="Dropped"))
    assert "dropped_one" in tasks.names()
    assert dataclasses.asdict(tasks.make("dropped_one", bonus=1))["bonus"] == 1.0


def test_a_file_without_a_task_is_no_task(folder):
    (folder / "dropped_none.py").write_text("from tasks.arithmetic import Arithmetic\n")
    assert "dropped_none" not in tasks.names()


def test_two_tasks_in_a_file_are_refused(folder):
    (folder / "dropped_two.py").write_text(TASK.format(name="One") + TASK.format(name="Two"))
    with pytest.raises(ValueError, match=r"dropped_two defines 2 tasks \(One, Two\), expected one"):
        tasks.names()


@pytest.mark.parametrize(("text", "cause"), [("1/0", "ZeroDivisionError"), ("import nosuch", "ModuleNotFoundError")])
def test_a_file_that_fails_is_named_with_its_cause(folder, text, cause):
    (folder / "dropped_bad.py").write_text(text)
    with pytest.raises(ValueError, match=rf"dropped_bad\.py cannot be imported \({cause}"):
        tasks.make("arithmetic")


def test_an_unknown_name_lists_near_matches_and_all():
    with pytest.raises(ValueError, match="unknown task 'arithmetics', did you mean 'arithmetic'") as refusal:
        tasks.make("arithmetics")
    assert all(name in str(refusal.value) for name in tasks.names())


def test_an_unknown_setting_lists_near_matches_and_all():
    with pytest.raises(ValueError, match="'operand' of Arithmetic, did you mean 'operands'") as refusal:
        tasks.make("arithmetic", operand=[2])
    assert all(field.name in str(refusal.value) for field in dataclasses.fields(tasks.make("arithmetic")))


def test_a_list_is_taken_for_a_tuple_and_an_int_for_a_float():
    assert tasks.make("arithmetic", operands=[2, 3]) == tasks.make("arithmetic", operands=(2, 3))
    assert type(dataclasses.asdict(tasks.make("synthesis", timeout_seconds=1))["timeout_seconds"]) is float


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("arithmetic", {"max_operand": "99"}, "of type int"),
        ("arithmetic", {"max_operand": 99.0}, "of type int"),
        ("arithmetic", {"max_operand": True}, "of type int"),
        ("arithmetic", {"seed": None}, "of type int"),
        ("arithmetic", {"operands": 3}, "a list of int"),
        ("arithmetic", {"operands": [2, "3"]}, "of type int"),
        ("arithmetic", {"operands": []}, "ints in"),
        ("arithmetic", {"test_size": -1}, "an int >= 1"),
        ("synthesis", {"levels": "easy"}, "a list of str"),
        ("synthesis", {"timeout_seconds": float("nan")}, "a finite float"),
        ("synthesis", {"timeout_seconds": float("inf")}, "a finite float"),
        ("synthesis", {"timeout_seconds": -1}, "seconds > 0"),
        ("synthesis", {"timeout_seconds": True}, "a finite float"),
        ("synthesis", {"timeout_seconds": "0.3"}, "a finite float"),
        ("mbpp", {"timeout_seconds": 0}, "seconds > 0"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_expected(name, settings, expected):
    with pytest.raises(ValueError, match=f"expected {expected}") as refusal:
        tasks.make(name, **settings)
    (setting, given), *_ = settings.items()
    assert repr(setting) in str(refusal.value)
    assert "3" in str(refusal.value) or repr(given) in str(refusal.value) or repr(tuple(given)) in str(refusal.value)


def test_a_class_that_is_no_dataclass_is_refused():
    with pytest.raises(ValueError, match="decorate it with @dataclass"):
        build(Task, {})


def test_an_abstract_task_is_no_task(folder):
    text = TASK.format(name="Whole") + "from tasks.base import Task\nclass Base(Task):\n    pass\n"
    (folder / "dropped_abstract.py").write_text(text)
    assert tasks.classes()["dropped_abstract"].__name__ == "Whole"


def test_a_name_that_another_file_has_is_refused(folder):
    text = "from tasks.arithmetic import Arithmetic\nTASKS = {'arithmetic': Arithmetic}"
    (folder / "dropped_again.py").write_text(text)
    with pytest.raises(ValueError, match=r"tasks/dropped_again\.py defines 'arithmetic', which another file has"):
        tasks.names()


def test_a_name_that_is_near_to_none_has_no_hint():
    with pytest.raises(ValueError, match="unknown task 'qqq'; tasks: "):
        tasks.make("qqq")
    with pytest.raises(ValueError, match="unknown setting 'qqq' of Arithmetic; settings: "):
        tasks.make("arithmetic", qqq=1)
