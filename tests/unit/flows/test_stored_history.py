"""Which of main's stored runs a head is shown beside."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfgate.config import load_config
from perfgate.document.history import Acceptance, HistorySeries, Triage
from perfgate.document.run import RunDocument, StepProcedure, StepResult, Value
from perfgate.flows.baseline import keep
from perfgate.flows.shared.store import stored_history, stored_start_luck
from perfgate.judging.gate.evidence.effect import start_luck_of
from perfgate.judging.store.backends.sql import SqlStore
from tests.fakes.records import changed
from tests.unit.document.minimal import minimal_run

MIB = 2.0**20
# The steps that ran in a process before step 17, in a check and in a run that compiled before it looked at memory.
AS_IN_A_CHECK = (1,)
COMPILED_BEFORE = (1, 9)


def run_of(number: int, *, after: tuple[int, ...] = AS_IN_A_CHECK, waited: float = 0.01, mib: float) -> RunDocument:
    """A run whose step 17 saw so much memory; with a time, and a count of patterns that no machine changes."""
    run = minimal_run(session=f"s{number}")
    values = {
        17: [Value(metric="memory.resident", value=mib * MIB, labels={"shape": "short"})],
        4: [
            Value(metric="fusion.patterns", value=3.0, labels={"shape": "short"}),
            Value(metric="ops.kernel_time", value=number / 1000, labels={"shape": "short"}),
        ],
    }
    # The document lists steps by number, whatever their order was.
    procedures = {4: StepProcedure(quick=True, after=[*after, 17]), 17: StepProcedure(quick=True, after=[*after])}
    results = [
        StepResult(
            number=step,
            slug="step",
            workload="encoder",
            status="ok",
            values=values[step],
            waited=waited,
            procedure=procedures[step],
        )
        for step in (4, 17)
    ]
    session = msgspec.structs.replace(run.session, started_at=f"2026-01-{number:02}T12:00:00Z")
    return changed(run, session=session, steps=results)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "perfgate.toml").write_text(
        'project = "shop"\nworkload = "w.py:encoder"\n[store]\npath = "runs.db"\n', encoding="utf-8"
    )
    return tmp_path


def shown(project: Path, head: RunDocument) -> dict[str, HistorySeries]:
    history = stored_history(load_config(project), head, {}, warn=pytest.fail)
    return {series.metric: series for series in history.series}


def test_stored_history__runs_with_other_steps_before_or_a_busy_machine__left_out_of_the_level_and_counted(
    project: Path,
) -> None:
    stored = [
        run_of(1, mib=366),
        run_of(2, mib=516, after=COMPILED_BEFORE),
        run_of(3, mib=367),
        run_of(4, mib=368, waited=0.4),
        run_of(5, mib=365),
    ]
    for run in stored:
        keep(load_config(project), {}, run, [], allow_dirty=False)
    series = shown(project, run_of(6, mib=366))
    assert (series["memory.resident"].values, series["memory.resident"].left_out) == (
        [366 * MIB, 367 * MIB, 368 * MIB, 365 * MIB],
        1,
    )
    # Bytes and counts are the same on a busy machine, times are not; only memory depends on the steps before.
    assert (series["ops.kernel_time"].values, series["ops.kernel_time"].left_out) == ([0.001, 0.002, 0.003, 0.005], 1)
    assert (series["fusion.patterns"].values, series["fusion.patterns"].left_out) == ([3.0] * 5, 0)


def test_stored_history__too_few_undisturbed_runs__busy_ones_count_and_are_counted(project: Path) -> None:
    for run in (run_of(1, mib=366), run_of(2, mib=367, waited=0.4), run_of(3, mib=368, waited=0.7)):
        keep(load_config(project), {}, run, [], allow_dirty=False)
    series = shown(project, run_of(6, mib=366, waited=0.6))
    times, memory = series["ops.kernel_time"], series["memory.resident"]
    assert (times.values, times.left_out, times.busy) == ([0.001, 0.002, 0.003], 0, 2)
    assert (len(memory.values), memory.left_out, memory.busy) == (3, 0, 0)


def test_stored_history__no_run_compares__said_and_not_silently_empty(project: Path) -> None:
    keep(load_config(project), {}, run_of(1, mib=516, after=COMPILED_BEFORE), [], allow_dirty=False)
    series = shown(project, run_of(2, mib=366))["memory.resident"]
    assert (series.values, series.left_out) == ([], 1)


def test_stored_history__slower_runs_of_main__part_of_the_level_while_they_are_meant(project: Path) -> None:
    config, store = load_config(project), SqlStore(project / "runs.db")
    for number, mib in enumerate((366, 367, 365, 366, 410, 411), start=1):
        keep(config, {}, run_of(number, mib=mib), [], allow_dirty=False)

    def level() -> list[float]:
        return [value / MIB for value in shown(project, run_of(7, mib=410))["memory.resident"].values]

    quiet = [366.0, 367.0, 365.0, 366.0]
    assert level() == quiet
    accepted = Acceptance(
        commit="a" * 40,
        metric="memory.*",
        reason="meant",
        accepted_by="Li",
        accepted_at="2026-01-09",
        until="2026-02-01",
    )
    store.append("shop", [accepted])
    assert level() == quiet
    store.append("shop", [msgspec.structs.replace(accepted, until="2999-01-01")])
    assert level() == [410.0, 411.0]
    store.append("shop", [accepted])
    expected = Triage(commit="a" * 40, state="expected", reason="meant", author="Li", changed_at="2026-01-09")
    store.append("shop", [expected])
    assert level() == [410.0, 411.0]
    store.append("shop", [msgspec.structs.replace(expected, state="acknowledged")])
    assert level() == quiet


def test_stored_history__number_that_the_newest_runs_lack__looked_for_in_older_ones(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfgate.flows.shared.store._SESSIONS", 2)
    for number in range(1, 8):
        run = run_of(number, mib=360 + number)
        if number > 3:
            run = changed(run, steps=[step for step in run.checklist.steps if step.number == 4])
        keep(load_config(project), {}, run, [], allow_dirty=False)
    series = shown(project, run_of(8, mib=366))
    assert series["memory.resident"].values == [362 * MIB, 363 * MIB]
    assert series["ops.kernel_time"].values == [0.006, 0.007]
    monkeypatch.setattr("perfgate.flows.shared.store._MOST_RUNS", 2)
    assert "memory.resident" not in shown(project, run_of(8, mib=366))


def started_run(number: int, *, spread: float, fingerprint: str = "f" * 8, device_kind: str = "npu") -> RunDocument:
    """A run that compared new processes."""
    run = run_of(number, mib=366)
    value = Value(metric="latency.start_spread", value=spread, labels={"shape": "short"}, count=3)
    step = msgspec.structs.replace(run.checklist.steps[0], number=1, slug="latency", values=[value])
    testbed = msgspec.structs.replace(run.testbed, fingerprint=fingerprint, device_kind=device_kind)
    return changed(run, steps=[step], testbed=testbed)


def luck_of(project: Path, head: RunDocument) -> dict[str, float]:
    return dict(stored_start_luck(load_config(project), head.testbed, {}, warn=pytest.fail))


def test_stored_start_luck__runs_of_this_and_another_testbed__median_of_this_one(project: Path) -> None:
    for number, spread in enumerate((0.002, 0.004, 0.005), start=1):
        keep(load_config(project), {}, started_run(number, spread=spread), [], allow_dirty=False)
    keep(load_config(project), {}, started_run(4, spread=0.009, fingerprint="a" * 8), [], allow_dirty=False)
    head = started_run(5, spread=0.9)

    assert luck_of(project, head) == {"encoder": 0.004}
    history = stored_history(load_config(project), head, {}, warn=pytest.fail)
    assert start_luck_of(history.series) == {"encoder": 0.004}


def test_stored_start_luck__other_testbed_or_cpu__none(project: Path) -> None:
    for number in range(1, 4):
        keep(load_config(project), {}, started_run(number, spread=0.004), [], allow_dirty=False)

    assert luck_of(project, started_run(5, spread=0.1, fingerprint="b" * 8)) == {}
    assert luck_of(project, started_run(5, spread=0.1, device_kind="cpu")) == {}
