import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_engine import TINY, make_policy, sample

from harness.config.errors import UserError
from harness.config.policies import PolicyConfig, TeacherConfig
from harness.engine import embedded, pretrained
from harness.engine.loading import load_policy
from harness.engine.logprobs import score_responses
from harness.engine.policy import build_preset, pad_right
from harness.engine.tokenizer import CharTokenizer
from objectives import Finish


def refused(**settings):
    device = settings.pop("device", "cpu")
    task = settings.pop("task", "arithmetic")
    with pytest.raises(UserError) as caught:
        load_policy(PolicyConfig(**settings), task, device)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_missing_warm_start_is_named_with_what_there_is():
    message = refused(name="tiny", task="no_such_task", warm_start=7)
    assert "no embedded policy 'tiny' is warm-started for task 'no_such_task' with policy.warm_start = 7" in message
    assert "shipped: " in message


def test_a_name_that_is_nothing_is_refused_in_one_line(tmp_path):
    assert "neither an embedded preset (" in refused(name=str(tmp_path / "nothing"))


def test_a_folder_without_a_model_is_refused_in_one_line(tmp_path):
    assert str(tmp_path) in refused(name=str(tmp_path))


def test_a_device_that_is_not_there_is_refused_in_one_line(tiny):
    assert "engine.device = 'warp:3' cannot be used here" in refused(name="tiny", device="warp:3")


def test_unreadable_weights_are_refused(tiny, monkeypatch, tmp_path):
    file = tmp_path / "torn.safetensors"
    file.write_bytes(tiny.read_bytes()[:1000])
    monkeypatch.setattr(embedded, "weights_file", lambda *_: file)
    assert "cannot read the weights" in refused(name="tiny")


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_weights_of_another_model_are_refused(tiny, monkeypatch, tmp_path, change):
    tensors = load_file(tiny)
    name = "model.layers.1.mlp.up_proj.weight"
    if change == "missing":
        del tensors[name]
    elif change == "extra":
        tensors["model.layers.2.mlp.up_proj.weight"] = tensors[name].clone()
    else:
        tensors[name] = tensors[name][:, :5].contiguous()
    save_file(tensors, tmp_path / "other.safetensors")
    monkeypatch.setattr(embedded, "weights_file", lambda *_: tmp_path / "other.safetensors")
    assert "are another model's" in refused(name="tiny")


def test_a_preset_is_drawn_from_its_seed_and_disturbs_no_generator(tiny):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = build_preset("tiny", 1)
    assert torch.equal(torch.rand(3), expected)
    same, other = build_preset("tiny", 1), build_preset("tiny", 2)
    weight = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(first.model.state_dict()[weight], same.model.state_dict()[weight])
    assert not torch.equal(first.model.state_dict()[weight], other.model.state_dict()[weight])


def test_a_policy_is_in_evaluation_mode_with_its_head_tied(tiny):
    policy = load_policy(PolicyConfig(), "arithmetic")
    assert not any(part.training for part in policy.model.modules())
    assert policy.head.weight is policy.model.get_input_embeddings().weight
    assert torch.equal(policy.head.weight, load_file(tiny)["model.embed_tokens.weight"])


def test_a_frozen_copy_does_not_follow(tiny):
    policy = load_policy(PolicyConfig(), "arithmetic")
    copy = policy.frozen_copy()
    with torch.no_grad():
        policy.head.weight += 1
    assert not torch.equal(copy.head.weight, policy.head.weight)
    assert not any(p.requires_grad for p in copy.model.parameters())
    assert all(p.requires_grad for p in policy.model.parameters())


def test_shapes_agree_with_the_presets(tiny):
    assert load_policy(PolicyConfig(), "arithmetic").shape == make_policy().shape
    assert TINY["hidden_size"] == embedded.PRESETS["tiny"]["hidden_size"] == 32


def test_padding_on_the_right():
    assert pad_right([[1, 2], [], [3]], 9, torch.device("cpu")).tolist() == [[1, 2], [9, 9], [3, 9]]


def test_characters_make_a_round_trip():
    tokenizer = CharTokenizer()
    text = "".join(map(chr, range(32, 127))) + "\n"
    ids = tokenizer.encode(text)
    assert tokenizer.decode([*ids, 1, 0]) == text
    assert sorted(ids) == list(range(2, 98))
    with pytest.raises(UserError, match="character 'é'"):
        tokenizer.encode("é")


def saved(folder, **changes):
    """Save a model of two words and return it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    policy = make_policy(seed=4, **changes)
    policy.model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"a": 2, "b": 3, "[E]": 1, "[P]": 0}, unk_token="[P]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="[E]", pad_token="[P]").save_pretrained(folder)
    return policy


def test_a_saved_model_is_loaded_by_its_folder(tmp_path, tiny):
    policy = saved(tmp_path)
    loaded = load_policy(PolicyConfig(name=str(tmp_path)), "arithmetic")
    assert loaded.shape == policy.shape
    assert torch.equal(loaded.head.weight, policy.head.weight)
    assert loaded.tokenizer.encode("a b a") == [2, 3, 2]
    assert (loaded.tokenizer.eos_id, loaded.tokenizer.pad_id) == (1, 0)
    assert not loaded.model.training


def test_a_model_with_dropout_has_ratio_one_on_policy_at_any_temperature(tmp_path, tiny):
    """U27."""
    saved(tmp_path, attention_dropout=0.5)
    loaded = load_policy(PolicyConfig(name=str(tmp_path)), "arithmetic")
    prompts, uniforms = [[2, 3], [3, 3, 2]], np.random.default_rng(0).random((2, 3, 6))
    drawn = sample(loaded, prompts, uniforms, temperature=0.6)
    rows = [prompt for prompt in prompts for _ in range(3)]
    scored = score_responses(loaded, rows, drawn.ids, drawn.mask, temperature=0.6, chunk_tokens=8)
    ratio = (scored.logprobs - drawn.logprobs)[drawn.mask].exp()
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=1e-5, atol=0)
    loaded.model.train()  # what the test would see if dropout were on
    wrong = score_responses(loaded, rows, drawn.ids, drawn.mask, temperature=0.6, chunk_tokens=8)
    assert (wrong.logprobs - drawn.logprobs)[drawn.mask].abs().max() > 1e-3


TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}{% if add_generation_prompt %}[A]{% endif %}"
)


def chatty(folder, template=TEMPLATE, stops=(1, 4)):
    """Save a model whose tokenizer knows a chat, and whose generation stops at two tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    policy = make_policy(seed=4)
    policy.model.generation_config.eos_token_id = list(stops)
    policy.model.save_pretrained(folder)
    vocabulary = {"[P]": 0, "[E]": 1, "a": 2, "b": 3, "[T]": 4, "[user]": 5, "[system]": 6, "[A]": 7}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[P]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="[E]")
    made.chat_template = template
    made.save_pretrained(folder)
    return str(folder)


def test_a_prompt_is_a_users_message_where_a_chat_is_asked_for(tmp_path):
    name = chatty(tmp_path)
    plain = load_policy(PolicyConfig(name=name), "arithmetic").tokenizer
    chat = load_policy(PolicyConfig(name=name, chat=True), "arithmetic").tokenizer
    told = load_policy(PolicyConfig(name=name, chat=True, system="b b"), "arithmetic").tokenizer
    assert plain.prompt_ids("a b") == [2, 3]
    assert chat.prompt_ids("a b") == [5, 2, 3, 7]
    assert told.prompt_ids("a b") == [6, 3, 3, 5, 2, 3, 7]
    assert chat.encode("a b") == [2, 3]
    assert plain.pad_id == plain.eos_id == 1  # no padding token of its own


def test_every_token_that_stops_generation_ends_a_response(tmp_path):
    policy = load_policy(PolicyConfig(name=chatty(tmp_path)), "arithmetic")
    assert policy.tokenizer.stop_ids == {1, 4}
    with torch.no_grad():  # every token is as likely as any other, and the last uniform decides
        policy.head.weight.zero_()
    for token, finish in ((4, 0), (1, 0), (3, 1)):
        uniforms = np.full((1, 1, 3), (token + 0.5) / policy.shape.vocab_size)
        drawn = sample(policy, [[2, 3]], uniforms, temperature=1.0)
        assert drawn.ids[0].tolist() == [token] * (1 if finish == 0 else 3)
        assert drawn.finish.tolist() == [int(Finish.EOS if finish == 0 else Finish.LENGTH)]


def test_a_chat_needs_a_template(tmp_path):
    with pytest.raises(UserError, match=r"has no chat template: set policy\.chat = false"):
        load_policy(PolicyConfig(name=chatty(tmp_path, template=None), chat=True), "arithmetic")
    with pytest.raises(UserError, match="knows no chat"):
        load_policy(PolicyConfig(chat=True), "arithmetic")
    with pytest.raises(ValueError, match="set chat = true as well"):
        PolicyConfig(name=str(tmp_path), system="be brief")
    with pytest.raises(ValueError, match=r"teacher\.chat has no use"):
        TeacherConfig(name=str(tmp_path), chat=True)


def test_a_prompt_that_does_not_fit_is_refused(tmp_path):
    policy = load_policy(PolicyConfig(name=chatty(tmp_path)), "arithmetic")
    assert policy.context == 128
    uniforms = np.zeros((1, 1, 8))
    sample(policy, [[2] * 120], uniforms, temperature=1.0)
    with pytest.raises(UserError, match=r"121 tokens and 8 of its response do not fit .* 128 tokens"):
        sample(policy, [[2] * 121], uniforms, temperature=1.0)


def test_an_architecture_that_does_more_than_the_pass_knows_is_refused(tmp_path, monkeypatch):
    name = chatty(tmp_path)
    original = pretrained.packed_states
    monkeypatch.setattr(pretrained, "packed_states", lambda body, packed: original(body, packed).roll(1, 0))
    with pytest.raises(UserError, match=r"cannot be run: its architecture \(qwen3\)"):
        load_policy(PolicyConfig(name=name), "arithmetic")


@pytest.mark.parametrize("name", ["missing.gguf", "missing/model.gguf", "no-such-folder"])
def test_a_model_that_is_not_there_is_one_line(tmp_path, name):
    with pytest.raises(UserError, match=r"neither an embedded preset .* nor a loadable model") as refusal:
        load_policy(PolicyConfig(name=str(tmp_path / name)), "arithmetic")
    assert "\n" not in str(refusal.value)


def test_weights_in_half_precision(tmp_path):
    policy = load_policy(PolicyConfig(name=chatty(tmp_path), dtype="bfloat16"), "arithmetic")
    assert {p.dtype for p in policy.model.parameters()} == {torch.bfloat16}
