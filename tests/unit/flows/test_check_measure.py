"""What a check says while it measures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.conductor.workers.foresight import Foresight
from perfgate.config import GateSettings
from perfgate.document.decision import Policy
from perfgate.flows.check.checklist import check_steps
from perfgate.flows.check.measure import _note_uncounted
from perfgate.flows.check.measured import Measured
from perfgate.flows.shared.options import CheckOptions


class Notes:
    """Keeps what stays."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def status(self, text: str) -> None:
        raise AssertionError("what stays is no status")

    def expect(self, foresight: Foresight) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


def measured(*reasons: str | None) -> Measured:
    testbeds: Any = (None, None)
    pairs = [PairedMeasurement(uncounted=reason) for reason in reasons]
    return Measured(testbeds, pairs=pairs)


def test_check__workloads_without_hardware_counters__said_once() -> None:
    progress = Notes()
    _note_uncounted(measured(None, "no counters", "no counters"), progress)
    assert progress.notes == ["no counters"]


def test_check__hardware_counters__nothing_said() -> None:
    progress = Notes()
    _note_uncounted(measured(None, None), progress)
    assert progress.notes == []


def job(*, steps: tuple[int, ...] | None = None, checklist_budget: float = 60.0) -> Any:
    gate = GateSettings(checklist_budget=checklist_budget)
    options = CheckOptions(Path("out"), steps=steps)
    return SimpleNamespace(options=options, policy=Policy(), config=SimpleNamespace(gate=gate))


def test_steps__all_steps__exact_numbers_of_graphs_in_any_case_batch_sizes_and_heat_from_the_pairs() -> None:
    steps = check_steps(job())
    assert steps.exact_only == (9,)
    assert not {5, 9, 19} & {*steps.deciding, *steps.informing}
    assert (steps.sizes_in_pairs, steps.is_watched, steps.compiles, steps.is_asked) == (True, True, True, False)


def test_steps__asked_for_by_numbers__compiled_and_soaked_however_long_it_takes() -> None:
    steps = check_steps(job(steps=(1, 4, 9, 19)))
    assert (steps.informing, steps.exact_only) == ((19,), (9,))
    assert (steps.sizes_in_pairs, steps.is_watched, steps.compiles, steps.is_asked) == (False, False, True, True)


def test_steps__no_time_for_the_checklist__batch_sizes_measured_once_a_side() -> None:
    steps = check_steps(job(checklist_budget=0.0))
    assert 5 in steps.informing
    assert not steps.sizes_in_pairs
