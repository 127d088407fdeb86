"""The command line: ``evengrad train | sweep | report | compare | diff | status | gc | eval | verify | samples | ...``.

Heavy imports wait for their command.

Exit status: 0 done, 1 a run failed or a claim is broken, 2 bad input (one line on stderr), 130 interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.arguments import FAILED, OK, Parser, add_command, add_settings, count, names
from harness.cli_evaluation import add_eval, add_samples, add_verify
from harness.cli_studies import add_compare, add_diff, add_gc, add_status, add_track
from harness.config.errors import UserError

if TYPE_CHECKING:
    from harness.arguments import Commands

__all__ = ["main"]

BAD_INPUT, INTERRUPTED = 2, 130
_WORKLOADS = ("embedded", "smollm2", "sweep")
_KINDS = ("objectives", "regions", "tasks", "policies", "figures")
_EXECUTORS = ("local", "ray", "slurm")
_ENGINE = "harness.engine.cells:run_cell"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        options = _parse(arguments)
        return options.run(options)
    except UserError as error:
        print(f"evengrad: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("evengrad: stopped; the same command goes on from the last checkpoints", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return OK


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments; settings may stand before, between and behind the options."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and ("settings" not in options or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.settings += rest
    return options


def _parser() -> Parser:
    parser = Parser(
        prog="evengrad",
        description="Compare policy-gradient objectives for language models at matched compute.",
        epilog="example: evengrad sweep results/quick/sweep.toml",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_train(commands)
    _add_sweep(commands)
    _add_report(commands)
    for add in (add_compare, add_diff, add_status, add_gc, add_track):
        add(commands)
    add_eval(commands)
    add_verify(commands)
    add_samples(commands)
    _add_bench(commands)
    _add_list(commands)
    _add_check(commands)
    return parser


def _add_train(commands: "Commands") -> None:
    command = add_command(
        *(commands, "train", "Run or resume one run."),
        "evengrad train run.toml objective.name=gspo budget.amount=1e12 --out results/runs/one",
    )
    command.add_argument("config", type=Path, metavar="CONFIG.toml")
    _add_run_settings(command)
    command.add_argument("--out", type=Path, metavar="DIR", help="default: results/runs/<name of the file>")
    command.set_defaults(run=_train)


def _add_sweep(commands: "Commands") -> None:
    command = add_command(
        *(commands, "sweep", "Run or resume a sweep, then write its records, tables and figures."),
        "evengrad sweep results/quick/sweep.toml seeds=[0,1] --workers 2 --out results/runs/quick",
    )
    command.add_argument("sweep", type=Path, metavar="SWEEP.toml")
    _add_run_settings(command)
    command.add_argument("--out", type=Path, metavar="DIR", help="default: results/runs/<name of the study>")
    command.add_argument("--dry-run", action="store_true", help="check everything, list the cells and their cost")
    command.add_argument("--workers", type=count, metavar="N", help="cells at a time; default: the file's workers")
    command.add_argument("--retry-failed", action="store_true", help="run cells again that failed before")
    command.add_argument(
        "--reuse",
        type=Path,
        action="append",
        metavar="DIR",
        help="take over cells that sweeps in DIR have completed; may be repeated; default: the folder of --out",
    )
    command.add_argument("--no-reuse", action="store_true", help="run every cell that is not completed in --out")
    command.add_argument("--executor", choices=_EXECUTORS, help="what runs the cells; default: the file's, or local")
    command.add_argument("--join", action="store_true", help="share the work of a sweep that runs in DIR already")
    command.add_argument("--track", metavar="TARGET", help="mirror the records: wandb, wandb:online, tensorboard")
    command.set_defaults(run=_sweep)


def _add_report(commands: "Commands") -> None:
    command = add_command(
        *(commands, "report", "Write the tables and figures of a study, and page.html with all of it."),
        "evengrad report results/claim --figures learning_curves,entropy --formats pdf --out paper",
    )
    command.add_argument("study", type=Path, metavar="STUDY_DIR", help="a sweep's folder, or one with records")
    command.add_argument("--out", type=Path, metavar="DIR", help="default: STUDY_DIR")
    command.add_argument(
        *("--figures", "--figure"),
        **{"action": "extend", "type": names, "metavar": "NAME,..."},
        help="these figures only, and no page (evengrad list figures); may be repeated",
    )
    command.add_argument("--formats", type=names, metavar="KIND,...", help="of figures; default: png,pdf,svg")
    command.add_argument("--baseline", metavar="ARM", help="arm that differences are taken to")
    command.add_argument("--style", metavar="FILE", help="matplotlib style file")
    command.set_defaults(run=_report)


def _add_bench(commands: "Commands") -> None:
    command = add_command(
        *(commands, "bench", "Measure the engine side by side with TRL and transformers on this machine."),
        "evengrad bench embedded --threads 1 --out bench.json",
    )
    command.add_argument(
        "workloads",
        nargs="*",
        choices=_WORKLOADS,
        metavar="WORKLOAD",
        help=f"{', '.join(_WORKLOADS)}; default: the first",
    )
    command.add_argument("--threads", type=count, default=2, metavar="N", help="torch threads; default: 2")
    command.add_argument("--rounds", type=count, default=5, metavar="N", help="iterations that count; default: 5")
    command.add_argument("--out", type=Path, metavar="FILE.json", help="write every number there")
    command.set_defaults(run=_bench)


def _add_list(commands: "Commands") -> None:
    command = add_command(
        *(commands, "list", "List what there is to choose from, with settings and defaults."),
        "evengrad list objectives",
    )
    command.add_argument("kind", nargs="?", choices=_KINDS, help="default: all of them")
    command.set_defaults(run=_list)


def _add_check(commands: "Commands") -> None:
    command = add_command(
        *(commands, "check", "Check that an objective, a trust region or a task keeps its contract."),
        "evengrad check my_objective.py:MyObjective",
    )
    command.add_argument("plugin", metavar="FILE:Class")
    command.set_defaults(run=_check)


def _add_run_settings(command: Parser) -> None:
    add_settings(command)
    command.add_argument("--engine", default=_ENGINE, help=argparse.SUPPRESS)


def _train(options: argparse.Namespace) -> int:
    from harness.config.loading import parse_assignments
    from harness.sweeps.command import train

    return train(options.config, parse_assignments(options.settings), options.out, _say, options.engine)


def _sweep(options: argparse.Namespace) -> int:
    from harness.config.loading import parse_assignments
    from harness.sweeps.command import DEFAULT_FOLDER, run_sweep
    from harness.sweeps.planning import plan_sweep

    settings = parse_assignments(options.settings)
    if options.executor:
        settings["executor.name"] = options.executor
    plan = plan_sweep(options.sweep, settings, options.engine)
    folder = options.out or DEFAULT_FOLDER / plan.sweep.name
    if options.dry_run:
        _say(plan.table(folder))
        return OK
    from harness.tracking.process import tracked

    reuse = [] if options.no_reuse else options.reuse or [folder.parent]
    chosen = {"workers": options.workers, "retry_failed": options.retry_failed, "join": options.join, "reuse": reuse}
    with tracked(folder, options.track, _say):
        return run_sweep(plan, folder, _say, **chosen)


def _report(options: argparse.Namespace) -> int:
    from harness.sweeps.reporting import write_reports

    chosen = {"baseline": options.baseline, "figures": options.figures, "style": options.style}
    chosen |= {"formats": options.formats, "say": _say}
    for path in write_reports(options.study, options.out or options.study, **chosen):
        _say(str(path))
    return OK


def _bench(options: argparse.Namespace) -> int:
    from harness.bench.command import bench

    bench(options.workloads or _WORKLOADS[:1], options.threads, options.rounds, options.out, _say)
    return OK


def _list(options: argparse.Namespace) -> int:
    from harness.catalogue import describe

    for kind in [options.kind] if options.kind else _KINDS:
        if not options.kind:
            _say(f"[{kind}]")
        for line in describe(kind):
            _say(line)
    return OK


def _check(options: argparse.Namespace) -> int:
    from harness.catalogue import check

    claims = check(options.plugin)
    for claim, fault in claims:
        _say(f"ok      {claim}" if fault is None else f"BROKEN  {claim}: {' '.join(fault.split())}")
    return FAILED if any(fault is not None for _, fault in claims) else OK


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
