from harness.engine.flops import ModelShape
from harness.engine.layers import LayerProducts
from harness.engine.samplers.charging import decode_pieces, prefill_work

SHAPE = ModelShape(LayerProducts(forward=1000), head_weights=70, attention_width=8, num_layers=3, hidden_size=7)


def test_pieces_are_one_a_position_over_the_rows_that_go_on():
    found = list(decode_pieces(SHAPE, [5, 5, 9], [1, 4, 2]))
    flops = [2 * 1070 * rows + 4 * 3 * 8 * contexts for rows, contexts in ((2, 6 + 10), (1, 7), (1, 8))]
    assert [work.flops for work in found] == flops
    assert [work.executed_flops for work in found] == flops
    assert [work.generated_tokens for work in found] == [2, 1, 1]


def test_prompts_are_paid_once_and_bring_every_first_token():
    work = prefill_work(SHAPE, [5, 9], 6)
    assert work.flops == 2 * 1000 * 14 + 4 * 3 * 8 * (25 + 81) + 2 * 70 * 2
    assert (work.executed_flops, work.generated_tokens) == (work.flops, 6)
    assert prefill_work(SHAPE, [5, 9], 6, executed=10**6).executed_flops == 10**6


def test_single_tokens_and_nothing_at_all_need_no_decoding():
    assert list(decode_pieces(SHAPE, [5, 5], [1, 1])) == []
    assert list(decode_pieces(SHAPE, [], [])) == []
