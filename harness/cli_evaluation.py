"""The commands that score responses and show them: ``evengrad eval | verify | samples``. Heavy imports wait.

Each returns the exit status; what it cannot do is a ``UserError``.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.arguments import FAILED, OK, add_command, add_settings, count, counts
from harness.config.errors import UserError

if TYPE_CHECKING:
    from harness.arguments import Commands
    from tasks.base import Task

__all__ = ["add_eval", "add_samples", "add_verify"]

_HELD_OUT = ("validation", "test")
_SPLITS = ("train", *_HELD_OUT)


def add_eval(commands: "Commands") -> None:
    """Add ``evengrad eval``."""
    command = add_command(
        *(commands, "eval", "Evaluate the final weights of a run: pass@k, maj@k, verdicts, by difficulty."),
        "evengrad eval results/runs/one --samples 8 --k 1,4,8 --out samples.jsonl",
    )
    command.add_argument("run_folder", type=Path, metavar="RUN_DIR")
    command.add_argument("--split", choices=_HELD_OUT, default="test")
    command.add_argument("--num-prompts", type=count, metavar="N", help="default: the run's eval.test_prompts")
    command.add_argument("--samples", type=count, metavar="N", help="responses a prompt; default: the run's")
    command.add_argument(
        "--k", type=counts, metavar="K,K", help="of pass@k and maj@k; default: the run's, with --samples 1 and N"
    )
    command.add_argument("--temperature", type=_temperature, metavar="T", help="0 is greedy; default: the run's")
    command.add_argument("--sampler", choices=("native", "vllm"), help="default: the run's")
    command.add_argument("--out", type=Path, metavar="FILE.jsonl", help="write every response, for evengrad samples")
    command.add_argument("--json", action="store_true", help="print the numbers as JSON")
    command.set_defaults(run=_eval)


def add_verify(commands: "Commands") -> None:
    """Add ``evengrad verify``."""
    command = add_command(
        *(commands, "verify", "Score a file of responses with a task, without a policy; or the task's gold answers."),
        "evengrad verify arithmetic --responses responses.jsonl --out scored.jsonl operands=[2,3]",
    )
    command.add_argument("task", metavar="TASK", help="a name of evengrad list tasks, or path/to/file.py:Class")
    add_settings(command)
    command.add_argument(
        "--responses",
        required=True,
        metavar="FILE.jsonl",
        help='lines {"id": ..., "response": ...}; or the word gold: exit status 1 if a gold answer does not pass',
    )
    command.add_argument("--split", choices=_SPLITS, default="test")
    command.add_argument("--out", type=Path, metavar="FILE.jsonl", help="write the scores, for evengrad samples")
    command.add_argument("--show", type=_whole, default=3, metavar="N", help="reasons shown of each verdict (3)")
    command.set_defaults(run=_verify)


def add_samples(commands: "Commands") -> None:
    """Add ``evengrad samples``."""
    command = add_command(
        *(commands, "samples", "Read what a policy wrote: prompts, responses, verdicts and why."),
        "evengrad samples results/runs/one --verdict wrong --point last",
    )
    command.add_argument("place", type=Path, metavar="RUN_OR_FILE", help="folder of a run or a sweep, or a file")
    command.add_argument("--cell", metavar="KEY", help="of a sweep: beginning of a cell's key, or of its arm's name")
    command.add_argument("--verdict", metavar="WORD", help="pass, wrong, format, ...")
    command.add_argument("--split", choices=_SPLITS)
    command.add_argument("--difficulty", metavar="LABEL")
    command.add_argument("--id", metavar="ID", help="of an example")
    command.add_argument("--point", metavar="P", help="last, or a fraction of the budget such as 0.5")
    command.add_argument("--limit", type=count, metavar="N", help="samples at most")
    command.set_defaults(run=_samples)


def _temperature(text: str) -> float:
    from harness.config.schema import LEAST_TEMPERATURE

    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not (number == 0 or LEAST_TEMPERATURE <= number < float("inf")):
        raise argparse.ArgumentTypeError(f"{text} is neither 0 nor a finite number >= {LEAST_TEMPERATURE}")
    return number


def _whole(text: str) -> int:
    return 0 if text == "0" else count(text)


def _eval(options: argparse.Namespace) -> int:
    if not (options.run_folder / "config.json").is_file():
        raise UserError(f"{options.run_folder} is no run's folder (config.json is missing)")
    _check_out(options.out)
    from harness import plugins
    from harness.engine.finished import evaluate_run, problems_changed
    from harness.outcome_tables import evaluation_parts
    from harness.terminal import write

    outcome, run = evaluate_run(
        options.run_folder,
        options.split,
        num_prompts=options.num_prompts,
        samples=options.samples,
        ks=options.k,
        temperature=options.temperature,
        sampler=options.sampler,
    )
    changed = problems_changed(options.run_folder, run)
    summary = {"split": options.split, "problems_changed": changed, **outcome.summary()}
    if options.out:
        _write_rows(options.out, outcome.rows())
    if options.json:
        write([json.dumps(summary, indent=1)])
        return OK
    title = f"{options.run_folder} on {plugins.label(run.task)}, {options.split}"
    write(evaluation_parts(title, summary, run.eval.pass_k, run.eval.samples, run.eval.temperature))
    if changed:
        write(["The task's problems or rules are not those that the run was made with: scores do not compare."])
    return OK


def _verify(options: argparse.Namespace) -> int:
    from harness.outcome_tables import verified_parts
    from harness.terminal import write
    from harness.verify import GOLD, verify

    if options.out and options.responses != GOLD and _same(options.out, Path(options.responses)):
        raise UserError(f"--out {options.out} would overwrite the responses: give another file")
    _check_out(options.out)
    verified = verify(_task(options.task, options.settings), options.task, options.responses, options.split)
    if options.out:
        _write_rows(options.out, verified.rows)
    write(verified_parts(verified, options.show))
    return FAILED if options.responses == GOLD and not verified.all_passed else OK


def _task(name: str, words: list[str]) -> "Task":
    from pydantic import ValidationError

    from harness import plugins
    from harness.config.loading import parse_assignments
    from harness.config.schema import Plugin

    settings = parse_assignments(words)
    if "name" in settings:
        raise UserError(f"name={settings['name']}: the task is named by the first word, {name}")
    try:
        return plugins.task(Plugin.model_validate({"name": name, **settings}))
    except ValidationError as error:
        raise UserError(f"task {name!r}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _samples(options: argparse.Namespace) -> int:
    from harness.samples import Filter, choose, read_samples, sample_parts
    from harness.terminal import write

    rows = read_samples(options.place, options.cell)
    names = ("verdict", "split", "difficulty", "id", "point")
    chosen = choose(rows, Filter(**{name: getattr(options, name) for name in names}))
    write(sample_parts(chosen, len(rows), options.limit), page=True)
    return OK


def _same(first: Path, second: Path) -> bool:
    return first.resolve() == second.resolve()


def _check_out(path: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"--out {path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: the folder {path.parent} does not exist")


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    from harness.sweeps.files import write_atomic

    lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    try:
        write_atomic(path, lines.encode())
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}") from error
