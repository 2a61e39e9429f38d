"""Benchmarks of other tools as workloads: what they time is called, with what their fixtures and setups made."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.document.message import WorkloadError
from perfgate.measuring.workload.benchmarks import asv_benchmark, pyperf_benchmark
from perfgate.measuring.workload.load import describe_functions

TEST = """
import logging
import pytest

@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_text("1 2 3")
    yield path
    path.unlink()

@pytest.mark.benchmark(group="sums")
@pytest.mark.parametrize("factor", [1, 10])
def test_sum(benchmark, file, factor):
    def read():
        logging.getLogger().warning("read")
        return factor * sum(map(int, file.read_text().split()))
    benchmark.extra_info["factor"] = factor
    assert benchmark(read) == 6 * factor

def test_wrong(benchmark):
    assert benchmark.pedantic(sum, args=([1, 2],), rounds=3) == 4

def test_setup(benchmark):
    benchmark.pedantic(sum, setup=lambda: (([1],), {}), rounds=3)

def test_none():
    pass
"""
# What a worker does with a workload: build it, and call its model. The last test stays in its thread.
WORKER = """
import sys
from perfgate.measuring.workload.benchmarks import pytest_benchmark

for test in sys.argv[1:]:
    workload = pytest_benchmark(f"test_suite.py::{test}")
    try:
        timed = workload.build("cpu")
        print(f"\\n{test}", [workload.call(timed, workload.inputs(1, 0)) for _ in range(3)])
    except Exception as error:
        print(f"\\n{test}", type(error).__name__, str(error).replace("\\n", " "))
"""


def test_pytest_benchmark__is_called_with_its_fixtures_or_says_why_not(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --benchmark-disable\n", encoding="utf-8")
    tests = ["test_wrong", "test_setup", "test_none", "test_gone", "test_sum[10]"]
    done = subprocess.run(
        [sys.executable, "-c", WORKER, *tests], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = {line.partition(" ")[0]: line for line in done.stdout.splitlines() if line.partition(" ")[0] in tests}
    assert lines["test_sum[10]"] == "test_sum[10] [60, 60, 60]"
    for test, error in {
        "test_wrong": "WorkloadError the test test_suite.py::test_wrong yielded no benchmark: .* AssertionError",
        "test_setup": "the setup would be timed too",
        "test_none": "pytest ended with .* before benchmark was called",
        "test_gone": "yielded no benchmark: pytest ended with",
    }.items():
        assert re.search(error, lines[test])


SUITE = """
from .common import times

class Suite:
    def setup_cache(self):
        return [1, 2, 3]

    def setup(self, numbers, factor):
        self.numbers = times(numbers, factor)

    def time_sum(self, numbers, factor):
        return sum(self.numbers)

    def track_sum(self, numbers, factor):
        return 1

def time_once():
    pass

time_once.number = 1
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("asv_suite", "asv_suite.common", "asv_suite.sums"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    folder = tmp_path / "asv_suite"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "common.py").write_text(
        "def times(numbers, factor):\n    return [factor * number for number in numbers]\n"
    )
    (folder / "sums.py").write_text(SUITE)
    return str(folder / "sums.py")


def test_asv_benchmark__of_a_class__is_called_after_its_setups(suite: str) -> None:
    workload = asv_benchmark(suite, "Suite.time_sum", 10)
    timed = workload.build("cpu")
    assert workload.call is not None
    assert workload.call(timed, workload.inputs(1, 0)) == 60


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("Suite.time_mean", "has no 'time_mean'; there are setup, setup_cache, time_sum, track_sum"),
        ("Suite.track_sum", "must be a time_ function"),
        ("time_once", "number = 1: its setup must run before every call"),
    ],
)
def test_asv_benchmark__that_cannot_be_timed__says_why(suite: str, name: str, error: str) -> None:
    with pytest.raises(WorkloadError, match=error):
        asv_benchmark(suite, name).build("cpu")


def test_asv_benchmark__no_such_file__says_from_where_it_is_written() -> None:
    with pytest.raises(WorkloadError, match="write the path from the folder of"):
        asv_benchmark("gone.py", "time_x").build("cpu")


PYPERF = """
import pyperf

runner = pyperf.Runner(processes=3)
if __name__ == "__main__":
    runner.argparser.add_argument("--size", type=int, default=100)
    size = runner.parse_args().size
    runner.metadata["size"] = size
    runner.bench_func("sort", sorted, range(size, 0, -1))
    async def later(value):
        return value
    runner.bench_async_func("later", later, 7)
    runner.bench_command("other", ["true"])
    runner.timeit("sum", "sum(numbers)", setup="numbers = [1, 2, 3]")
"""


def test_pyperf_benchmark__of_a_script__is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyperf.py").write_text("Runner = None\n")
    (tmp_path / "bench.py").write_text(PYPERF)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "pyperf", raising=False)
    script = str(tmp_path / "bench.py")
    assert pyperf_benchmark(script, "sort").build("cpu")() == list(range(1, 101))
    assert pyperf_benchmark(script, "sum").build("cpu")() > 0
    assert pyperf_benchmark(script, "later").build("cpu")() == 7
    with pytest.raises(WorkloadError, match="has no benchmark 'gone'; there are sort, later, sum"):
        pyperf_benchmark(script, "gone").build("cpu")


def test_benchmark__another_one__is_another_workload_to_the_gate() -> None:
    first, second = (describe_functions(asv_benchmark("suite.py", name)) for name in ("time_a", "time_b"))
    assert first != second
