import math

import pytest
from tiny_engine import plugin

from harness import plugins
from harness.config.errors import UserError
from harness.config.schema import Plugin, PolicyConfig
from harness.engine.evaluate import Evaluation, evaluate
from harness.engine.policy import load_policy
from tasks.base import Example, Score


def scored(*values, samples=1, difficulties=None):
    scores = [Score(v, "infra" if math.isnan(v) else "pass" if v == 1 else "wrong") for v in values]
    labels = difficulties or [""] * len(values)
    examples = [Example(str(i // samples), "test", label) for i, label in enumerate(labels)]
    return Evaluation(examples, [""] * len(values), scores, [3] * len(values), samples)


def test_pass_rate_is_a_mean_over_prompts_of_means_over_known_samples():
    nan = math.nan
    assert scored(1.0, 0.0, 1.0, 1.0).pass_rate() == 0.75
    assert scored(1.0, nan, 0.0, 0.0, samples=2).pass_rate() == 0.5  # 1 of the first prompt, 0 of the second
    assert scored(1.0, nan, nan, nan, samples=2).pass_rate() == 1.0  # nothing is known of the second
    assert math.isnan(scored(nan, nan).pass_rate())


def test_a_summary_by_hand():
    summary = scored(1.0, 0.0, math.nan, 1.0, difficulties=["a", "a", "a", "b"]).summary()
    assert summary == {
        "score": pytest.approx(2 / 3),
        "num_prompts": 4,
        "response_tokens_mean": 3.0,
        "infra": 1,
        "verdicts": {"infra": 1, "pass": 2, "wrong": 1},
        "by_difficulty": {"a": 0.5, "b": 1.0},
    }


def test_a_score_that_is_unknown_is_missing_and_not_zero():
    assert scored(math.nan).summary()["score"] is None


@pytest.fixture
def task():
    return plugins.task(Plugin.model_validate(plugin("EvenAnswer", train_size=9, validation_size=9, test_size=9)))


def run(task, **changes):
    settings = {
        "split": "validation", "num_prompts": 9, "samples": 2, "temperature": 1.0, "seed": 0, "limit": 8,
        "batch_rows": 100, **changes,
    }  # fmt: skip
    return evaluate(load_policy(PolicyConfig(), "arithmetic"), task, **settings)


def test_how_many_are_sampled_at_a_time_does_not_matter(tiny, task):
    whole = run(task)
    for rows in (1, 5, 7):
        part = run(task, batch_rows=rows)
        assert part.responses == whole.responses
        assert part.summary() == whole.summary()
        assert part.work.generated_tokens == whole.work.generated_tokens
        assert part.work.flops == whole.work.flops
    assert [e.id for e in whole.examples[::2]] == [e.id for e in task.examples("validation")]


def test_noise_is_that_of_seed_split_and_prompt(tiny, task):
    whole = run(task)
    assert run(task).responses == whole.responses
    assert run(task, num_prompts=4).responses == whole.responses[:8]
    assert run(task, seed=1).responses != whole.responses
    assert run(task, samples=1).responses == whole.responses[::2]
    assert any(a != b for a, b in zip(whole.responses[::2], whole.responses[1::2], strict=True))


def test_temperature_zero_is_greedy(tiny, task):
    greedy = run(task, temperature=0.0)
    assert greedy.responses[::2] == greedy.responses[1::2]


def test_lengths_are_of_tokens_with_the_end(tiny, task):
    found = run(task)
    assert sum(found.lengths) == found.work.generated_tokens
    for text, length in zip(found.responses, found.lengths, strict=True):
        assert length in (len(text), len(text) + 1)
        assert length <= 8


def test_more_prompts_than_the_split_has_are_refused(tiny, task):
    with pytest.raises(UserError, match="10 prompts asked of split 'test', which has 9"):
        run(task, split="test", num_prompts=10)
