"""The shipped files: small, loadable, and a start from which reinforcement learning has something to do."""

import numpy as np
import pytest
from tiny_engine import sample

import tasks
from harness.config.policies import PolicyConfig
from harness.engine import embedded
from harness.engine.loading import load_policy
from harness.engine.routing import follow_routes, routers, taken

SHIPPED = embedded.available()


def test_there_is_a_dense_and_a_sparse_policy_for_each_task():
    assert {(preset, task) for preset, task, _ in SHIPPED} == {
        (preset, task) for preset in ("tiny", "tiny-moe") for task in ("arithmetic", "synthesis")
    }
    assert set(embedded.PRESETS) == {"tiny", "tiny-moe"}


@pytest.mark.parametrize(("preset", "task", "number"), SHIPPED)
def test_a_shipped_policy_is_small_and_right_now_and_then(preset, task, number):
    assert embedded.weights_file(preset, task, number).stat().st_size < 2_000_000
    policy = load_policy(PolicyConfig(name=preset, warm_start=number), task)
    follow_routes(policy.body)
    made = tasks.make(task)
    examples = made.examples("validation")[:96]
    prompts = [policy.tokenizer.prompt_ids(made.prompt(example)) for example in examples]
    noise = np.random.default_rng(0).random((96, 1, 52))
    drawn = sample(policy, prompts, noise, temperature=1.0, charge=lambda _: None)
    texts = [
        policy.tokenizer.decode(row[:n]) for row, n in zip(drawn.ids.tolist(), drawn.mask.sum(1).tolist(), strict=True)
    ]
    scores = [score.value for score in made.score_many(list(zip(examples, texts, strict=True)))]
    assert 0.1 < sum(scores) / len(scores) < 0.55
    if routers(policy.body):
        policy.model(input_ids=drawn.ids)
        shares = [layer.flatten().long().bincount(minlength=8) / layer.numel() for layer in taken(policy.body)]
        assert all(share.max() < 0.45 and (share > 0.01).sum() >= 6 for share in shares)  # no router has collapsed
