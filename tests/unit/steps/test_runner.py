"""Running one step: an exception is a result with its traceback, and an illegal outcome is never let through."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

import pytest

from perfgate.catalogue.lookup import card
from perfgate.document.run import Value
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import context_on, curve


class _Step:
    card = card(1)

    def __init__(self, measure: Callable[[StepContext], StepOutcome]) -> None:
        self._measure = measure

    def measure(self, context: StepContext) -> StepOutcome:
        return self._measure(context)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _context(**device: int) -> StepContext:
    return context_on(FakeDevice(**device), curve(1, 1))


def test_run_step__outcome__result_with_what_it_cost() -> None:
    def measure(context: StepContext) -> StepOutcome:
        context.device.launch("mm", 3_000_000_000)
        context.device.synchronize()
        return StepOutcome(values=[Value(metric="latency.p50", value=0.5)])

    result, outcome = run_step(_Step(measure), _context())
    assert (result.number, result.slug, result.workload, result.status) == (1, "latency", "fake", "ok")
    assert result.duration == 3.0
    assert outcome is not None
    assert result.values == outcome.values


def test_run_step__exception__status_error_with_traceback_and_no_number() -> None:
    result, outcome = run_step(_Step(lambda context: _raise(ZeroDivisionError("of the user"))), _context())
    assert outcome is None
    assert result.status == "error"
    assert result.values == []
    assert reason_of(result).startswith("ZeroDivisionError: of the user (at ")
    assert result.error is not None
    assert result.error.kind == "exception"
    assert "in _raise" in (result.error.traceback or "")


def test_run_step__memory_full__kind_is_memory() -> None:
    def measure(context: StepContext) -> StepOutcome:
        context.device.allocate(1000)
        return StepOutcome()

    result, _ = run_step(_Step(measure), _context(memory_limit=10))
    assert result.error is not None
    assert result.error.kind == "memory"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_run_step__interrupt__goes_through(error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_step(_Step(lambda context: _raise(error)), _context())


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (StepOutcome(absent="not_applicable"), "without a reason"),
        (StepOutcome(values=[Value(metric="latency.p50", value=math.nan)]), "not a finite number"),
        (
            StepOutcome(values=[Value(metric="latency.p50", value=1.0, interval=(0.0, math.inf))]),
            "not a finite number",
        ),
        (StepOutcome(values=[Value(metric="latency.p99", value=None)]), "neither a value nor a reason"),
    ],
)
def test_run_step__illegal_outcome__error_instead_of_a_number(outcome: StepOutcome, message: str) -> None:
    result, kept = run_step(_Step(lambda context: outcome), _context())
    assert kept is None
    assert result.status == "error"
    assert message in reason_of(result)
