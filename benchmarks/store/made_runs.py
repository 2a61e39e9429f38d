"""A made store of many runs: projects with four testbeds each, whose values repeat the
noise of recorded histories.

Everything follows from the numbers of project, testbed and version, so that two stores
of one size hold the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import numpy as np
from histories import Floats, load_histories

from perfgate.document.run import (
    Checklist,
    CounterSet,
    RunDocument,
    Session,
    Source,
    StepResult,
    Value,
    WorkloadRecord,
)
from perfgate.document.testbed import Testbed

TESTBEDS = 4
# The default of [store] keep.
VERSIONS = 2000
FIRST = datetime(2025, 11, 1, tzinfo=timezone.utc)
HOURS = 4.4
WORKLOADS = ("encoder", "decoder")
OPERATORS = "counters.framework_ops"
# Step, and the level of each number; the operators are counted.
LEVELS: dict[str, tuple[int, float]] = {
    "latency.low": (1, 0.0341),
    "latency.p50": (1, 0.0352),
    "latency.p99": (1, 0.0417),
    "throughput.median": (1, 226.0),
    "utilization.host": (2, 0.83),
    "memory.allocated": (17, 5.2e8),
    "memory.resident": (17, 9.4e8),
    OPERATORS: (4, 412.0),
}
# Every so many versions one level rises for good.
STEP_EVERY, STEP = 700, 1.06


class MadeTestbed(NamedTuple):
    """All runs of one project on one testbed: when each began, and the values of each
    series.
    """

    project: str
    fingerprint: str
    numbers: range
    started: Floats
    values: dict[tuple[str, str], Floats]

    def session(self, version: int) -> str:
        return f"{self.fingerprint[:6]}-{version}"

    def started_at(self, version: int) -> str:
        return datetime.fromtimestamp(self.started[version], timezone.utc).isoformat()

    def commit(self, version: int) -> str:
        return hashlib.sha256(f"{self.project} {version}".encode()).hexdigest()[:40]

    def document(self, version: int) -> RunDocument:
        """The run as a document, with these values and no samples."""
        start = self.started_at(version)
        return RunDocument(
            perfgate_version="0.1.0",
            project=self.project,
            session=Session(
                id=self.session(version),
                started_at=start,
                finished_at=start,
                seed=version,
                command="perfgate run",
            ),
            source=Source(
                commit=self.commit(version),
                branch="main",
                subject=f"Change number {version}",
            ),
            testbed=Testbed(
                fingerprint=self.fingerprint,
                device_kind="cpu",
                comparable={"cpu.model": "made"},
            ),
            workloads=[
                WorkloadRecord(
                    name=name,
                    reference="w.py:f",
                    sha256="0" * 64,
                    batch=8,
                    shapes=["long"],
                    quick=False,
                )
                for name in WORKLOADS
            ],
            checklist=Checklist(
                steps=[
                    self._step(name, step, version)
                    for name in WORKLOADS
                    for step in (1, 2, 17)
                ],
                counters=[
                    CounterSet(
                        workload=name,
                        shape="long",
                        repeats=3,
                        values={
                            OPERATORS: round(self.values[name, OPERATORS][version])
                        },
                        ops=[],
                        steady=[OPERATORS],
                    )
                    for name in WORKLOADS
                ],
            ),
        )

    def _step(self, workload: str, number: int, version: int) -> StepResult:
        values = [
            Value(
                metric=name,
                value=float(self.values[workload, name][version]),
                labels={"shape": "long"},
            )
            for name, (step, _) in LEVELS.items()
            if step == number
        ]
        slug = {1: "latency", 2: "utilization", 17: "memory"}[number]
        return StepResult(
            number=number,
            slug=slug,
            workload=workload,
            status="ok",
            values=values,
            duration=1.0,
            waited=0.01,
        )


def made_testbeds(projects: int, folder: Path) -> Iterator[MadeTestbed]:
    """The testbeds of so many projects; runs are numbered from 1."""
    noise = [
        residuals(history.values)
        for history in load_histories(folder)
        if not history.change
    ]
    for project in range(projects):
        for testbed in range(TESTBEDS):
            first = (project * TESTBEDS + testbed) * VERSIONS + 1
            hours = HOURS * np.arange(VERSIONS) + testbed / 6
            yield MadeTestbed(
                project=project_name(project),
                fingerprint=hashlib.sha256(f"{project} {testbed}".encode()).hexdigest(),
                numbers=range(first, first + VERSIONS),
                started=np.asarray(FIRST.timestamp() + 3600 * hours, dtype=np.float64),
                values={
                    (workload, metric): _values(
                        metric, noise, (project, testbed, at, place)
                    )
                    for at, workload in enumerate(WORKLOADS)
                    for place, metric in enumerate(LEVELS)
                },
            )


def project_name(number: int) -> str:
    return f"team-{number:03}"


def residuals(values: Floats) -> Floats:
    """The relative noise of a recorded history, around the median of the values beside
    each.
    """
    beside = np.lib.stride_tricks.sliding_window_view(
        np.pad(values, 5, mode="edge"), 11
    )
    return values / np.median(beside, axis=1) - 1


def ends_at(days: float = 1.0) -> datetime:
    """A moment after the newest made run."""
    return FIRST + timedelta(hours=HOURS * VERSIONS, days=days)


def _values(metric: str, noise: list[Floats], seed: tuple[int, ...]) -> Floats:
    """A series: its level, a rise now and then, and the noise of a recorded history
    from any place of it on.
    """
    random = np.random.default_rng(seed)
    recorded = noise[random.integers(len(noise))]
    at = (random.integers(recorded.size) + np.arange(VERSIONS)) % recorded.size
    rises = (np.arange(VERSIONS) + random.integers(STEP_EVERY)) // STEP_EVERY
    levels = LEVELS[metric][1] * STEP ** (rises % 2)
    return np.round(levels) if metric == OPERATORS else levels * (1 + recorded[at])
