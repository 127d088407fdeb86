"""With vLLM itself, in an environment that has it (README, vLLM): one sampler a file, as one process holds one vLLM."""

import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "harness" / "engine"))  # the helpers of the engine's tests


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def sampler():
    from harness.config.sampler import SamplerConfig
    from harness.engine.samplers import make_sampler

    config = SamplerConfig.model_validate({"name": "vllm", "kv_cache_gib": 0.25, "max_num_seqs": 64})
    with closing(make_sampler(config)) as made:
        yield made


@pytest.fixture
def policy():
    from harness.config.policies import PolicyConfig
    from harness.engine.loading import load_policy

    return load_policy(PolicyConfig.model_validate({}), "arithmetic")
