"""The training loop: sample, score, update, measure, until the budget is spent. It reads top to bottom.

A run is a pure function of its identity. It writes a checkpoint every few iterations and, started again, goes on from
the last one; what it had written after it is cut off and written again, byte for byte.
"""

import time

from harness.config.schema import RunConfig
from harness.engine import passes
from harness.engine.annotations import annotations
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.experience import Experience, joined
from harness.engine.infra import TooManyUnscored, check_scored, explain
from harness.engine.lag import next_in_turn, old_logprobs
from harness.engine.ledger import BudgetExhausted
from harness.engine.memory import reset_peak_memory
from harness.engine.metrics import StepMetrics
from harness.engine.optimizer import NonFinite
from harness.engine.plan import Plan, make_plan
from harness.engine.probe import probe
from harness.engine.recorder import Recorder
from harness.engine.replay import add_replays
from harness.engine.rollout import collect
from harness.engine.routing_probe import measure_routing
from harness.engine.run import Run, build_run
from harness.engine.shaping import shape_rewards
from harness.engine.update import update_policy
from harness.engine.windows import carry_over, continued
from harness.engine.world import join_world
from harness.sweeps.engines import Notify
from harness.sweeps.run_folder import RunFolder
from objectives import Rollout, Targets

__all__ = ["iterate", "train_cell"]


def train_cell(config: RunConfig, folder: RunFolder, notify: Notify) -> None:
    """Do what ``harness.engine.cells.run_cell`` says."""
    reset_peak_memory()
    run = build_run(config, join_world(config.engine.processes, config.engine.device))
    recorder = Recorder(run, folder, notify)
    run.ledger.on_point = recorder.evaluate_point
    try:
        _train(run, folder, recorder)
    except TooManyUnscored as error:
        recorder.fail("unscored", str(error))
    finally:
        run.sampler.close()


def _train(run: Run, folder: RunFolder, recorder: Recorder) -> None:
    """Go on from the last checkpoint, or begin, until the budget is spent; then record the end."""
    payload = run.world.gather(folder.read_checked("checkpoint"))[0]
    if payload is None:
        folder.truncate({})
        recorder.begin()
    else:
        folder.truncate(restore_run(run, payload))
    divergence = ""
    try:
        run.ledger.start()
        while not run.ledger.exhausted:
            iterate(run, recorder)
            if run.iteration % run.config.engine.checkpoint_every == 0:
                folder.write_checked("checkpoint", save_run(run, folder.flush()))
    except BudgetExhausted:
        pass
    except NonFinite as error:
        divergence = str(error)
    finally:
        run.ledger.stop()
    if divergence:
        recorder.diverge(divergence)
    if not run.updates:
        budget = run.config.budget
        recorder.fail("budget", f"budget.amount = {budget.amount:g} {budget.axis} is too small for one update")
    run.ledger.close()
    recorder.end()


def iterate(run: Run, recorder: Recorder) -> None:
    """Make one rollout, and the updates on the one whose turn it is; record them."""
    config = run.config
    begun = time.perf_counter()
    experience = next_in_turn(run, _sample)
    experience = add_replays(experience, run.replay, run.iteration, run.policy.tokenizer.pad_id)
    _check_known(experience)
    plan = make_plan(
        experience, config.update.minibatches, run.micro_batch_tokens,
        seed=config.seed, iteration=run.iteration, shares=run.world.size,
    )  # fmt: skip
    rollout = _score(run, experience, plan)
    carry_over(run, experience, rollout)
    if config.replay.strategy != "none":
        run.replay.push(experience, rollout)
    targets = run.objective.targets(rollout)

    metrics = StepMetrics()
    try:
        with run.ledger.timed("update"):
            update_policy(run, experience, rollout, targets, plan, metrics)
        moved = _measure(run, experience, rollout, targets, plan)
    except BudgetExhausted:
        run.iteration += 1
        recorder.iteration(experience, _seen(run, metrics), {}, time.perf_counter() - begun)
        raise
    run.iteration += 1
    recorder.iteration(experience, _seen(run, metrics), moved, time.perf_counter() - begun)


def _seen(run: Run, metrics: StepMetrics) -> StepMetrics:
    """Return what all processes have seen of the updates."""
    first, *others = run.world.gather(metrics)
    for other in others:
        first.join(other)
    return first


def _sample(run: Run, number: int) -> Experience:
    """Return rollout ``number`` of the run, sampled and scored.

    Raises:
        TooManyUnscored: more than ``rollout.max_infra_frac`` of the responses that ended could not be scored.
    """
    experience = _collect(run, number)
    counts, limit = experience.tally + experience.greedy_tally, run.config.rollout.max_infra_frac
    check_scored(counts, limit, "the rollout", "rollout.max_infra_frac")
    return experience


def _collect(run: Run, number: int) -> Experience:
    """Return fresh responses, and what is continued beside them."""
    config, carried = run.config, continued(run)
    places = config.rollout.num_prompts * config.rollout.group_size - len(run.unfinished)
    num_prompts = places // config.rollout.group_size
    if num_prompts == 0:
        assert carried is not None
        return carried
    fresh = collect(
        run.policy, run.sampler, run.task, run.objective,
        config.rollout.model_copy(update={"num_prompts": num_prompts}), run.ledger,
        seed=config.seed, iteration=number, cursor=run.cursor, prompts=run.prompts,
    )  # fmt: skip
    if carried is None:
        return fresh
    carried.prompt_of_row = carried.prompt_of_row + int(fresh.group.max()) + 1
    return joined(fresh, carried, run.policy.tokenizer.pad_id)


def _check_known(experience: Experience) -> None:
    """Raise TooManyUnscored if there is no reward to learn from."""
    if experience.rewards.isnan().all():
        raise TooManyUnscored(
            f"no response of the rollout could be scored; verdicts: {explain(experience.tally)}; mend what scores them "
            "and run again: it goes on from the last checkpoint"
        )


def _score(run: Run, experience: Experience, plan: Plan) -> Rollout:
    """Return the rollout with all that objective and trust region read."""
    logprobs, entropy = old_logprobs(run, experience, plan)
    rollout = Rollout(
        rewards=experience.rewards,
        group=experience.group,
        prompt=experience.prompt_of_row,
        origin=experience.origin,
        finish=experience.finish,
        response_ids=experience.ids,
        response_mask=experience.mask,
        old_logprobs=logprobs,
        rollout_logprobs=experience.logprobs,
        ref_logprobs=passes.frozen_logprobs(run, run.reference, "reference", experience, plan),
        teacher_logprobs=passes.frozen_logprobs(run, run.teacher, "teacher", experience, plan),
        old_entropy=entropy,
        old_values=passes.old_values(run, experience, plan),
        greedy_rewards=experience.greedy_rewards,
        correct=experience.correct,
        window_mask=experience.window_mask,
        **annotations(run, experience),
        max_response_tokens=run.config.rollout.max_response_tokens,
    )
    return shape_rewards(run, experience, rollout)


def _measure(run: Run, experience: Experience, rollout: Rollout, targets: Targets, plan: Plan) -> dict[str, float]:
    """Measure the divergence after the updates; a region that asked for it decides its next coefficient from it."""
    moved: dict[str, float] = {}
    if run.region.measured == "after_rollout":
        with run.ledger.timed("probe"):
            moved = probe(run, experience, rollout, targets, plan)
        run.settle(run.region.update(run.coef, moved["divergence"]))  # there is no update left to stop
    with run.ledger.outside("diagnostic"):
        moved = moved or probe(run, experience, rollout, targets, plan)
        return moved | measure_routing(run, experience, rollout, targets, plan)
