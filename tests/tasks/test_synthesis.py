"""Program synthesis: what is asked, what passes, and what a hostile program gets."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks
from tasks.base import Example
from tasks.program_families import LEVELS, settled, working
from tasks.sandbox import Outcome
from tasks.synthesis import Synthesis

TASK = Synthesis()
INPUTS = [1, 2, 4, 0, 7, 11, 20, 25, 30]
LINE = Example(
    "test-0",
    "test",
    "medium",
    {
        "prompt": "1:5 2:7 4:11 f=",
        "program": "2*x+3",
        "working": "2/1 4/2 7-2*2=3 11-2*4=3",
        "inputs": INPUTS,
        "outputs": [2 * x + 3 for x in INPUTS],
    },
)
PARITY = Example("test-1", "test", "hard", {"inputs": [0, 1, 2, 3], "outputs": [0, 1, 0, 1]})
TABLE = "{1:5,2:7,4:11}"


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("2*x+3", "pass"),
        ("3+x+x", "pass"),  # any equivalent program
        (" 2*x+3 \n", "pass"),
        ("#2/1 4/2 7-2*2=3\n2*x+3", "pass"),
        ("#a\n#b\n2*x+3", "pass"),
        ("2*x+3 # twice and three", "pass"),
        ("(lambda y: 2*y+3)(x)", "pass"),
        ("def f(x): return 2*x+3", "pass"),
        ("def f(x):\n    y = 2*x\n    return y+3", "pass"),
        ("#why\ndef f(n):\n return n+n+3\n", "pass"),
        ("2*x+4", "wrong"),
        ("2*x+3.0", "wrong"),  # equal, but no int
        ("float(2*x+3)", "wrong"),
        ("str(2*x+3)", "wrong"),
        ("[2*x+3]", "wrong"),
        ("2*x+3,", "wrong"),
        ("None", "wrong"),
        (f"{TABLE}.get(x, 0)", "wrong"),
        (f"{TABLE}[x]", "error"),
        ("def f(x): return print(2*x+3)", "wrong"),
        ("def f(x): pass", "wrong"),
        ("", "format"),
        (" \n ", "format"),
        ("#2*x+3", "format"),
        ("#a\n#b\n", "format"),
        ("2*x+", "format"),
        ("2*x+3\n2*x+4", "format"),  # one answer
        ("2*x+3;2*x+4", "format"),
        ("2*x+3\n#done", "format"),
        ("return 2*x+3", "format"),
        ("y=2*x+3", "format"),
        ("f=2*x+3", "format"),
        ("1:5 2:7 4:11 f=", "format"),
        ("2*x+3)", "format"),
        ("2*x+3\\", "format"),
        ("2*x+3\x00", "format"),
        ("2*x+\ud800", "format"),
        ("\uff12*x+3", "format"),
        ("\u0662*x+\u0663", "format"),
        ("\t2*x+3", "format"),
        ("(" * 150 + "2*x+3" + ")" * 150 + " " * 100, "format"),  # too long
        ("def f(x): return 2*x+3" + "\n" * 400, "format"),
        ("x+y", "error"),
        ("1//(x-20)", "error"),  # raises on a hidden input alone
        ("f(x)", "error"),
        ("exit(0)", "error"),
        ("quit()", "error"),
        ("open('/etc/passwd').read()", "error"),
        ("def f(): return 5", "error"),
        ("def f(x): raise TimeoutError", "error"),
        ("def f(x): raise SyntaxError", "error"),
        ("def f(x): raise KeyboardInterrupt", "error"),
        ("def f(x):\n class A:\n  def __eq__(s,o): return True\n return A()", "error"),
        ("9**9**9", "memory"),
        ("[0]*10**10", "memory"),
        ("'a'*10**10", "memory"),
        ("def f(x): return (yield x)", "unsupported"),
        ("def f(x):\n import heapq\n return 2*x+3", "unsupported"),
    ],
)
def test_verdict(response, verdict):
    score = TASK.score(LINE, response)
    assert score.verdict == verdict, score
    assert score.value == (verdict == "pass")


def test_a_bool_is_no_int():
    assert TASK.score(PARITY, "x%2").verdict == "pass"
    assert TASK.score(PARITY, "x%2==1").verdict == "wrong"


@pytest.mark.parametrize(
    "response",
    [
        "[[[[0]*100]*100]*100]*1000",  # a thousand million entries once written out
        "10**5000",
        "def f(x):\n l=0\n for i in range(60): l=(l,l)\n return l",
        "def f(x):\n l=[]\n for i in range(9000): l=[l]\n return l",
        "def f(x):\n l=[]\n l.append(l)\n return l",
        "print('a'*10**6)",
        "-" * 399 + "1",
        "(" * 199 + "x" + ")" * 199,
        "[x for x in [x for x in [0]*999]*999]",
        "def f(x): return f",
        "'a'*10**6",
    ],
)
def test_a_bomb_scores_0_at_once(response):
    start = time.monotonic()
    score = TASK.score(LINE, response)
    assert score.value == 0
    assert len(score.reason) < 300
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "response",
    [
        "sum(range(10**12))",
        "def f(x):\n while True: pass",
        "def f(x):\n while True:\n  try:\n   while True: pass\n  except BaseException: pass",
    ],
)
def test_an_endless_program_times_out_and_the_next_one_runs(response):
    task = Synthesis(timeout_seconds=0.1)
    scores = task.score_many([(LINE, response), (LINE, "2*x+3")])
    assert [score.verdict for score in scores] == ["timeout", "pass"]


def test_one_hostile_response_among_64_costs_no_other_its_verdict():
    responses = ["2*x+3"] * 20 + ["[0]*10**10"] + ["2*x+4", "2*x+", "3+2*x"] * 14 + ["2*x+3"]
    verdicts = [score.verdict for score in TASK.score_many([(LINE, r) for r in responses])]
    assert verdicts == ["pass"] * 20 + ["memory"] + ["wrong", "format", "pass"] * 14 + ["pass"]


def test_a_program_is_run_once_for_equal_inputs(monkeypatch):
    runs = []

    def count(code, calls, limits):
        runs.append((code, tuple(calls)))
        return Outcome(None, (5, 7, 11, 0, 0, 0, 0, 0, 0))

    monkeypatch.setattr("tasks.synthesis.run_program", count)
    shifted = Example("o", "test", "", {**LINE.data, "inputs": [x + 1 for x in INPUTS]})
    scores = TASK.score_many([(LINE, "x"), (LINE, "x"), (shifted, "x"), (LINE, "#why\nx"), (LINE, "x+1")])
    assert len(scores) == 5
    assert len(runs) == len(set(runs)) == 3


def test_infra_is_nan_and_never_0(monkeypatch):
    monkeypatch.setattr("tasks.synthesis.run_program", lambda *_: Outcome("infra", reason="no worker"))
    score = TASK.score(LINE, "2*x+3")
    assert score.verdict == "infra"
    assert score.value != score.value


def test_the_reason_names_the_first_input_that_is_wrong():
    assert TASK.score(LINE, "2*x+4").reason == "visible f(1) is 5, got 6"
    hidden = TASK.score(LINE, "2*x+3 if x<7 else 0")
    assert hidden.reason == "hidden f(7) is 17, got 0"
    assert TASK.score(LINE, "2*x+3 if x else 0").reason == "hidden f(0) is 3, got 0"  # the first hidden one


def test_demonstrations_of_the_example():
    careful, bare = TASK.demonstrations(LINE)
    assert (careful.response, careful.style) == ("#2/1 4/2 7-2*2=3 11-2*4=3\n2*x+3", "careful")
    assert (bare.response, bare.style) == ("2*x+3", "bare")


@pytest.mark.parametrize("level", LEVELS)
def test_every_step_of_the_working_is_true(level):
    for program, visible in settled(level, range(6), 3):
        steps = working(program, visible).split(" ")
        for equation in steps[2:]:
            left, right = equation.split("=")
            value = eval(left)
            assert value == int(right), (program.text, visible, equation)
        for step, (a, b) in zip(steps[:2], itertools.pairwise(visible), strict=True):
            assert step == f"{program(b) - program(a)}/{b - a}"


@pytest.mark.parametrize("level", LEVELS)
def test_the_text_of_a_program_is_its_function(level):
    for program in {program for program, _ in settled(level, range(13), 3)}:
        code = compile(program.text, "text", "eval")
        assert [eval(code, {"x": x}) for x in range(31)] == [program(x) for x in range(31)]


def test_visible_pairs_single_out_the_function():
    everything = [pair for level in LEVELS for pair in settled(level, range(5), 3)]
    programs = {program.text: program for program, _ in everything}
    for program, visible in everything:
        shown = [program(x) for x in visible]
        assert [text for text, rival in programs.items() if [rival(x) for x in visible] == shown] == [program.text]
        assert shown != list(visible)
        assert len(set(shown)) > 1


def test_ambiguous_inputs_are_left_out():
    found = {(program.text, visible) for program, visible in settled("hard", range(13), 3)}
    assert ("max(x,3)", (1, 2, 7)) in found
    assert ("max(x,3)", (4, 5, 7)) not in found  # the identity fits
    assert ("max(x,3)", (0, 1, 2)) not in found  # a constant fits
    assert ("abs(x-9)", (1, 2, 7)) not in found  # 9-x fits
    assert ("x%9", (1, 2, 8)) not in found


def test_hidden_inputs_are_not_in_the_prompt():
    for example in TASK.examples("validation"):
        inputs = example.data["inputs"]
        assert len(inputs) == len(set(inputs)) == 9
        assert example.data["prompt"].startswith(" ".join(f"{x}:" for x in inputs[:1]))
        assert not {f"{x}" for x in inputs[3:]} & {pair.split(":")[0] for pair in example.data["prompt"].split()}


def test_levels_are_even_and_responses_fit_48_characters():
    for split, low in (("train", 0.27), ("test", 0.27)):
        examples = TASK.examples(split)
        for level in LEVELS:
            assert low < sum(e.difficulty == level for e in examples) / len(examples) < 0.40, (split, level)
        assert max(len(d.response) for e in examples for d in TASK.demonstrations(e)) <= 48


def test_a_level_can_be_asked_for_alone():
    task = tasks.make("synthesis", levels=["hard"], test_size=40)
    assert {e.difficulty for e in task.examples("test")} == {"hard"}


@pytest.mark.parametrize(
    "settings",
    [
        {"levels": ()},
        {"levels": ("trivial",)},
        {"num_hidden": 0},
        {"num_hidden": 29},
        {"timeout_seconds": 0.0},
        {"memory_bytes": 10},
        {"train_size": 0},
    ],
)
def test_settings_out_of_range_are_refused_with_an_example(settings):
    with pytest.raises(ValueError, match=r"expected .*e\.g\.") as refusal:
        Synthesis(**settings)
    assert next(iter(settings)) in str(refusal.value)


@given(st.text(alphabet="x0123456789+-*/%()<>=., \n#'[]{}:;\\", max_size=30))
def test_any_text_gets_a_verdict_without_an_exception(response):
    score = Synthesis(timeout_seconds=0.1).score(LINE, response)
    assert score.verdict in {"pass", "wrong", "format", "error", "memory", "timeout", "unsupported"}


def test_a_program_gets_the_limits_of_the_settings(monkeypatch):
    given = []
    keep = lambda code, calls, limits: given.append(limits) or Outcome("error")  # noqa: E731
    monkeypatch.setattr("tasks.synthesis.run_program", keep)
    Synthesis(timeout_seconds=0.3, memory_bytes=5_000_000).score(LINE, "x")
    assert [(limits.seconds, limits.memory_bytes) for limits in given] == [(0.3, 5_000_000)]
