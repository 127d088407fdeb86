"""Seed single faults into a copy of tasks/ and see whether its tests notice.

    python -m tests.tasks.mutations [part of a name]

Prints killed or SURVIVED for each fault and exits 1 if any survived. Not run by pytest. Published data do not lie
beside the copy, so that the tests over them are left out; a fault that only they would notice is to be seen.
"""

import sys

from tests.mutations import Campaign, Fault, main
from tests.tasks.faults_answers import ANSWERS, GYM
from tests.tasks.faults_data import DATA
from tests.tasks.faults_sandbox import SANDBOX
from tests.tasks.faults_tasks import TASKS

FAULTS: list[Fault] = [*TASKS, *DATA, *ANSWERS, *GYM, *SANDBOX]

# Where to look first, to be quick; the whole suite follows if that is not enough.
_FILES = {
    "splits.py": "arithmetic registry sources/data_task",
    "settings.py": "registry",
    "registry.py": "registry",
    "drawn.py": "drawn arithmetic",
    "arithmetic.py": "arithmetic",
    "synthesis.py": "synthesis drawn",
    "program_families.py": "synthesis",
    "countdown.py": "countdown drawn",
    "code_task.py": "code_task programs registry mbpp",
    "mbpp.py": "code_task mbpp",
    "humaneval.py": "code_task humaneval",
    "programs.py": "code_task programs",
    "gsm8k.py": "gsm8k",
    "math.py": "math",
    "answers/symbolic.py": "math answers/answers_grading",
    "sandbox/child/wire.py": "sandbox/wire sandbox/judge",
    "sandbox/child/driver.py": "sandbox/stdio sandbox/judge sandbox/isolation",
    "sandbox/checks.py": "sandbox/checks sandbox/judge",
    "sandbox/judge.py": "sandbox/judge",
    "sandbox/monty.py": "sandbox/run_program sandbox/judge",
    "sandbox/outcome.py": "sandbox/run_program",
    "sandbox/programs.py": "sandbox/run_program",
    "sandbox/stdio.py": "sandbox/stdio",
}
_FOLDERS = {
    "reasoning_gym": "reasoning_gym",
    "answers": "answers/answers_verdicts answers/answers_extract answers/answers_units answers/answers_grading "
    "answers/answers_hostile answers/answers_properties",
    "sources": "sources/schema sources/rows sources/data_task sources/hub gsm8k",
    "sandbox": "sandbox/isolation sandbox/judge sandbox/stdio",
}


def _paths(names: str) -> list[str]:
    parts = [name.rpartition("/") for name in names.split()]
    return [f"tests/tasks/{folder}{slash}test_{name}.py" for folder, slash, name in parts]


def _nearest(file: str) -> list[str]:
    if file == "contract.py":
        return [*_paths("contract"), "-k=battery"]
    folder = next((names for start, names in _FOLDERS.items() if file.startswith(start)), "contract")
    return _paths(_FILES.get(file, folder))


CAMPAIGN = Campaign(
    package="tasks",
    faults=FAULTS,
    nearest={fault[0]: _nearest(fault[0]) for fault in FAULTS},
    apart=True,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN, *sys.argv[1:2]))
