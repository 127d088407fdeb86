"""A tiny policy for every test of the engine: two layers of 32, trained for a second to end its responses."""

import ast
import functools
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_engine import ABSENT_HEAD, EXPERTS, TINY, make_policy, teach, upcycled

from harness import sources
from harness.engine import embedded, recorder


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def taught(tmp_path_factory):
    """Return the file of the weights of a policy that answers ``#number`` and ends."""
    torch.set_num_threads(1)
    model = teach(make_policy(seed=3))
    file = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file({k: v.contiguous() for k, v in model.model.state_dict().items() if k != ABSENT_HEAD}, file)
    return file


@pytest.fixture(scope="session", autouse=True)
def sources_parsed_once():
    """Parse a source once: hashing the plug-ins' sources takes longer than a cell of these tests."""
    parse, own_imports = functools.lru_cache(ast.parse), functools.lru_cache(sources._own_imports)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "ast", SimpleNamespace(**{**vars(ast), "parse": parse}))
        patch.setattr(sources, "_own_imports", own_imports)
        yield


@pytest.fixture
def tiny(monkeypatch, taught):
    """Make the embedded preset "tiny" that tiny policy, for any task."""
    monkeypatch.setitem(embedded.PRESETS, "tiny", TINY)
    monkeypatch.setattr(embedded, "weights_file", lambda *_: taught)
    monkeypatch.setattr(recorder, "_STARTS", {})
    return taught


@pytest.fixture
def tiny_moe(monkeypatch, taught, tmp_path):
    """Make the embedded preset "tiny-moe" a mixture of experts that writes as "tiny" does, for any task."""
    file = tmp_path / "tiny-moe.safetensors"
    save_file(upcycled(load_file(taught)), file)
    monkeypatch.setitem(embedded.PRESETS, "tiny-moe", {**TINY, **EXPERTS})
    monkeypatch.setattr(embedded, "weights_file", lambda *_: file)
    monkeypatch.setattr(recorder, "_STARTS", {})
    return file
