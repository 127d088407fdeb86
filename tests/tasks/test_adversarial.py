"""A corpus of hostile responses: not one point, no stopped pool, nothing left behind."""

import math
import os
import pathlib
import re
import signal
import sys

import pytest

import tasks

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hostile import ANSWERS, PROGRAMS

pytestmark = pytest.mark.timeout(600)

QUICK = {"timeout_seconds": 0.4, "memory_bytes": 100_000_000}
CODE = {
    "mbpp": {"source": "sample", **QUICK},
    "humaneval": {"source": "sample", **QUICK},
    "programs": {"source": "sample", **QUICK},
}
MATH = {
    "arithmetic": {},
    "countdown": {},
    "gsm8k": {"source": "sample"},
    "gsm8k boxed": {"source": "sample", "form": "boxed"},
    "math": {"source": "sample"},
}
EVERY_PROGRAM = [code for kind in PROGRAMS.values() for code in kind]
EVERY_ANSWER = [text for kind in ANSWERS.values() for text in kind]


def make(name, settings):
    return tasks.make(name.split()[0], **settings)


def descendants():
    """Return the commands of the processes that this one has, but for the sandbox's own servers and interpreters."""
    parents, commands = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                commands[int(entry.name)] = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    own = {pid: commands[pid] for pid in found - {os.getpid()}}
    return {pid: c for pid, c in own.items() if b"sandbox/child" not in c and b"monty" not in c}


def test_the_corpus_is_large_and_holds_nothing_twice():
    assert len(EVERY_PROGRAM) + len(EVERY_ANSWER) >= 200
    assert len(set(EVERY_PROGRAM)) == len(EVERY_PROGRAM)
    assert len(set(EVERY_ANSWER)) == len(EVERY_ANSWER)


def entry(task, example):
    """Return the name that a right program of an example defines."""
    found = re.search(r"def (\w+)\(", task.gold(example) + task.prompt(example))
    return found[1] if found else "f"


@pytest.mark.parametrize("fence", [False, True], ids=["plain", "fenced"])
@pytest.mark.parametrize("name", CODE)
def test_hostile_programs_earn_nothing_and_leave_nothing(name, fence):
    task = make(name, CODE[name])
    example = task.examples("test")[0]
    renamed = [re.sub(r"\bf(?=\()", entry(task, example), code) for code in EVERY_PROGRAM]
    responses = [f"```python\n{code}\n```" for code in renamed] if fence else renamed
    task.score(example, task.gold(example))
    before, alarm = descendants(), signal.getitimer(signal.ITIMER_REAL)[0]
    handlers = [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD)]
    scores = task.score_many([(example, response) for response in responses])
    paid = [
        (code, score)
        for code, score in zip(EVERY_PROGRAM, scores, strict=True)
        if score.value != 0 or score.verdict in ("pass", "infra")
    ]
    assert not paid
    assert not descendants().keys() - before.keys()
    assert not os.path.lexists("/tmp/evengrad-hostile")
    assert signal.getitimer(signal.ITIMER_REAL)[0] <= alarm
    assert handlers == [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD)]
    assert [task.score(e, task.gold(e)).verdict for e in task.examples("test")] == ["pass"] * len(task.examples("test"))


def test_hostile_programs_earn_nothing_in_synthesis():
    task = tasks.make("synthesis", timeout_seconds=0.1)
    example = task.examples("test")[0]
    for score in task.score_many([(example, code) for code in EVERY_PROGRAM]):
        assert score.value == 0, score
    assert task.score(example, task.gold(example)).verdict == "pass"


def rewards(task, texts):
    """Return what texts earn, with the right answer of each example in the place of GOLD."""
    found = []
    for example in task.examples("test")[:6]:
        gold = task.gold(example)
        shown = task.demonstrations(example)[-1].response.splitlines()[-1]
        bare = re.search(r"(?:####|#|\\boxed\{)\s*(.*?)\}?$", shown)[1]
        given = [text.replace("GOLD", bare) for text in texts]
        scores = task.score_many([(example, text) for text in given])
        found += [(text, score) for text, score in zip(given, scores, strict=True)]
        assert task.score(example, gold).verdict == "pass"
    return found


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("name", [*MATH, *(n for n in tasks.names() if n.startswith("rg_"))])
def test_hostile_answers_earn_nothing(name, kind):
    settings = MATH.get(name) if name in MATH else tasks.classes()[name].sample
    task = make(name, settings)
    found = rewards(task, ANSWERS[kind])
    assert not [(text[:80], score) for text, score in found if score.value != 0]
    assert all("\n" not in score.reason for _, score in found)


@pytest.mark.parametrize("name", [*CODE, *MATH])
def test_the_prompt_and_other_answers_earn_nothing(name):
    task = make(name, (CODE | MATH)[name])
    examples = task.examples("test")
    prompts = [(example, text) for example in examples for text in (task.prompt(example), task.prompt(example) * 2)]
    others = [(example, task.gold(examples[i - 1])) for i, example in enumerate(examples)]
    assert [score.value for score in task.score_many(prompts + others[:6])] == [0.0] * (len(prompts) + len(others[:6]))


def test_one_hostile_item_costs_its_own_verdict_alone():
    task = make("mbpp", CODE["mbpp"])
    examples = list(task.examples("train"))
    pairs = [(example, task.gold(example)) for example in examples * 6]
    pairs[17] = (pairs[17][0], "while True: pass")
    verdicts = [score.verdict for score in task.score_many(pairs)]
    assert verdicts == ["pass"] * 17 + ["timeout"] + ["pass"] * (len(pairs) - 18)
    assert not any(math.isnan(score.value) for score in task.score_many(pairs))
