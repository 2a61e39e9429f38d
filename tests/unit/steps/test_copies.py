"""Copies of a workload at the same time: a lock makes threads wait for each other, a copy that fails says why, cold starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfgate import protocol
from perfgate.document.message import Message
from perfgate.errors import MeasuringError
from perfgate.judging.report.text.messages import word
from perfgate.measuring.checklist.copies.copies import (
    CopiesLevel,
    best_gain,
    level_of_new_process,
    start_cold,
    time_processes,
    time_threads,
    too_large,
)
from perfgate.measuring.checklist.step import StepContext, StepProcess
from perfgate.measuring.checklist.steps.s01_latency import STEP as LATENCY
from perfgate.measuring.checklist.steps.s01_latency import start_spread
from perfgate.measuring.checklist.steps.s10_batching import STEP
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.load import load_workload
from perfgate.protocol import StepExtent, StepSettings
from tests.wording import finding_text

# Waiting for a device that is no processor: eight copies can wait at once, also on one busy core.
WAITS = """
import threading, time
import torch
from perfgate import Workload

lock = threading.Lock()

def wait(x):
    time.sleep(0.004)
    return x

def wait_in_line(x):
    with lock:
        return wait(x)

def fail(x):
    raise ValueError("no such weights")

def workload(function):
    return Workload(build=lambda device: function, inputs=lambda batch, seed: torch.ones(batch, 4))

free, locked, broken = workload(wait), workload(wait_in_line), workload(fail)
training = Workload(
    build=lambda device: wait, inputs=lambda batch, seed: torch.ones(batch, 4), train_step=lambda model, x: model(x)
)
"""


def _request(folder: Path, name: str) -> protocol.LoadRequest:
    file = folder / "waits.py"
    file.write_text(WAITS)
    return protocol.LoadRequest(
        name=name, file=str(file), attribute=name, root=str(folder), python_path=["."], device="cpu", seed=1, threads=1
    )


def _context(folder: Path, name: str, *, copies: Sequence[int] = (), cold_start: bool = False) -> StepContext:
    request, device = _request(folder, name), open_device("cpu")
    workload = load_workload(Path(request.file), name, root=folder, python_path=[])
    return StepContext(
        workload=BoundWorkload(name, workload, device, seed=1, root=folder),
        limits={},
        seed=1,
        artifacts=folder,
        progress=lambda text: None,
        settings=StepSettings(copies=[*copies], cold_start=cold_start),
        process=StepProcess(load=request),
    )


def test_level__calls_of_two_copies__rates_add_up() -> None:
    level = CopiesLevel(2, [[np.array([0.1, 0.1]), np.array([0.05] * 4)]])
    assert level.calls_per_second == pytest.approx(30.0)


def test_gain_over__visits_that_scatter__interval_over_the_passes() -> None:
    alone = CopiesLevel(1, [[np.array([seconds])] for seconds in (0.10, 0.10, 0.26, 0.10, 0.22, 0.10)])
    two = CopiesLevel(2, [[np.array([0.1]), np.array([0.1])]] * 6)

    gain = two.gain_over(alone)

    assert (gain.low, gain.high) == (pytest.approx(2.0), pytest.approx(5.2))
    assert gain.low < gain.speedup < gain.high
    assert gain.quads == 6


def test_best_gain__three_times_by_two_copies__one_was_disturbed() -> None:
    reason = best_gain(
        [CopiesLevel(1, [[np.array([0.3])]] * 6), CopiesLevel(2, [[np.array([0.2]), np.array([0.2])]] * 6)]
    )

    assert isinstance(reason, Message)
    assert word(reason).startswith("3.00 times the throughput of one with 2 copies is impossible")


def test_best_gain__a_smaller_number_brings_too_much__no_gain_of_the_larger_either() -> None:
    one, two, four = (
        CopiesLevel(copies, [[np.array([seconds])] * copies] * 6) for copies, seconds in ((1, 0.3), (2, 0.2), (4, 0.35))
    )
    assert isinstance(best_gain([one, two, four]), Message)
    assert not isinstance(best_gain([one, four]), Message)


def test_best_gain__scattered_passes_whose_estimate_is_impossible__disturbed() -> None:
    alone = CopiesLevel(1, [[np.array([seconds])] for seconds in (0.08, 0.10, 0.26, 0.25, 0.22, 0.24)])
    two = CopiesLevel(2, [[np.array([0.1])] * 2] * 6)
    gain = two.gain_over(alone)
    assert gain.low < 2
    assert gain.speedup > 2.2
    assert isinstance(best_gain([alone, two]), Message)


def test_rate_interval__visits_that_scatter__from_the_slowest_to_the_fastest_of_six() -> None:
    level = CopiesLevel(1, [[np.array([1 / rate])] for rate in (100.0, 104.0, 98.0, 101.0, 99.0, 102.0)])
    assert level.rate_interval == (pytest.approx(98.0), pytest.approx(104.0))
    assert level.calls_per_second == pytest.approx(100.7, abs=0.5)


def test_copies__training__no_threads_that_would_train_one_model(tmp_path: Path) -> None:
    outcome = STEP.measure(replace(_context(tmp_path, "training", copies=[1, 2]), process=StepProcess()))
    reasons = [value.reason for value in outcome.values if value.labels.get("in") == "threads"]
    said = "copies in threads would train one model at the same time; those in processes have a model each"
    assert [word(reason) for reason in reasons if reason] == [said] * 3


@pytest.mark.slow
def test_copies__lock_in_the_model__threads_wait_and_processes_do_not(tmp_path: Path) -> None:
    outcome = STEP.measure(_context(tmp_path, "locked", copies=[1, 2, 4]))

    for value in outcome.values:
        if value.metric == "copies.throughput":
            assert value.interval is not None
            assert value.interval[0] <= value.value <= value.interval[1]
    rates = {(v.labels["in"], v.labels["copies"]): v.value for v in outcome.values if v.metric == "copies.throughput"}
    assert rates["threads", "4"] < 1.3 * rates["threads", "1"]
    assert rates["processes", "4"] > 2.5 * rates["processes", "1"]
    said = {finding.rule: finding_text(finding) for finding in outcome.findings}
    assert "threads of shape default wait for each other" in said["copies.waiting"]
    assert outcome.status == "attention"
    knees = {f.evidence["in"]: f.evidence for f in outcome.findings if f.rule == "copies.knee"}
    assert (knees["threads"]["copies"], knees["processes"]["copies"]) == (1, 4)


def test_copies__nothing_that_is_shared__threads_grow_as_processes_do(tmp_path: Path) -> None:
    context = _context(tmp_path, "free")
    one, four = time_threads(context.workload, [1, 4], seconds=0.5)
    assert four.calls_per_second > 2.5 * one.calls_per_second


def test_copies__none_asked_for_and_no_traffic__not_applicable(tmp_path: Path) -> None:
    assert STEP.measure(_context(tmp_path, "free")).status == "not_applicable"


def test_copies__a_process_that_cannot_call__says_what_it_raised(tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="ValueError: no such weights"):
        time_processes(_request(tmp_path, "broken"), [1], seconds=0.1, folder=tmp_path)


def test_copies__more_than_the_memory_holds__refused_with_both_numbers(tmp_path: Path) -> None:
    assert too_large(_context(tmp_path, "free", copies=[1])) is None
    refusal = too_large(_context(tmp_path, "free", copies=[1, 1_000_000]))
    assert refusal is not None
    assert word(refusal).startswith("1000000 processes of this size take ")


@pytest.mark.slow
def test_cold_start__new_process__its_parts_are_positive_and_add_up(tmp_path: Path) -> None:
    stands = start_cold(_request(tmp_path, "free"), folder=tmp_path)
    assert stands.import_ns > stands.load_ns > 0
    assert stands.first_call_ns > 4_000_000

    outcome = LATENCY.measure(_context(tmp_path, "free", cold_start=True))
    parts = {v.metric: v.value for v in outcome.values if v.metric.startswith("start.")}
    assert parts.pop("start.total") == pytest.approx(sum(parts.values()))
    assert len(parts) == 3

    failing = replace(
        _context(tmp_path, "free", cold_start=True), process=StepProcess(load=_request(tmp_path, "broken"))
    )
    (total,) = [v for v in LATENCY.measure(failing).values if v.metric == "start.total"]
    assert total.value is None


def test_start_spread__processes_that_differ_by_a_percent__spread_of_the_difference_of_two() -> None:
    assert start_spread([0.001, 0.00101, 0.00099]) == pytest.approx(0.01414, rel=1e-3)


@pytest.mark.slow
def test_level_of_new_process__call_that_sleeps__its_time_by_the_clock_of_the_device(tmp_path: Path) -> None:
    level = level_of_new_process(_request(tmp_path, "free"), folder=tmp_path)

    assert 0 < level < 0.004
    with pytest.raises(MeasuringError, match="ValueError: no such weights"):
        level_of_new_process(_request(tmp_path, "broken"), folder=tmp_path)


@pytest.mark.slow
def test_latency__starts_on_a_cpu__not_compared(tmp_path: Path) -> None:
    outcome = LATENCY.measure(replace(_context(tmp_path, "free"), extent=StepExtent(starts=3)))

    assert "latency.start_spread" not in {value.metric for value in outcome.values}
