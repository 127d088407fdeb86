"""Summaries of scored responses: prompts count once, infra is left out and shown, a pass is a verdict."""

import math
from dataclasses import dataclass

import pytest

from harness.config.errors import UserError
from harness.scoring import Group, examples_of, sample_row, score_pairs, summarise, vote_answers
from tasks.arithmetic import Arithmetic
from tasks.base import Example, Score, Task

PASS, WRONG, INFRA = Score(1.0, "pass"), Score(0.0, "wrong", "expected 7"), Score(math.nan, "infra", "sandbox is gone")


def group(*scores, difficulty="", answers=None):
    return Group(difficulty, scores, answers)


@dataclass(frozen=True)
class Voting(Arithmetic):
    def answer(self, response):
        return response.removeprefix("#") or None


@dataclass(frozen=True)
class Greedy(Arithmetic):
    def score_many(self, pairs):
        return [score for pair in pairs for score in [self.score(*pair)] * 2]


@dataclass(frozen=True)
class Refusing(Arithmetic):
    def score_many(self, pairs):
        raise ValueError("no sandbox here")

    def examples(self, split):
        raise ValueError(f"{split} cannot be read")


def test_infra_is_left_out_and_reported_beside():
    """rllm#382: 4 episodes, 1 crashed, 3 right is not 100 %."""
    found = summarise([group(PASS), group(PASS), group(INFRA), group(PASS)])
    assert (found["score"], found["pass_at_1"]) == (1.0, 1.0)
    assert (found["infra"], found["num_responses"], found["num_prompts"], found["pass_at_1_prompts"]) == (1, 4, 4, 3)
    assert found["pass_at_1_floor"] == 0.75
    assert found["pass_at_1_low"] == pytest.approx(0.438503, abs=1e-6)  # Wilson, 3 of 3
    assert found["verdicts"] == {"infra": 1, "pass": 3}


def test_a_prompt_with_too_few_scored_responses_is_left_out_and_counted():
    groups = [group(PASS, WRONG, WRONG), group(INFRA, INFRA, PASS), group(WRONG, INFRA, WRONG)]
    found = summarise(groups, [2, 3])
    assert found["pass_at_1"] == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert (found["pass_at_2"], found["pass_at_2_prompts"]) == (pytest.approx((2 / 3 + 0) / 2), 2)
    assert (found["pass_at_3"], found["pass_at_3_prompts"]) == (1.0, 1)
    nobody = summarise(groups, [4])
    assert (nobody["pass_at_4"], nobody["pass_at_4_low"], nobody["pass_at_4_prompts"]) == (None, None, 0)


def test_pass_is_the_verdict_and_score_the_mean_reward():
    half = Score(0.5, "wrong", "2 of 4 tests")
    found = summarise([group(half, PASS), group(half, half)])
    assert found["score"] == 0.625
    assert found["pass_at_1"] == 0.25
    assert found["by_difficulty"] == {"": 0.625}


def test_an_interval_does_not_shrink_with_more_of_the_same():
    few = [group(PASS), group(WRONG), group(PASS), group(PASS)]
    many = [group(*g.scores * 50) for g in few]
    names = ("pass_at_1", "pass_at_1_low", "pass_at_1_high")
    assert [summarise(many)[name] for name in names] == [summarise(few)[name] for name in names]


def test_votes_are_those_of_scored_responses_with_an_answer():
    right = group(PASS, PASS, WRONG, answers=["7", "7", "9"])
    broken = group(INFRA, INFRA, WRONG, answers=["7", "7", "9"])
    assert summarise([right], [3])["maj_at_3"] == 1.0
    assert summarise([right, group(WRONG, WRONG, PASS, answers=["9", "9", "7"])], [3])["maj_at_3"] == 0.5
    assert summarise([right, broken], [3])["maj_at_3"] == 1.0  # the second has one scored response
    assert summarise([group(PASS, WRONG, answers=[None, None])], [2])["maj_at_2"] == 0.0
    assert summarise([group(PASS, WRONG)], [2])["maj_at_2"] is None
    assert "maj_at_1" not in summarise([right], [1, 3])


def test_difficulties_have_their_own_rate_and_number_of_prompts():
    groups = [group(PASS, difficulty="a"), group(WRONG, difficulty="a"), group(INFRA, difficulty="b")]
    found = summarise(groups)["pass_by_difficulty"]
    assert {name: found["a"][name] for name in ("pass_at_1", "num_prompts", "num_scored_prompts")} == {
        "pass_at_1": 0.5, "num_prompts": 2, "num_scored_prompts": 2,
    }  # fmt: skip
    assert found["a"]["pass_at_1_low"] == pytest.approx(0.094531, abs=1e-6)  # Wilson, 1 of 2
    assert (found["b"]["pass_at_1"], found["b"]["pass_at_1_high"], found["b"]["num_scored_prompts"]) == (None, None, 0)
    assert "b" not in summarise(groups)["by_difficulty"]


def test_nothing_at_all_is_missing_and_not_zero():
    found = summarise([], [2])
    assert [found[name] for name in ("score", "pass_at_1", "pass_at_2", "maj_at_2", "pass_at_1_floor")] == [None] * 5
    assert (found["num_prompts"], found["num_responses"], found["infra"]) == (0, 0, 0)


def test_answers_are_asked_only_of_a_task_that_has_them():
    assert vote_answers(Voting(), ["#7", "#", ""]) == ["7", None, None]
    programs = type("Programs", (Arithmetic,), {"answer": Task.answer})
    assert vote_answers(programs(), ["#7"]) is None


def test_scores_that_do_not_pair_with_responses_are_refused():
    """NeMo-RL#3635: 5 responses, 7 rewards, and everything behind them shifted."""
    task = Greedy()
    example = task.examples("test")[0]
    with pytest.raises(UserError, match="gave 2 scores for 1 responses: it must give one a response"):
        score_pairs(task, [(example, "#1")])


def test_a_task_that_refuses_is_one_line():
    with pytest.raises(UserError, match="Refusing cannot score: no sandbox here"):
        score_pairs(Refusing(), [])
    with pytest.raises(UserError, match="test cannot be read"):
        examples_of(Refusing(), "test")


def test_a_row_holds_plain_values_and_none_for_an_unknown_reward():
    row = sample_row(Example("e1", "test", "hard"), 3, 1, "1+1=", "#2", INFRA)
    assert row == {
        "split": "test", "id": "e1", "prompt_index": 3, "sample_index": 1, "difficulty": "hard", "prompt": "1+1=",
        "response": "#2", "verdict": "infra", "reason": "sandbox is gone", "value": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "score",
    [
        Score(0.0, "infra"),
        Score(float("nan"), "wrong"),
        Score(7.0, "pass"),
        Score(-0.1, "wrong"),
        Score(0.0, "bad"),  # pyright: ignore[reportArgumentType]
        0.5,
    ],
)
def test_a_score_that_does_not_mean_what_it_says_is_refused(score):
    example = Arithmetic().examples("test")[0]

    class Odd(Arithmetic):
        def score_many(self, pairs):
            return [score for _ in pairs]

    with pytest.raises(UserError, match=f"Odd scored example '{example.id}' with .*expected"):
        score_pairs(Odd(), [(example, "x")])


def test_rewards_by_difficulty_count_a_prompt_once():
    known, lost = Score(1.0, "pass"), Score(float("nan"), "infra")
    groups = [Group("a", [known, known, known, lost]), Group("a", [Score(0.0, "wrong"), lost, lost, lost])]
    assert summarise(groups)["by_difficulty"] == {"a": 0.5}
