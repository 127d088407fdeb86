"""Runs untrusted programs, in two tiers: an interpreter without a host, and a locked-in CPython process."""

from tasks.sandbox.checks import Check, Suite, defined_names, parsed, read_checks
from tasks.sandbox.judge import Result, Tier, judge, judge_many
from tasks.sandbox.outcome import Failure, Limits, Outcome
from tasks.sandbox.programs import run_program
from tasks.sandbox.servers import self_test
from tasks.sandbox.stdio import CHECKERS, Case, judge_cases, judge_cases_many

__all__ = [
    "CHECKERS",
    "Case",
    "Check",
    "Failure",
    "Limits",
    "Outcome",
    "Result",
    "Suite",
    "Tier",
    "defined_names",
    "judge",
    "judge_cases",
    "judge_cases_many",
    "judge_many",
    "parsed",
    "read_checks",
    "run_program",
    "self_test",
]
