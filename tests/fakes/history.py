"""Runs of main as a store keeps them over months: what a test does not script is quiet and has realistic noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import numpy as np

from perfgate.document.message import quote
from perfgate.document.run import (
    CounterSet,
    ErrorDetail,
    OpCount,
    RunDocument,
    Session,
    Source,
    StepProcedure,
    StepResult,
    Value,
)
from perfgate.document.testbed import Testbed
from tests.fakes.documents import TESTBED, make_run, run_steps
from tests.fakes.records import changed

START = datetime(2026, 5, 4, 2, 30, tzinfo=timezone.utc)
NOISE = 0.012
# Steps that were measured in another way compare with none of these.
MEASURED = StepProcedure(quick=False)
TIMES = ("latency.low", "latency.p50", "latency.p90", "latency.p99")
Level = Callable[[int], float]


def commit_of(index: int) -> str:
    """Return the commit of the nth run of main."""
    return f"{index:04x}" + "c0ffee" * 6


def steady(_index: int) -> float:
    return 1.0


def stepped(at: int, factor: float) -> Level:
    """Return a level that changes by a factor at one run for good."""
    return lambda index: factor if index >= at else 1.0


def main_runs(
    count: int,
    *,
    time: Level = steady,
    memory: Level = steady,
    operators: Level = steady,
    new_testbed: int | None = None,
    failing: Sequence[int] = (),
    seed: int = 1,
    shapes: Sequence[str] = ("short", "long"),
    commits: Callable[[int], str] = commit_of,
    days: float = 1.4,
) -> list[RunDocument]:
    """Return the runs, oldest first; ``time`` is the level of shape ``long``, ``new_testbed`` the run with another torch."""
    random = np.random.default_rng(seed)
    made = []
    for index in range(count):
        began = START + timedelta(days=days * index)
        comparable = {
            **TESTBED,
            **({"torch": "2.14.0+cpu"} if new_testbed is not None and index >= new_testbed else {}),
        }
        session = Session(
            id=f"{seed}-{index}",
            started_at=began.isoformat(),
            finished_at=(began + timedelta(minutes=3)).isoformat(),
            seed=20201120,
            command="run",
        )
        steps = [
            *(_latency(random, shape, time(index) if shape == "long" else 1.0) for shape in shapes),
            *run_steps()[1:],
            _thermal(random, hot=index in failing),
        ]
        if index in failing:
            steps[-3] = _failed(steps[-3])
        made.append(
            make_run(
                None,
                session=session,
                source=Source(commit=commits(index), branch="main", subject=f"Change number {index} of the encoder"),
                testbed=Testbed(
                    fingerprint=("e" if comparable["torch"] != TESTBED["torch"] else "f") * 64,
                    device_kind="cpu",
                    comparable=comparable,
                ),
                steps=steps,
                counters=[_counters(shape, operators(index), memory(index)) for shape in shapes],
                replicates=[],
                warnings=[quote("the machine was busy: load 7.2 on 2 CPUs")] if index in failing else [],
            )
        )
    return made


def on_another_day(run: RunDocument, commit: str, *, days: float, factor: float) -> RunDocument:
    """Return a run that was really measured as that of another day and commit, its times multiplied."""
    began = datetime.fromisoformat(run.session.started_at.replace("Z", "+00:00")) + timedelta(days=days)
    session = msgspec.structs.replace(run.session, id=f"{commit[:12]}-{days}", started_at=began.isoformat())
    source = msgspec.structs.replace(run.source, commit=commit, branch="main", dirty=False)
    steps = [
        msgspec.structs.replace(step, values=[_multiplied(value, factor) for value in step.values])
        for step in run.checklist.steps
    ]
    return changed(run, session=session, source=source, steps=steps)


def _multiplied(value: Value, factor: float) -> Value:
    if value.metric not in TIMES or value.value is None:
        return value
    return msgspec.structs.replace(value, value=value.value * factor, interval=None)


def _latency(random: np.random.Generator, shape: str, factor: float) -> StepResult:
    low = 0.036 * factor * float(np.exp(random.normal(0, NOISE) + (random.random() < 0.06) * random.exponential(0.2)))
    scale = 1.0 if shape == "long" else 0.4
    at = {"latency.low": 1.0, "latency.p50": 1.03, "latency.p90": 1.11}
    values = [_value(name, scale * low * part * float(np.exp(random.normal(0, 0.004)))) for name, part in at.items()]
    values += [_value("throughput.median", 8 / (scale * low * 1.04), width=0.02)]
    values += [_value("latency.p99", scale * low * 1.3 * float(np.exp(random.normal(0, 0.05))), width=0.06)]
    labelled = [msgspec.structs.replace(value, labels={"shape": shape}) for value in values]
    return StepResult(
        number=1, slug="latency", workload="encoder", status="ok", values=labelled, duration=6.2, procedure=MEASURED
    )


def _value(metric: str, value: float, *, width: float = 0.01) -> Value:
    return Value(
        metric=metric, value=value, interval=(value * (1 - width), value * (1 + width)), confidence=0.95, count=800
    )


def _thermal(random: np.random.Generator, *, hot: bool) -> StepResult:
    heat = Value(metric="thermal.temperature", value=round(58 + random.normal(0, 3) + 25 * hot, 1))
    throttled = Value(metric="thermal.throttled", value=0.12 if hot else 0.0)
    status: Any = "attention" if hot else "ok"
    return StepResult(
        number=19, slug="thermal", workload="encoder", status=status, values=[heat, throttled], procedure=MEASURED
    )


def _failed(step: StepResult) -> StepResult:
    error = ErrorDetail(kind="timeout", message="the step took longer than 300 s")
    return msgspec.structs.replace(step, status="error", values=[], findings=[], error=error)


def _counters(shape: str, operators: float, memory: float) -> CounterSet:
    return CounterSet(
        workload="encoder",
        shape=shape,
        repeats=3,
        values={
            "counters.framework_ops": round(40 * operators),
            "counters.copies": 2,
            "counters.syncs": 0,
            "memory.peak": round(3_145_728 * memory),
        },
        ops=[OpCount(op="aten::add", count=12, line="model.py:88")],
    )
