"""Whole runs: budgets, evaluation points, common random numbers, resuming, failures."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tiny_engine import cell, digests, make_config, needs, plugin

import objectives
from harness.config.errors import CorruptRecordError, RunFailed
from harness.engine import ledger as ledger_module
from harness.engine import recorder, rollout, train
from harness.engine.estimate import estimate_cell
from harness.engine.ledger import Ledger
from harness.engine.optimizer import Optimizer
from harness.sweeps.run_folder import RunFolder
from objectives import trust_region

SMALL = {
    "rollout": {"num_prompts": 2, "group_size": 2, "max_response_tokens": 5},
    "eval": {"num_prompts": 2, "test_prompts": 2},
}


def small(**tables):
    merged = {name: {**table, **tables.pop(name, {})} for name, table in SMALL.items()}
    return make_config(**merged, **tables)


def lines(folder, stream):
    return [json.loads(line) for line in (folder / f"{stream}.jsonl").read_text().splitlines()]


def status(folder):
    return json.loads((folder / "status.json").read_text())


@pytest.fixture
def charges(monkeypatch):
    """Record (position before, amount asked, fits) of every charge on the run's own axis, and evaluations between."""
    seen = []
    original = Ledger.charge

    def charge(self, work):
        before = self.position()
        asked = sum(part.on(self.axis) for part in work.values())
        try:
            original(self, work)
            seen.append((before, asked, True))
        except ledger_module.BudgetExhausted:
            seen.append((before, asked, False))
            raise

    monkeypatch.setattr(Ledger, "charge", charge)
    return seen


AMOUNTS = {"flops": 60e6, "tokens": 60, "updates": 5}


@pytest.mark.parametrize("axis", AMOUNTS)
def test_a_run_ends_within_one_piece_of_work_of_its_budget(tiny, tmp_path, charges, axis):
    amount = AMOUNTS[axis]
    cell(small(budget={"axis": axis, "amount": amount}, eval={"points": 4}), tmp_path)
    totals = status(tmp_path)["totals"]
    spent = totals[{"flops": "spent_flops", "tokens": "generated_tokens", "updates": "updates"}[axis]]
    assert spent <= amount
    last_before, last_asked, last_fits = charges[-1]
    assert spent == amount or (not last_fits and last_before == spent and last_before + last_asked > amount)
    assert totals["updates"] >= 1
    charged = {n: w for n, w in totals["phases"].items() if n not in ("evaluation", "diagnostic")}
    assert sum(w["flops"] for w in charged.values()) == totals["spent_flops"]
    assert sum(w["generated_tokens"] for w in charged.values()) == totals["generated_tokens"]
    assert totals["executed_flops"] >= totals["spent_flops"]
    assert totals["eval_flops"] > 0


@pytest.mark.parametrize("axis", AMOUNTS)
def test_evaluation_points_hold_the_last_state_within_them(tiny, tmp_path, monkeypatch, axis):
    amount, column = AMOUNTS[axis], {"flops": "spent_flops", "tokens": "generated_tokens", "updates": "updates"}[axis]
    states = []  # (position when the update had been charged, updates)
    original = Ledger.commit

    def commit(self):
        original(self)
        states.append((self.position(), self.spent.updates))

    monkeypatch.setattr(Ledger, "commit", commit)
    cell(small(budget={"axis": axis, "amount": amount}, eval={"points": 4}), tmp_path)
    rows = [row for row in lines(tmp_path, "evals") if row["split"] == "validation"]
    assert [row["fraction"] for row in rows] == [0, 0.25, 0.5, 0.75, 1.0]
    for row in rows:
        allowed = row["fraction"] * amount
        assert row[column] <= allowed
        assert row["updates"] == max([n for position, n in states if position <= allowed], default=0)
    assert rows[-1]["updates"] == len(states) >= 2
    tests = [row["fraction"] for row in lines(tmp_path, "evals") if row["split"] == "test"]
    assert tests == [0, 1.0]


def test_a_budget_of_seconds_is_kept_to_the_clock(tiny, tmp_path, monkeypatch):
    class Clock:
        now = 0.0

    def tick():  # every look at the clock takes a while
        Clock.now += 0.01
        return Clock.now

    monkeypatch.setattr(ledger_module.time, "perf_counter", tick)
    seen = []
    original = Ledger.look_at_clock

    def look(self):
        original(self)
        seen.append(self.position())

    monkeypatch.setattr(Ledger, "look_at_clock", look)
    cell(small(budget={"axis": "seconds", "amount": 4.0}, eval={"points": 4}), tmp_path)
    rows = [row for row in lines(tmp_path, "evals") if row["split"] == "validation"]
    assert [row["fraction"] for row in rows] == [0, 0.25, 0.5, 0.75, 1.0]
    updates = [row["updates"] for row in rows]
    assert updates == sorted(updates)
    assert updates[-1] == status(tmp_path)["totals"]["updates"] > updates[1]
    for row, count in zip(rows[1:4], updates[1:4], strict=True):
        assert count in (sum(p <= 4 * row["fraction"] for p in seen), sum(p <= 4 * row["fraction"] for p in seen) + 1)


def test_a_step_that_the_clock_overtakes_is_undone(tiny, tmp_path, monkeypatch):
    class Clock:
        now = 0.0

    monkeypatch.setattr(ledger_module.time, "perf_counter", lambda: Clock.now)
    snapshots = []
    step = Optimizer.step

    def slow(self):
        snapshots.append([p.clone() for _, p in self._named])
        step(self)
        Clock.now += 6

    monkeypatch.setattr(Optimizer, "step", slow)
    cell(make_config(budget={"axis": "seconds", "amount": 10.0}, eval={"points": 4}), tmp_path)
    assert len(snapshots) == 2
    rows = lines(tmp_path, "evals")
    assert [row["fraction"] for row in rows if row["split"] == "validation"] == [0, 0.25, 0.5, 0.75, 1.0]
    final = rows[-1]
    assert final["updates"] == status(tmp_path)["totals"]["updates"] == 1
    weights = list(load_file(tmp_path / "weights.safetensors").values())
    total = sum(float(w.double().sum()) for w in weights)
    assert total == pytest.approx(sum(float(p.detach().double().sum()) for p in snapshots[1]), abs=1e-9)
    assert total != pytest.approx(sum(float(p.detach().double().sum()) for p in snapshots[0]), abs=1e-9)


@pytest.fixture
def experiences(monkeypatch):
    seen = []
    original = rollout.collect

    def collect(*arguments, **named):
        seen.append(original(*arguments, **named))
        return seen[-1]

    monkeypatch.setattr(train, "collect", collect)
    return seen


def test_first_rollouts_are_equal_across_objectives_and_regions_and_differ_across_seeds(tiny, tmp_path, experiences):
    alike = [name for name in objectives.names() if "rollout" not in needs(name)]  # the rest samples other groups
    cells = [(o, "none", 0) for o in alike] + [("grpo", r, 0) for r in trust_region.names()]
    cells.append(("grpo", "none", 1))
    firsts = []
    for number, (objective, region, seed) in enumerate(cells):
        experiences.clear()
        config = small(
            objective={"name": objective}, trust_region={"name": region}, seed=seed, budget={"amount": 1},
            eval={"points": 1, "num_prompts": 1, "test_prompts": 1},
        )  # fmt: skip
        cell(config, tmp_path / str(number))
        firsts.append(experiences[0])
    for other in firsts[1:-1]:
        assert other.prompts == firsts[0].prompts
        assert torch.equal(other.ids, firsts[0].ids)
        assert torch.equal(other.mask, firsts[0].mask)
        assert torch.equal(other.rewards, firsts[0].rewards)
    assert firsts[-1].prompts != firsts[0].prompts


class Killed(BaseException):
    """What a killed process leaves: nothing more is written."""


def kill_at(monkeypatch, name, number):
    """Make the ``number``-th call of ``RunFolder.name`` end the process."""
    original, calls = getattr(RunFolder, name), []

    def call(self, *arguments, **named):
        calls.append(name)
        if len(calls) == number:
            raise Killed
        return original(self, *arguments, **named)

    monkeypatch.setattr(RunFolder, name, call)


RESUMED = [("grpo", "none"), ("ppo", "adaptive"), ("gspo_subsequence", "dual"), ("gspo", "reference_penalty")]
INSTANTS = [("append", 3), ("append", 12), ("write_checked", 1), ("write_checked", 2), ("finish", 1), ("remove", 1)]


@pytest.mark.parametrize(
    ("objective", "region", "instants"),
    [(*RESUMED[0], INSTANTS), *((*pair, INSTANTS[1::2][:2]) for pair in RESUMED[1:])],
    ids=[f"{o}-{r}" for o, r in RESUMED],
)
def test_a_run_killed_at_any_instant_ends_byte_equal(tiny, tmp_path, monkeypatch, objective, region, instants):
    config = small(
        objective={"name": objective}, trust_region={"name": region},
        budget={"axis": "flops", "amount": (110e6 if objective == "ppo" else 60e6)},
    )  # fmt: skip
    cell(config, tmp_path / "whole")
    expected = digests(tmp_path / "whole")
    assert {"weights.safetensors", "metrics.jsonl", "evals.jsonl", "samples.jsonl", "status.json"} <= expected.keys()
    assert len(lines(tmp_path / "whole", "metrics")) >= 3
    for name, number in instants:
        folder = tmp_path / f"{name}-{number}"
        with monkeypatch.context() as patch:
            kill_at(patch, name, number)
            with pytest.raises(Killed):
                cell(config, folder)
        assert status(folder)["status"] == ("completed" if name == "remove" else "running")
        cell(config, folder)
        assert digests(folder) == expected, (name, number)


def test_a_run_killed_twice_with_sparse_checkpoints_ends_byte_equal(tiny, tmp_path, monkeypatch):
    config = small(budget={"amount": 12}, engine={"checkpoint_every": 2})
    cell(config, tmp_path / "whole")
    for name, number in [("append", 18), ("append", 8)]:
        with monkeypatch.context() as patch:
            kill_at(patch, name, number)
            with pytest.raises(Killed):
                cell(config, tmp_path / "cut")
    cell(config, tmp_path / "cut")
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")


def test_an_interruption_from_the_listener_leaves_a_run_that_can_go_on(tiny, tmp_path):
    config = small(budget={"amount": 6})
    cell(config, tmp_path / "whole")
    told = []

    def notify(news):
        told.append(news)
        if news["iteration"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cell(config, tmp_path / "cut", notify)
    assert status(tmp_path / "cut")["status"] == "running"
    cell(config, tmp_path / "cut")
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")
    assert [news["fraction"] for news in told] == [pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert all(0 <= news["score"] <= 1 for news in told)


def test_two_runs_of_one_identity_are_byte_equal_and_another_seed_is_not(tiny, tmp_path):
    """U29."""
    cell(small(), tmp_path / "a")
    recorder._STARTS.clear()
    cell(small(), tmp_path / "b")
    cell(small(seed=1), tmp_path / "c")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert digests(tmp_path / "a")["weights.safetensors"] != digests(tmp_path / "c")["weights.safetensors"]


def test_a_shared_evaluation_of_the_start_changes_no_byte(tiny, tmp_path):
    cell(small(), tmp_path / "first")
    assert len(recorder._STARTS) == 2
    cell(small(), tmp_path / "shared")
    assert digests(tmp_path / "first") == digests(tmp_path / "shared")


def test_a_corrupt_checkpoint_is_refused(tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        kill_at(patch, "write_checked", 2)
        with pytest.raises(Killed):
            cell(small(), tmp_path)
    file = tmp_path / "checkpoint"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptRecordError, match="checkpoint is corrupt"):
        cell(small(), tmp_path)


@pytest.mark.parametrize("silent", [False, True])
def test_an_objective_that_is_not_finite_is_a_recorded_failure(tiny, tmp_path, silent):
    with pytest.raises(RunFailed):
        cell(small(objective=plugin("Poisoned", at=2, silent=silent)), tmp_path)
    ended = status(tmp_path)
    assert ended["status"] == "failed"
    expected = "gradient norm of the policy is nan at its update 3" if silent else "loss is nan at update 3"
    assert (ended["failure"], ended["cause"]) == ("divergence", expected)
    assert ended["totals"]["iterations"] == 1
    assert not (tmp_path / "weights.safetensors").exists()


def test_a_run_that_diverges_is_evaluated_where_it_ended(tiny, tmp_path):
    """Its last state is the one before the step that was not made; both splits are asked, at what was spent."""
    with pytest.raises(RunFailed):
        cell(small(objective=plugin("Poisoned", at=2)), tmp_path / "poisoned")
    *_, validation, test = lines(tmp_path / "poisoned", "evals")
    assert [(row["split"], row["updates"]) for row in (validation, test)] == [("validation", 2), ("test", 2)]
    assert 0 < validation["fraction"] == test["fraction"] < 1
    cell(small(objective=plugin("Poisoned", at=99), budget={"axis": "updates", "amount": 2}), tmp_path / "sound")
    assert lines(tmp_path / "sound", "evals")[-1]["score"] == test["score"]


def test_a_run_that_diverges_at_its_first_update_ends_with_the_scores_of_its_start(tiny, tmp_path):
    with pytest.raises(RunFailed):
        cell(small(objective=plugin("Poisoned", at=0)), tmp_path)
    assert [(row["split"], row["fraction"]) for row in lines(tmp_path, "evals")] == [("validation", 0), ("test", 0)]


def test_the_seconds_of_a_run_that_fails_at_once_are_kept(tiny, tmp_path):
    with pytest.raises(RunFailed):
        cell(small(objective=plugin("Poisoned", at=0)), tmp_path)
    timing = lines(tmp_path, "timing")[-1]
    assert timing["total"]
    assert timing["train_seconds"] > 0


def test_the_seconds_of_a_run_are_those_of_its_phases_and_of_little_else(tiny, tmp_path):
    cell(small(objective={"name": "ppo"}, trust_region={"name": "dual"}), tmp_path)
    timing = lines(tmp_path, "timing")[-1]
    phases = timing["train_phase_seconds"]
    assert phases.keys() == {"sample", "verify", "old", "critic", "update", "log", "probe"}
    assert min(phases.values()) > 0
    assert sum(phases.values()) <= timing["train_seconds"]


def test_a_budget_too_small_for_one_update_fails_with_its_cause(tiny, tmp_path):
    with pytest.raises(RunFailed, match="too small for one update"):
        cell(small(budget={"axis": "flops", "amount": 1e6}), tmp_path)
    assert (status(tmp_path)["status"], status(tmp_path)["failure"]) == ("failed", "budget")
    assert "budget.amount = 1e+06 flops" in status(tmp_path)["cause"]


PAIRS = [(o, "dual") for o in objectives.names()] + [("grpo", r) for r in trust_region.names() if r != "dual"]


@pytest.mark.parametrize(("objective", "region"), PAIRS)
def test_every_objective_and_every_region_trains(tiny, tmp_path, objective, region):
    config = small(
        task={"name": "arithmetic", "train_size": 50, "validation_size": 5, "test_size": 5},
        objective={"name": objective}, trust_region={"name": region}, eval={"points": 1},
    )  # fmt: skip
    cell(config, tmp_path)
    assert status(tmp_path)["status"] == "completed"
    rows = lines(tmp_path, "metrics")
    assert len(rows) >= 2
    assert [row["iteration"] for row in rows] == [*range(1, len(rows) + 1)]
    assert rows[-1]["updates"] == 4
    assert all(row["kl_old_per_token_nats"] is not None for row in rows[:2])
    assert all(row["grad_norm"] is not None and row["entropy_nats"] > 0 for row in rows)


def test_a_rollout_that_the_budget_cuts_short_has_a_row_of_its_own(tiny, tmp_path):
    cell(small(budget={"amount": 3}), tmp_path)
    rows = lines(tmp_path, "metrics")
    assert [(row["iteration"], row["updates"]) for row in rows] == [(1, 2), (2, 3)]
    assert rows[1]["kl_old_per_token_nats"] is None
    assert rows[1]["reward_mean"] is not None
    assert lines(tmp_path, "evals")[-1]["iteration"] == 2


def test_what_a_budget_leaves_unused_is_discarded(tiny, tmp_path):
    cell(small(budget={"axis": "tokens", "amount": 30}), tmp_path)
    totals = status(tmp_path)["totals"]
    assert 0 < totals["discarded_flops"] < totals["spent_flops"]


def test_samples_show_prompt_response_and_verdict(tiny, tmp_path):
    cell(small(), tmp_path)
    samples = lines(tmp_path, "samples")
    assert len(samples) == 2 * len(lines(tmp_path, "evals"))
    names = {"split", "fraction", "id", "prompt", "response", "verdict", "reason"}
    assert samples[0].keys() == names | {"value", "difficulty", "prompt_index", "sample_index"}
    assert samples[0]["prompt"].endswith("=")


def test_the_estimate_bounds_what_a_run_spends(tiny, tmp_path, monkeypatch):
    first_updates = []
    original = Ledger.commit

    def commit(self):
        original(self)
        first_updates.append(self.spent.flops)

    monkeypatch.setattr(Ledger, "commit", commit)
    for objective, region in RESUMED:
        config = small(objective={"name": objective}, trust_region={"name": region}, eval={"points": 1})
        first_updates.clear()
        folder = tmp_path / objective
        cell(config, folder)
        estimate = estimate_cell(config)
        totals = status(folder)["totals"]
        assert estimate.smallest_update_flops <= first_updates[0]
        assert estimate.flops / estimate.iterations >= totals["spent_flops"] / totals["iterations"]
        assert estimate.updates == totals["updates"] == 4
