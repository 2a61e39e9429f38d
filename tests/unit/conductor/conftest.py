"""A project with every bad workload there is, and a bench that measures it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfgate.conductor.sides.checklist.checklist import ChecklistPlan, Findings, run_checklist
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import Config, WorkloadReference, load_config
from tests.shared_bench import SharedBench

WORKLOADS = Path(__file__).parents[2] / "data" / "workloads"
# What planted processes sleep: so many seconds as nobody else's on this machine.
ASLEEP = f"1234.5{os.getpid()}"

TOML = """
project = "failing"
workload = "perf/failing.py:well"
[measure]
load_timeout = 120
step_timeout = 120
memory_limit = 3221225472
"""

Measure = Callable[..., Findings]


@pytest.fixture(scope="session")
def failing_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("failing")
    (root / "perf").mkdir()
    workloads = (WORKLOADS / "failing.py").read_text()
    assert "sleep 1234.5" in workloads
    (root / "perf" / "failing.py").write_text(workloads.replace("1234.5", ASLEEP))
    (root / "perfgate.toml").write_text(TOML)
    return root


@pytest.fixture
def said(shared_bench: SharedBench) -> list[str]:
    """What the conductor said it waits for."""
    return shared_bench.said


@pytest.fixture
def bench(shared_bench: SharedBench, failing_project: Path) -> Iterator[Bench]:
    with shared_bench.configured(load_config(failing_project)) as bench:
        yield bench


@pytest.fixture
def checkout(failing_project: Path) -> Checkout:
    return Checkout(root=failing_project, harness=failing_project)


@pytest.fixture
def measure(bench: Bench, checkout: Checkout, tmp_path: Path) -> Measure:
    """Run steps (3 and 2, unless told) of the checklist on one workload of failing.py."""

    def run(name: str, *, steps: tuple[int, ...] = (3, 2), **settings: object) -> Findings:
        before = bench.config
        bench.config = with_settings(before, **settings)
        try:
            return run_checklist(bench, checkout, reference_to(name), ChecklistPlan(steps, tmp_path))
        finally:
            bench.config = before

    return run


def with_settings(config: Config, **settings: object) -> Config:
    import msgspec

    return msgspec.structs.replace(config, measure=msgspec.structs.replace(config.measure, **settings))


def reference_to(name: str) -> WorkloadReference:
    return WorkloadReference(name=name, file="perf/failing.py", attribute=name)
