"""What tasks of drawn problems share: sizes, and a full wording of the problem beside the terse one."""

import dataclasses

import pytest

import tasks
from tasks import contract
from tasks.arithmetic import Arithmetic
from tasks.drawn import DrawnTask, WordedTask, starts_after

WORDED = ("arithmetic", "countdown", "synthesis")


def test_every_task_with_two_wordings_is_tested_here():
    assert [name for name in tasks.names() if issubclass(tasks.classes()[name], WordedTask)] == [*WORDED]


@pytest.mark.parametrize("name", WORDED)
@pytest.mark.parametrize("promise", contract.CHECKS, ids=lambda promise: promise.__name__)
def test_problems_in_words_keep_every_promise(name, promise):
    promise(tasks.make(name, **{"wording": "full", "train_size": 64, "validation_size": 64, "test_size": 64}))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("arithmetic", ["What is ", "End with the character # and the integer"]),
        ("countdown", ["Make ", " from the numbers ", "each used exactly once", "End with the character #"]),
        ("synthesis", ["Write a Python function f of one int with f(", "one expression in x"]),
    ],
)
def test_words_hold_the_problem_the_rules_and_how_to_answer(name, parts):
    terse, full = (tasks.make(name, **{"wording": wording}) for wording in ("terse", "full"))
    example = full.examples("test")[0]
    assert terse.examples("test")[0].data == example.data
    text = full.prompt(example)
    assert all(part in text for part in parts), text
    assert text.endswith("\n")
    assert terse.prompt(example) == example.data["prompt"]
    assert terse.fingerprint() != full.fingerprint()


def test_countdown_in_words_states_the_rule_that_is_set():
    task = tasks.make("countdown", **{"wording": "full", "use_all": False})
    example = task.examples("test")[0]
    first, *_, last = example.data["numbers"]
    assert f"Make {example.data['target']} from the numbers {first}, " in task.prompt(example)
    assert f" and {last}, each used at most once" in task.prompt(example)


def test_synthesis_in_words_shows_the_visible_inputs_alone():
    task = tasks.make("synthesis", **{"wording": "full"})
    for example in task.examples("test")[:50]:
        inputs, outputs = example.data["inputs"], example.data["outputs"]
        text = task.prompt(example)
        assert [f"f({x}) = {y}" in text for x, y in zip(inputs[:3], outputs[:3], strict=True)] == [True] * 3
        assert not any(f"f({x}) = " in text for x in inputs[3:])


def test_an_unknown_wording_is_refused():
    with pytest.raises(ValueError, match="'wording' is 'loose', expected one of terse, full"):
        tasks.make("arithmetic", **{"wording": "loose"})


@pytest.mark.parametrize("name", [name for name in tasks.names() if issubclass(tasks.classes()[name], DrawnTask)])
def test_sizes_below_one_are_refused(name):
    for split in ("train", "validation", "test"):
        with pytest.raises(ValueError, match=f"'{split}_size' is 0, expected an int >= 1"):
            tasks.make(name, **{f"{split}_size": 0})


def test_examples_are_drawn_once():
    task = tasks.make("arithmetic", **{"seed": 5, "train_size": 30})
    assert task.examples("train") is dataclasses.replace(task).examples("train")


@pytest.mark.parametrize(("response", "starts"), [("", [0]), ("ab", [0]), ("a;b", [0, 2]), (";;", [0, 1, 2])])
def test_starts_of_steps(response, starts):
    assert starts_after(";", response) == starts


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_fingerprint_holds_problems_of_every_split(split):
    class Other(Arithmetic):
        def prompt(self, example):
            return super().prompt(example) + ("?" if example.split == split else "")

    assert Other().fingerprint() != Arithmetic().fingerprint()
