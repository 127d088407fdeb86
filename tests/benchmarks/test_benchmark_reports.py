"""The report of a thousand recorded cells: tables, figures in every format and the page, in a process of its own.

    pytest tests/benchmarks/test_benchmark_reports.py --benchmark-only

``extra_info`` holds processor seconds, and the largest memory of the process and of those that draw figures.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, resource, sys
sys.path.insert(0, "tests/harness/reports")
from harness.reports.page import PageSources, Provenance
from harness.reports.report import write_report
from harness.reports.study import load_study

files = write_report(load_study(sys.argv[1]), sys.argv[2], page=PageSources(Provenance("many"), (), ""))
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "files": len(files),
    "torch": "torch" in sys.modules,
    "cpu_seconds": round(sum(one.ru_utime + one.ru_stime for one in used), 1),
    "parent_mib": round(used[0].ru_maxrss / 2**10),
    "largest_worker_mib": round(used[1].ru_maxrss / 2**10),
}))
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many") / "records"
    make = "import sys; sys.path.insert(0, 'tests/harness/reports'); import synthetic_study as s"
    subprocess.run([sys.executable, "-c", f"{make}; s.write_many(sys.argv[1])", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.timeout(900)
@pytest.mark.benchmark(group="report of 1,000 cells")
def test_report_of_a_thousand_cells(benchmark, records, tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(records), str(tmp_path)]

    def report():
        return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)

    found = benchmark.pedantic(report, rounds=1)
    assert not found["torch"]
    assert found["files"] == len(list(tmp_path.rglob("*.*")))
    benchmark.extra_info.update(found)
