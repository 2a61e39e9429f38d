"""Numbers that the first turn of base left to further turns."""

from __future__ import annotations

import math

import msgspec
import pytest

from perfgate.document.message import Message
from perfgate.document.run import LEFT_TO_TURNS, REPEAT, RunDocument, StepResult, Value
from perfgate.judging.gate.evidence.checklist import PairedNumbers, leading_numbers
from tests.fakes.records import changed
from tests.unit.gate.builders import sides

SPEEDUP = "precision.speedup"


def with_turns(first: float | None, later: list[float]) -> RunDocument:
    reason = Message(LEFT_TO_TURNS) if first is None else None
    values = [Value(metric=SPEEDUP, value=first, reason=reason, labels={"shape": "default"})]
    for turn, value in enumerate(later, start=2):
        values.append(Value(metric=SPEEDUP, value=value, labels={"shape": "default", REPEAT: str(turn)}))
    step = StepResult(number=8, slug="precision", workload="model", status="ok", values=values)
    return changed(sides([1.0])[0], steps=[step])


def test_get__first_turn_of_base_left_out__compares_the_turns_after_it_on_both_sides() -> None:
    base, head = with_turns(None, [1.0, 1.1, 1.0, 1.1, 1.0, 1.1]), with_turns(9.0, [2.0, 2.2, 2.0, 2.2, 2.0, 2.2])
    (number,) = leading_numbers(head)
    effect = PairedNumbers(base, head).get(number)
    assert not isinstance(effect, Message)
    assert effect.differences.estimate == pytest.approx(math.log(2))


def test_waits_for_turns__until_base_has_taken_one() -> None:
    (number,) = leading_numbers(with_turns(9.0, []))
    assert PairedNumbers(with_turns(None, []), with_turns(9.0, [])).waits_for_turns(number)
    assert not PairedNumbers(with_turns(None, [1.0]), with_turns(9.0, [2.0])).waits_for_turns(number)


def test_get__first_turn_of_base_missing_for_another_reason__is_not_compared() -> None:
    base = with_turns(1.0, [1.0, 1.1, 1.0, 1.1, 1.0])
    (step,) = base.checklist.steps
    base = changed(base, steps=[msgspec.structs.replace(step, values=step.values[1:])])
    head = with_turns(1.0, [1.0, 1.1, 1.0, 1.1, 1.0])
    (number,) = leading_numbers(head)
    assert isinstance(PairedNumbers(base, head).get(number), Message)
