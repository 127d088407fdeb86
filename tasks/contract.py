"""What every task must keep: one battery for the tests of this repository and for tasks from outside it.

Each check takes a task, returns None and raises AssertionError with the first counterexample.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, get_args, get_type_hints

from tasks.base import SPLITS, VERDICTS, Example, Score, Task, step_fault

__all__ = ["CHECKS", "check", "snapshot"]

_SAMPLE = 64
_LAGS = 8
_ALPHABET = frozenset(string.printable[:95] + "\n")
_LAZY_RESPONSES = ("", " ", "\n", "#", "0", "1", "-1", "x", "None", "True", "answer", "?", "0\n", "((((", "#\n#\n")
_HOSTILE_RESPONSES = (
    *("\x00", "\ud800", "\u0661\u0662", "#\u0662", "9" * 10_000, "#" + "9" * 10_000, "(" * 5_000, "-" * 5_000 + "1"),
    *("exit(0)", "raise SystemExit", "while True: pass", "[[[[0]*100]*100]*100]*1000"),
)


def _sample(task: Task, split: str, size: int | None = _SAMPLE) -> Sequence[Example]:
    found = task.examples(cast(Any, split))
    _require(isinstance(found, Sequence), "examples must return a list or a tuple", split, type(found).__name__)
    return found[:size]


def _scores(task: Task, pairs: Sequence[tuple[Example, str]]) -> list[Score]:
    scores = task.score_many(iter(pairs))
    _require(len(scores) == len(pairs), "score_many must return one score a pair", len(scores), len(pairs))
    return scores


def _all_samples(task: Task) -> list[Example]:
    return [example for split in SPLITS for example in _sample(task, split)]


def _require(condition: bool, claim: str, *details: object) -> None:
    if not condition:
        raise AssertionError(f"{claim}: {', '.join(ascii(detail) for detail in details)}")


def check_examples(task: Task) -> None:
    """Examples are plain data, and the same ones in the same order when the task is built again."""
    for example in _all_samples(task):
        texts = isinstance(example.id, str) and isinstance(example.difficulty, str)
        _require(texts, "id and difficulty must be text", example.id, example.difficulty)
        data = dict(example.data)
        back = json.loads(json.dumps(data, default=repr, skipkeys=True), parse_constant=repr)
        _require(back == data, "data must be plain JSON values (lists, no tuples; text keys)", example.id, data)
    same = snapshot(dataclasses.replace(cast(Any, task))) == snapshot(task)
    _require(same, "a task built again must have the same examples and fingerprint", type(task).__name__)


def check_gold(task: Task) -> None:
    """The gold response passes with 1."""
    for example in _all_samples(task):
        score = task.score(example, task.gold(example))
        _require(score.value == 1, "a gold response must score 1", task.prompt(example), task.gold(example), score)


def check_demonstrations(task: Task) -> None:
    """Every demonstration passes with 1, there is at least one, careful ones come first."""
    for example in _all_samples(task):
        shown = task.demonstrations(example)
        styles = [demonstration.style for demonstration in shown]
        _require(bool(shown) and styles == sorted(styles, reverse=True), "careful ones come first", example.id, styles)
        scores = _scores(task, [(example, demonstration.response) for demonstration in shown])
        for demonstration, score in zip(shown, scores, strict=True):
            _require(score.value == 1, "a demonstration must score 1", task.prompt(example), demonstration, score)


def check_scores(task: Task) -> None:
    """Values lie in [0, 1], are NaN for infra alone and 1 for pass alone, whatever a policy writes."""
    for example in _all_samples(task)[:: _SAMPLE // 2]:
        for response in (*_LAZY_RESPONSES, *_HOSTILE_RESPONSES, task.gold(example)):
            score = task.score(example, response)
            _require(score.verdict in VERDICTS, "unknown verdict", response[:60], score)
            _require(isinstance(score.value, float), "a value must be a float", response[:60], score)
            _require(math.isnan(score.value) == (score.verdict == "infra"), "NaN means infra", response[:60], score)
            inside = math.isnan(score.value) or 0 <= score.value <= 1
            _require(inside, "a value must lie in [0, 1]", response[:60], score)
            _require((score.value == 1) == (score.verdict == "pass"), "1 means pass", response[:60], score)
            _require("\n" not in score.reason, "a reason is one line", response[:60], score)
        for response in _HOSTILE_RESPONSES:
            _require(task.score(example, response).value == 0, "a hostile response must score 0", response[:60])


def check_null_policy(task: Task) -> None:
    """Saying nothing, a constant or the prompt earns exactly 0; a fixed answer in the right form next to nothing."""
    for split in SPLITS:
        examples = _sample(task, split)
        for response in _LAZY_RESPONSES:
            scores = _scores(task, [(example, response) for example in examples])
            paid = [task.prompt(e) for e, score in zip(examples, scores, strict=True) if score.value != 0]
            _require(not paid, "a constant response must score 0", response, paid[:3])
        echoes = [(e, text) for e in examples for text in (task.prompt(e), f"{task.prompt(e)}{task.prompt(e)}")]
        paid = [e.id for (e, _), score in zip(echoes, _scores(task, echoes), strict=True) if score.value != 0]
        _require(not paid, "the prompt must not be its own answer", paid[:3])
        fixed = _scores(task, [(example, task.gold(examples[0])) for example in examples[1:]])
        right = sum(score.value == 1 for score in fixed)
        _require(right <= 0.1 * len(fixed) + 1, "one answer fits too many problems", examples[:1], right)


def check_splits(task: Task) -> None:
    """No prompt and no id occurs twice, within a split or across splits, and every split holds something."""
    owner: dict[str, str] = {}
    ids: set[str] = set()
    for split in SPLITS:
        examples = _sample(task, split, None)
        _require(len(examples) > 0, "a split is empty", split)
        for example in examples:
            prompt = task.prompt(example)
            _require(example.split == split, "an example names another split", example.id, split)
            _require(prompt not in owner, "a prompt occurs twice", prompt, owner.get(prompt), split)
            _require(example.id not in ids, "an id occurs twice", example.id)
            owner[prompt] = split
            ids.add(example.id)


def check_unknown_split(task: Task) -> None:
    """An unknown split is refused."""
    try:
        task.examples(cast(Any, "holdout"))
    except ValueError:
        return
    raise AssertionError("examples('holdout') must raise ValueError")


def check_text(task: Task) -> None:
    """Prompts and demonstrations use printable ASCII and newline alone, so that a character tokenizer has them all."""
    for example in _all_samples(task):
        for text in (task.prompt(example), *(d.response for d in task.demonstrations(example))):
            _require(set(text) <= _ALPHABET, "only printable ASCII and newline", text)


def check_score_many(task: Task) -> None:
    """``score_many`` gives what ``score`` gives, one a pair, in order."""
    examples = _sample(task, "test")
    pairs: list[tuple[Example, str]] = []
    for position, example in enumerate(examples):
        other = examples[position - 1]
        pairs += [(example, task.gold(example)), (example, ""), (example, task.gold(other)), (other, task.gold(other))]
    for (example, response), score in zip(pairs, _scores(task, pairs), strict=True):
        alone = task.score(example, response)
        _require(score == alone, "score_many differs from score", example.id, response, score, alone)
    _require(task.score_many([]) == [], "no pairs, no scores")


def check_answers(task: Task) -> None:
    """Right responses to an example vote together, and saying nothing is no vote."""
    for response in _LAZY_RESPONSES[:3]:
        _require(task.answer(response) is None, "a response without an answer must not vote", response)
    for example in _all_samples(task):
        votes = {task.answer(text) for text in (task.gold(example), *_shown(task, example))}
        _require(len(votes) == 1, "right responses must give one answer", example.id, votes)
    for response in _HOSTILE_RESPONSES:
        vote = task.answer(response)
        _require(vote is None or isinstance(vote, str), "a vote is text or None", response[:60], vote)


def check_step_starts(task: Task) -> None:
    """Steps begin at rising offsets of the response, the first at 0, the same when asked again; None names none."""
    written = [text for example in _all_samples(task) for text in (task.gold(example), *_shown(task, example))]
    for response in (*_LAZY_RESPONSES, *_HOSTILE_RESPONSES, *written):
        starts = task.step_starts(response)
        fault = step_fault(starts, response)
        _require(fault is None, f"step_starts must return {fault}", response[:60], starts)
        _require(starts == task.step_starts(response), "steps must be the same when asked again", response[:60])
        first = not response or starts is None or list(starts[:1]) == [0]
        _require(first, "the first step must begin at 0", response[:60], starts)


def _shown(task: Task, example: Example) -> list[str]:
    return [demonstration.response for demonstration in task.demonstrations(example)]


def check_seeds(task: Task) -> None:
    """Items of a seed are not those of the next seed, moved by a few places. Holds of itself without a seed.

    Prompts are compared place by place at each lag: two seeds of a small space of problems share many prompts by
    right, but not at one lag.
    """
    if not dataclasses.is_dataclass(task) or "seed" not in {field.name for field in dataclasses.fields(task)}:
        return
    other = dataclasses.replace(task, seed=cast(Any, task).seed + 1)
    first, second = _sample(task, "test"), _sample(other, "test")
    ours, theirs = [task.prompt(e) for e in first], [task.prompt(e) for e in second]
    for lag in range(-_LAGS, _LAGS + 1):
        pairs = list(zip(ours[max(0, lag) :], theirs[max(0, -lag) :], strict=False))
        same = [prompt for prompt, twin in pairs if prompt == twin]
        _require(len(same) <= max(1, len(pairs) // 4), "neighbouring seeds share items", f"lag {lag}", same[:3])


def check_fingerprint(task: Task) -> None:
    """The fingerprint is text, repeatable, and changes with every setting of one value that says more than a place."""
    if not dataclasses.is_dataclass(task) or not cast(Any, task).__dataclass_params__.frozen:
        raise AssertionError(f"{type(task).__name__} must be a frozen dataclass")
    _require(isinstance(task.fingerprint(), str), "a fingerprint must be text", task.fingerprint())
    _require(dataclasses.replace(task).fingerprint() == task.fingerprint(), "a fingerprint must be repeatable")
    for field in dataclasses.fields(task):
        for other in _with_other(task, field.name):
            _require(other.fingerprint() != task.fingerprint(), "a setting is not in the fingerprint", field.name)


def _with_other(task: Task, setting: str) -> Iterator[Task]:
    """Yield the task with another value of a setting, nothing where no other value is known to be valid."""
    value = getattr(task, setting)
    kinds: dict[type, Callable[[Any], Sequence[object]]] = {
        bool: lambda v: (not v,),
        int: lambda v: (v + 1, v - 1),
        float: lambda v: (v / 2 or 0.5, v + 1),
        str: lambda v: (*get_args(get_type_hints(type(task))[setting]), f"{v}x"),
    }
    tried = kinds[type(value)](value) if type(value) in kinds and setting not in task.places else ()
    for other in (other for other in tried if type(other) is type(value) and other != value):
        with contextlib.suppress(ArithmeticError, LookupError, OSError, TypeError, ValueError):  # no valid value
            made = dataclasses.replace(cast(Any, task), **{setting: other})
            made.fingerprint()
            yield made
            return


def snapshot(task: Task) -> str:
    """Return a hash of samples and fingerprint; equal in every process and on every machine."""
    contents = [(example, task.prompt(example), task.gold(example)) for example in _all_samples(task)]
    return hashlib.sha256(repr((task.fingerprint(), contents)).encode()).hexdigest()


CHECKS: tuple[Callable[[Task], None], ...] = (
    *(check_examples, check_gold, check_demonstrations, check_scores, check_null_policy, check_splits),
    *(check_unknown_split, check_text, check_score_many, check_answers, check_step_starts),
    *(check_seeds, check_fingerprint),
)


def check(task: Task) -> None:
    """Run the whole battery; AssertionError with a counterexample at the first broken promise."""
    for promise in CHECKS:
        promise(task)
