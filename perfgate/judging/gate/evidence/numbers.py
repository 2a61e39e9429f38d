"""The numbers of the checklist on both sides: from the samples of the pairs, or from turns of their step on both sides.

Single measurements of both sides are not compared: two processes of the same code differ, and the second runs later.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.catalogue.names import BATCH_THROUGHPUT
from perfgate.document.comparison import Clock
from perfgate.document.message import Message
from perfgate.document.run import LEFT_TO_TURNS, REPEAT, RunDocument, Value
from perfgate.judging.gate.evidence.differences import Differences
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.pairs import ALL_BY_WALL, SAMPLED, WAITED, Clocks, sampled_effects
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.values import zero_of
from perfgate.stats.knee import NEARLY, Knee, Rates, paired_knees, paired_smallest

# Labels of a value of another turn, of a call rate, or of a stretch of the calls: none is the step's own number.
_NOT_THE_NUMBER = {"rate", "stretch", REPEAT}
# A number that cannot vary shows it by so many turns of each side.
FEWEST_EQUAL_TURNS = 2
# The logarithm of a ratio larger than that of any two measurements.
LARGEST_RATIO = 100.0
_MOST_DIGITS = 7


class ChecklistNumber(NamedTuple):
    """The identity of a checklist number: step, workload, shape, metric and the labels beside the shape."""

    step: int
    workload: str
    shape: str
    metric: str
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, step: int, workload: str, value: Value) -> ChecklistNumber:
        labels = tuple(sorted((name, text) for name, text in value.labels.items() if name not in {"shape", REPEAT}))
        return cls(step, workload, value.labels.get("shape", ""), value.metric, labels)


def leading_numbers(run: RunDocument) -> dict[ChecklistNumber, Value]:
    """The leading numbers of a run's steps, in the order of the document."""
    numbers = {}
    for step in run.steps:
        for value in step.values:
            is_leading = value.metric in METRICS and METRICS[value.metric].leading
            if is_leading and not _NOT_THE_NUMBER & value.labels.keys():
                numbers[ChecklistNumber.of(step.number, step.workload, value)] = value
    return numbers


def is_of_turns(name: str) -> bool:
    """Whether a metric is compared by turns of its step: it is not an exact count, and the pairs do not measure it."""
    entry = METRICS.get(name)
    return bool(entry and entry.leading and entry.kind == "noisy" and not entry.family and name not in SAMPLED)


class PairedNumbers:
    """The numbers of two run documents, side by side."""

    def __init__(self, base: RunDocument, head: RunDocument, clocks: Clocks = ALL_BY_WALL) -> None:
        self._base, self._head, self._clocks = base, head, clocks
        self._turns = _turns_of(base), _turns_of(head)
        for key in _left_to_turns(base):
            for turns in self._turns:
                turns[key] = _without_first(turns.get(key, {}))
        self._sampled: dict[ShapePlace, dict[str, PairedEffect]] = {}

    def get(self, number: ChecklistNumber) -> PairedEffect | Message:
        """The number on both sides, or the reason that it cannot be compared."""
        if number.metric in SAMPLED and not number.labels:
            effect = self._effects(ShapePlace(number.workload, number.shape)).get(number.metric)
            if effect is not None:
                return effect
        before, after = (turns.get(number[1:], {}) for turns in self._turns)
        return _from_turns(number.metric, before, after, self._clock(number))

    def constant(self, number: ChecklistNumber) -> float | None:
        """The value that all turns of both sides had, at least two of each; None if any differs.

        A time that is equal twice is so by chance.
        """
        if metric(number.metric).timed:
            return None
        before, after = self._values(number)
        if min(len(before), len(after)) < FEWEST_EQUAL_TURNS or len({*before, *after}) != 1:
            return None
        return before[0]

    def _values(self, number: ChecklistNumber) -> tuple[list[float | None], list[float | None]]:
        """The values that the turns of base and of head have."""
        base, head = self._turns
        return list(base.get(number[1:], {}).values()), list(head.get(number[1:], {}).values())

    def is_open(self, number: ChecklistNumber) -> bool:
        """Whether further turns would compare a number that both sides measured.

        It is neither exact nor measured by the pairs, and no turns of both sides show that it cannot vary.
        """
        if not is_of_turns(number.metric) or self.constant(number) is not None:
            return False
        base, head = self._turns
        before, after = base.get(number[1:]), head.get(number[1:])
        if before is None or after is None:
            return False
        return None not in (*before.values(), *after.values())

    def waits_for_turns(self, number: ChecklistNumber) -> bool:
        """Whether the head has a number that base left to turns, and no turn of both sides was taken."""
        before, after = (turns.get(number[1:], {}) for turns in self._turns)
        return is_of_turns(number.metric) and not before and None not in after.values()

    def varies(self, number: ChecklistNumber) -> bool:
        """Whether a number varies by its nature, as times do, or did so between the turns of a side."""
        before, after = self._values(number)
        return metric(number.metric).timed or len(set(before)) > 1 or len(set(after)) > 1

    def knees(self, number: ChecklistNumber, gain: float) -> tuple[Knee, Knee] | None:
        """The batch knee of both sides over all their turns; None if a side did not reach one, or without common turns."""
        rates = self._rates_of_sizes(number)
        return paired_knees(*rates, gain) if rates else None

    def best_sizes(self, number: ChecklistNumber) -> tuple[Knee, Knee] | None:
        """The best batch size of both sides over all their turns; None without common turns."""
        rates = self._rates_of_sizes(number)
        return paired_smallest(*rates, NEARLY) if rates else None

    def _rates_of_sizes(self, number: ChecklistNumber) -> tuple[Rates, Rates] | None:
        """The items per second of every size that all turns of both sides measured; a turn is one visit of each size."""
        turns_of_base, turns_of_head = self._turns
        base, head = _rates_by_size(turns_of_base, number), _rates_by_size(turns_of_head, number)
        shared = base.keys() & head.keys()
        before = {size: base[size] for size in shared}
        after = {size: head[size] for size in shared}
        visits = {len(rates) for rates in (*before.values(), *after.values())}
        return (before, after) if len(shared) > 1 and len(visits) == 1 else None

    def has(self, number: ChecklistNumber) -> bool:
        """Whether a side has a value of it."""
        return number.metric in SAMPLED or any(number[1:] in turns for turns in self._turns)

    def _clock(self, number: ChecklistNumber) -> Clock:
        """The clock of a check's turns: its timer leaves out waits, which matters only if there were any."""
        entry = metric(number.metric)
        steps = [*self._base.steps, *self._head.steps]
        of_number = [step for step in steps if (step.number, step.workload) == (entry.step, number.workload)]
        waited = max((step.waited or 0.0 for step in of_number), default=0.0)
        return "awake" if entry.timed and waited >= WAITED else "wall"

    def _effects(self, place: ShapePlace) -> dict[str, PairedEffect]:
        if place not in self._sampled:
            self._sampled[place] = sampled_effects(self._base, self._head, place, self._clocks)
        return self._sampled[place]


def _rates_by_size(turns: Mapping[_Key, _Turns], number: ChecklistNumber) -> dict[int, list[float]]:
    """The items per second of each batch size that all turns measured, in the order of turns."""
    by_size: dict[int, _Turns] = {}
    for (workload, shape, name, labels), values in turns.items():
        size = _number(dict(labels).get("batch", ""))
        if size and (workload, shape, name) == (number.workload, number.shape, BATCH_THROUGHPUT):
            by_size[size] = values
    every_turn = sorted({turn for values in by_size.values() for turn in values})
    rates_by_size: dict[int, list[float]] = {}
    for size, values in by_size.items():
        rates = [values.get(turn) or 0.0 for turn in every_turn]
        if all(0 < rate < math.inf for rate in rates):
            rates_by_size[size] = rates
    return rates_by_size


_Turns = dict[int, float | None]
# A number without the step that measured it.
_Key = tuple[str, str, str, tuple[tuple[str, str], ...]]


def _turns_of(run: RunDocument) -> dict[_Key, _Turns]:
    """The values of each number, by turn: the first and its repetitions."""
    turns: dict[_Key, _Turns] = {}
    for step in run.steps:
        for value in step.values:
            number = ChecklistNumber.of(step.number, step.workload, value)
            of_number = turns.setdefault(number[1:], {})
            if REPEAT in value.labels:
                of_number[_number(value.labels[REPEAT])] = value.value
            else:  # the step's own number, or the typical one of turns that all have a label
                of_number.setdefault(1, value.value)
    return turns


def _left_to_turns(base: RunDocument) -> set[_Key]:
    """The numbers that the first turn of base left out."""
    numbers: set[_Key] = set()
    for step in base.steps:
        for value in step.values:
            if value.reason is not None and value.reason.code == LEFT_TO_TURNS:
                numbers.add(ChecklistNumber.of(step.number, step.workload, value)[1:])
    return numbers


def _without_first(turns: _Turns) -> _Turns:
    """The turns after the first, which are then numbered from 1."""
    return {number - 1: value for number, value in turns.items() if number > 1}


def _number(text: str) -> int:
    """The number of a label; 0, which no turn has, if it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS else 0


def _from_turns(name: str, before: _Turns, after: _Turns, clock: Clock) -> PairedEffect | Message:
    if not before or not after or None in (*before.values(), *after.values()):
        return Message("gate.bound-not-measured", {"step": metric(name).step})
    numbers = range(1, len(before) + 1)
    if not before.keys() == after.keys() == set(numbers):
        return Message("gate.repetitions-differ", {"base": len(before), "head": len(after)})
    zero = zero_of(name)
    of_base = [zero + (before[turn] or 0.0) for turn in numbers]
    of_head = [zero + (after[turn] or 0.0) for turn in numbers]
    ratios = [_log_ratio(first, second) for first, second in zip(of_base, of_head)]
    if not max(map(abs, ratios)) <= LARGEST_RATIO:
        return Message("gate.no-ratio")
    base, head = median(of_base, name) - zero, median(of_head, name) - zero
    effect = PairedEffect.of(Differences.of(ratios), base, "turn", zero=zero)._replace(clock=clock)
    # A whole number keeps the head's median: no batch size is 5.6.
    return effect._replace(head=head) if metric(name).is_whole else effect


def _log_ratio(base: float, head: float) -> float:
    """The logarithm of head/base, 0 if they are equal, and infinite if they have no ratio."""
    if base == head:
        return 0.0
    return math.log(head) - math.log(base) if min(base, head) > 0 else math.inf


def median(values: Sequence[float], name: str) -> float:
    """The median of a metric's values; for whole numbers one of the values, the lower of two in the middle."""
    return statistics.median_low(values) if metric(name).is_whole else statistics.median(values)
