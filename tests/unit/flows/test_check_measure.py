"""What a check says while it measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfgate.conductor.sides.pairs import PairedMeasurement
from perfgate.conductor.workers.foresight import Foresight
from perfgate.document.decision import Policy
from perfgate.flows.check.measure import _note_uncounted, _steps
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


@pytest.mark.parametrize(("asked", "informing", "long"), [(None, False, True), ((1, 4, 9), True, False)])
def test_steps__one_that_takes_long__waits_for_its_budget_unless_it_is_asked_for(
    asked: tuple[int, ...] | None, informing: bool, long: bool
) -> None:
    _, informs, takes_long = _steps(Policy(), CheckOptions(Path("out"), steps=asked))
    assert (9 in informs, 9 in takes_long) == (informing, long)
    assert not set(informs) & takes_long.keys()
