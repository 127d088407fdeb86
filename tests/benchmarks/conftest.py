"""The tiny policy that is shipped, or one of its size without training where none is."""

import pytest
import torch

from harness.engine import embedded
from harness.engine.policy import build_preset


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """Return the file of an arithmetic warm start."""
    from safetensors.torch import save_file

    shipped = [number for name, task, number in embedded.available() if (name, task) == ("tiny", "arithmetic")]
    if shipped:
        return embedded.weights_file("tiny", "arithmetic", shipped[0])
    file = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    state = build_preset("tiny", 0).model.state_dict()
    save_file({name: value.contiguous() for name, value in state.items() if name != "lm_head.weight"}, file)
    return file


@pytest.fixture
def tiny(monkeypatch, weights):
    """Make the preset "tiny" load those weights."""
    monkeypatch.setattr(embedded, "weights_file", lambda *_: weights)
