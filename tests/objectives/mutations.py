"""Seed single faults into a copy of objectives/ and see whether its tests notice.

    python -m tests.objectives.mutations [part of a name]

Prints killed or SURVIVED for each fault and exits 1 if any survived. Not run by pytest. Each fault gets a process of
its own, forked after torch is loaded.
"""
# ruff: noqa: E501

import io
import multiprocessing
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
JOBS = 2

# Where to look first, to be quick; the whole suite follows if that is not enough.
NEAREST = {"ops": "ops", "aggregation": "aggregation", "kl": "kl", "segments": "segments", "checks": "registry"}
NEAREST |= {"registry": "registry", "dual": "trust_region", "adaptive": "trust_region", "early_stop": "trust_region"}
NEAREST |= {"reference_penalty": "trust_region", "grpo": "reference", "gspo": "reference", "ppo": "reference"}
NEAREST |= {"gspo_subsequence": "identities"}

# (file under objectives/, text that occurs once, what takes its place, name of the fault)
# fmt: off
FAULTS = [
    ("ops.py", "masked(logprobs, mask) - masked(old_logprobs, mask)\n    return diff", "masked(old_logprobs, mask) - masked(logprobs, mask)\n    return diff", "ratio inverted"),
    ("ops.py", "return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)", "return difference", "log-ratio unbounded"),
    ("ops.py", ".abs() > MAX_LOG_RATIO", ".abs() > 2 * MAX_LOG_RATIO", "saturation marked late"),
    ("ops.py", ".abs() > MAX_LOG_RATIO", ".abs() >= MAX_LOG_RATIO", "saturation marked at the bound"),
    ("ops.py", "torch.where(advantages >= 0, ratio.clamp(max=1 + high)", "torch.where(advantages <= 0, ratio.clamp(max=1 + high)", "clip on the wrong side"),
    ("ops.py", "ratio.clamp(max=1 + high), ratio.clamp(min=1 - low)", "ratio.clamp(max=1 + low), ratio.clamp(min=1 - high)", "clip bounds swapped"),
    ("ops.py", "ratio.clamp(max=1 + high), ratio.clamp(min=1 - low)", "ratio.clamp(1 - low, 1 + high), ratio.clamp(1 - low, 1 + high)", "clip two-sided"),
    ("ops.py", "return torch.where(mask, x, 0.0)", "return x * mask", "mask by product"),
    ("ops.py", "masked(x, mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)", "masked(x, mask).mean(1, keepdim=True)", "row mean over padded width"),
    ("ops.py", "known = ~torch.isnan(rewards)", "known = torch.ones_like(rewards, dtype=torch.bool)\n    rewards = rewards.nan_to_num(0)", "unknown reward counts as 0"),
    ("ops.py", "(count - 1).clamp(min=1)", "count.clamp(min=1)", "standard deviation biased"),
    ("ops.py", "variance.sqrt()[group] + std_eps", "(variance + std_eps).sqrt()[group]", "std_eps inside the root"),
    ("ops.py", "    if scale_by_std:\n", "    if not scale_by_std:\n", "scale_by_std inverted"),
    ("ops.py", "(largest > _SPREAD_TOLERANCE * size) & (count > 1)", "(largest >= 0) & (count > 1)", "constant groups kept"),
    ("ops.py", "_SPREAD_TOLERANCE = 1e-6", "_SPREAD_TOLERANCE = 1e-3", "narrow groups dropped"),
    ("ops.py", "values = torch.where(known, rewards, 0.0).double()", "values = torch.where(known, rewards, 0.0).float()", "group mean in float32"),
    ("ops.py", "variance = centred.square().sum() / (count - 1)", "variance = centred.square().sum() / count", "whitening biased"),
    ("ops.py", "if count <= 1:", "if count <= 0:", "whitening of one entry"),
    ("ops.py", "delta + gamma * lam * advantage, advantage)", "delta + gamma * advantage, advantage)", "GAE without lambda"),
    ("ops.py", "advantage = torch.where(here, delta + gamma * lam * advantage, advantage)", "advantage = torch.where(here, delta + gamma * lam * advantage, 0.0)", "GAE cut by masked tokens"),
    ("ops.py", "torch.where(here, values[:, t], next_value)", "values[:, t].nan_to_num()", "GAE reads masked values"),
    ("ops.py", "gather(1, ends)[:, 0]", "gather(1, ends)[:, 0] * 0", "GAE never bootstraps"),
    ("ops.py", "returns = advantages + masked(values[:, :length], mask)", "returns = advantages", "returns without value"),
    ("aggregation.py", "return mask.to(_dtype(step)) / (_rows(mask) * lengths)", "return mask.to(_dtype(step)) / (mask.shape[0] * lengths)", "empty rows count"),
    ("aggregation.py", "/ mask.sum().clamp(min=1)", "/ mask.numel()", "token mean over padding"),
    ("aggregation.py", "_rows(mask) * step.max_response_tokens", "_rows(mask) * mask.shape[1]", "constant length is the padded one"),
    ("aggregation.py", "mask.any(1).sum().clamp(min=1)", "mask.any(1).sum()", "division by no rows"),
    ("aggregation.py", "torch.float32 if step.old_logprobs is None else step.old_logprobs.dtype", "torch.float32", "weights in float32"),
    ("grpo.py", "policy=-clipped * batch.advantages", "policy=clipped * batch.advantages", "sign of GRPO"),
    ("grpo.py", "scale_by_std=True", "scale_by_std=False", "GRPO without deviation"),
    ("grpo.py", "return sequence_mean(step)", "from objectives.aggregation import token_mean\n\n        return token_mean(step)", "GRPO by token mean"),
    ("grpo.py", "rollout.scored), rollout.scored)", "rollout.response_mask), rollout.response_mask)", "unknown rewards in the loss mask"),
    ("grpo.py", "(clipped != ratio) | saturated(*pair)", "clipped != ratio", "saturated tokens not clipped"),
    ("gspo.py", "torch.exp(row_mean(log_ratio(*pair), mask))", "torch.exp(log_ratio(*pair))", "GSPO by token"),
    ("gspo.py", "torch.exp(row_mean(log_ratio(*pair), mask))", "torch.exp(log_ratio(*pair).sum(1, keepdim=True))", "GSPO by the sum"),
    ("gspo.py", "clip_low: float = 3e-4", "clip_low: float = 4e-4", "GSPO default"),
    ("gspo_subsequence.py", "if self.norm == \"mean\" else total", "if self.norm == \"none\" else total", "norm inverted"),
    ("gspo_subsequence.py", "free.clamp(max=high).where(advantage >= 0, free.clamp(min=low))", "free.clamp(max=high).where(advantage < 0, free.clamp(min=low))", "one_sided on the wrong side"),
    ("gspo_subsequence.py", "math.log1p(-self.clip_low) if self.clip_low < 1", "-math.log1p(self.clip_low) if self.clip_low < 1", "lower bound 1 / (1 + low)"),
    ("gspo_subsequence.py", "-surrogate.detach() * advantage", "-surrogate * advantage", "stopgrad not detached"),
    ("gspo_subsequence.py", "return constant(step) if self._raw else sequence_mean(step)", "return sequence_mean(step)", "raw by row mean"),
    ("gspo_subsequence.py", "self.norm == \"none\" and self.outer_root == \"none\"", "self.norm == \"none\"", "rooted counted as raw"),
    ("gspo_subsequence.py", "(tokens > 0).to(tokens.dtype).sum(1, keepdim=True).clamp(min=1)", "(tokens > 0).sum(1, keepdim=True).clamp(min=1)", "root in float32"),
    ("gspo_subsequence.py", "(tokens > 0).to(tokens.dtype).sum(1, keepdim=True)", "(tokens >= 0).to(tokens.dtype).sum(1, keepdim=True)", "root over absent segments"),
    ("gspo_subsequence.py", " | (log_rho.abs() > MAX_LOG_RATIO)", "", "bounded product not clipped"),
    ("gspo_subsequence.py", "surrogate = log_rho.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()", "surrogate = log_rho.exp()", "product unbounded"),
    ("gspo_subsequence.py", "return 1 / tokens.gather(1, segment).clamp(min=1)", "return 1 / tokens.sum(1, keepdim=True).clamp(min=1)", "raw mean shared by row"),
    ("gspo_subsequence.py", "segment = fixed_length(mask, self.segment_tokens)", "segment = fixed_length(mask, self.num_segments)", "segment length from the count"),
    ("gspo_subsequence.py", "clip_mode: Literal[\"plain\", \"one_sided\", \"stopgrad\"] = \"plain\"", "clip_mode: Literal[\"plain\", \"one_sided\", \"stopgrad\"] = \"one_sided\"", "default is not the literal proposal"),
    ("ppo.py", "columns[1:] == ends", "columns[1:] == mask.sum(1, keepdim=True)", "reward at the count of tokens"),
    ("ppo.py", "rollout.finish != Finish.WINDOW", "rollout.finish == Finish.EOS", "length limit bootstraps"),
    ("ppo.py", "Targets(whiten(advantages, mask)", "Targets(advantages", "PPO not whitened"),
    ("ppo.py", "torch.maximum(", "torch.minimum(", "value loss by the minimum"),
    ("ppo.py", "values.clamp(old_values - self.value_clip, old_values + self.value_clip)", "values.clamp(max=old_values + self.value_clip)", "value clip one-sided"),
    ("ppo.py", ".square()) / 2", ".square())", "value loss not halved"),
    ("ppo.py", "entropy=-self.entropy_coef", "entropy=self.entropy_coef", "entropy penalised"),
    ("ppo.py", "for x in (batch.values,", "for x in (batch.values.detach(),", "critic without gradient"),
    ("segments.py", "_positions(mask) * parts // lengths", "_positions(mask) * count // lengths", "parts of short rows skip ids"),
    ("segments.py", "_positions(mask) // length", "(_positions(mask) + 1) // length", "segment off by one"),
    ("segments.py", "(mask.cumsum(1) - 1).clamp(min=0)", "torch.arange(mask.shape[1]).expand(mask.shape)", "positions count masked tokens"),
    ("segments.py", "sums = zeros.scatter_add(1, ids, masked(x, mask))", "sums = zeros.scatter_add(1, ids, x)", "segment sums read masked slots"),
    ("kl.py", "return -log_ratio(", "return log_ratio(", "sign of k1"),
    ("kl.py", ".square() / 2", ".square()", "k2 not halved"),
    ("kl.py", "torch.expm1(d) - d", "torch.expm1(-d) + d", "k3 reversed"),
    ("kl.py", "torch.expm1(d) - d", "torch.exp(d) - 1 - d", "k3 without expm1"),
    ("trust_region/dual.py", "math.exp(self.rate * violation)", "math.exp(-self.rate * violation)", "dual descent"),
    ("trust_region/dual.py", "_FLOOR * self.coef", "0.0", "multiplier without a floor"),
    ("trust_region/dual.py", "min(max(kl / self.delta - 1, -1.0), 1.0)", "max(-1.0, min(1.0, kl / self.delta - 1))", "NaN drops the bound"),
    ("trust_region/dual.py", "kl / self.delta - 1", "kl - self.delta", "dual step not divided by delta"),
    ("trust_region/dual.py", ", 1.0)\n", ", 9.0)\n", "violation not clipped"),
    ("trust_region/adaptive.py", "return Verdict(coef / self.rate)", "return Verdict(coef * self.rate)", "adaptive never halves"),
    ("trust_region/adaptive.py", "self.target / self.tolerance", "self.target", "adaptive without lower band"),
    ("trust_region/early_stop.py", "self.tolerance * self.target", "self.target", "early stop without tolerance"),
    ("trust_region/reference_penalty.py", "return ratio * k3(batch.ref_logprobs, batch.logprobs", "return ratio * k3(batch.logprobs, batch.ref_logprobs", "reference penalty reversed"),
    ("trust_region/reference_penalty.py", "return ratio * k3(", "return ratio.detach() * k3(", "reference ratio detached"),
    ("trust_region/reference_penalty.py", "return ratio * k3(", "return k3(", "reference penalty without ratio"),
    ("trust_region/base.py", "return torch.ones_like(batch.loss_mask)", "return torch.ones_like(batch.logprobs)", "keep is float"),
    ("registry.py", "chosen = {**presets[preset], **chosen}", "chosen = {**chosen, **presets[preset]}", "preset wins over settings"),
    ("registry.py", "isinstance(value, int) and not isinstance(value, bool)", "isinstance(value, int)", "bool taken for int"),
    ("registry.py", "value.__module__ == module.__name__", "value.__module__", "imported classes registered"),
    ("registry.py", "if len(classes) > 1:", "if len(classes) > 2:", "two objectives in a file"),
    ("registry.py", "ImportError, SyntaxError, ValueError, TypeError, NameError, AttributeError", "ImportError, ValueError, TypeError, NameError, AttributeError", "syntax error not named"),
    ("checks.py", "if not value >= bound:", "if value < bound:", "NaN passes at_least"),
    ("checks.py", "math.isfinite(value) and value > 0", "value >= 0", "0 passes positive"),
    ("checks.py", "if not low <= value <= high:", "if not low <= value:", "between without upper bound"),
    ("data.py", "(torch.bfloat16, torch.float16)", "(torch.bfloat16,)", "float16 accepted"),
    ("data.py", "if value.requires_grad and not live:", "if False:", "gradients on constants accepted"),
    ("data.py", "self.response_mask & ~torch.isnan(self.rewards)[:, None]", "self.response_mask", "unknown rewards scored"),
    ("data.py", "width + 1 if item.name == \"old_values\" else width", "width", "old_values of width T"),
]
# fmt: on


def mutate(target: Path, fault: tuple[str, str, str, str]) -> str | None:
    """Copy what the tests need to ``target`` and apply ``fault``; return what is wrong with it, if anything."""
    file, old, new, _ = fault
    for part in ("objectives", "tests/objectives"):
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", target)
    (target / "tests" / "__init__.py").touch()
    path = target / "objectives" / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    return None if text.count(old) == 1 else f"STALE: its text occurs {text.count(old)} times"


def verdict(fault: tuple[str, str, str, str]) -> str:
    """Return "killed by TEST" or "SURVIVED"; runs in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        stale = mutate(Path(folder), fault)
        if stale:
            return stale
        os.chdir(folder)
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "objectives")]:
            del sys.modules[name]
        sys.path[:] = [folder, *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
        sys.dont_write_bytecode = True
        torch.set_num_threads(1)
        output = io.StringIO()
        near = f"tests/objectives/test_{NEAREST.get(Path(fault[0]).stem, 'contract')}.py"
        with redirect_stdout(output):
            for where in (near, "tests/objectives"):
                code = pytest.main([where, "-x", "-q", "--tb=no", "-p", "no:cacheprovider"])
                if code != pytest.ExitCode.OK:
                    break
        os.chdir(ROOT)
    if code == pytest.ExitCode.OK:
        return "SURVIVED"
    failed = [line for line in output.getvalue().splitlines() if line.startswith(("FAILED", "ERROR"))]
    return f"killed by {failed[0].split('::')[-1].split(' - ')[0]}" if failed else f"NO VERDICT {output.getvalue()}"


def warm_up() -> None:
    """Load pytest's plugins and what torch loads late, once and before the forks."""
    torch.testing.assert_close(torch.ones(1), torch.ones(1))
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        pytest.main([folder, "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")])


def main(part: str = "") -> int:
    """Run every fault whose name holds ``part``."""
    chosen = [fault for fault in FAULTS if part in fault[3]]
    warm_up()
    killed = 0
    with multiprocessing.get_context("fork").Pool(JOBS, maxtasksperchild=1) as pool:
        for fault, found in zip(chosen, pool.imap(verdict, chosen), strict=True):
            killed += found.startswith("killed")
            print(f"{fault[0]:32} {fault[3]:38} {found}", flush=True)  # noqa: T201
    print(f"{killed} of {len(chosen)} killed")  # noqa: T201
    return int(killed < len(chosen))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
