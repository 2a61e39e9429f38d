"""The numbers of the checklist on both sides: from the samples of the pairs, or from
turns of their step on both sides.

Single measurements of both sides are not compared: two processes of the same code
differ, and the second runs later.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.catalogue.names import BATCH_THROUGHPUT
from perfgate.document.comparison import Clock
from perfgate.document.conditions import conditions_of
from perfgate.document.lines import number_in
from perfgate.document.message import Message
from perfgate.document.run import LEFT_TO_TURNS, REPEAT, RunDocument, Value
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import ALL_BY_WALL, WAITED, Clocks
from perfgate.judging.gate.evidence.effect import Differences, PairedEffect
from perfgate.judging.gate.evidence.sampled import SAMPLED, sampled_effects
from perfgate.judging.gate.evidence.values import zero_of
from perfgate.stats.knee import NEARLY, Knee, Rates, paired_knees, paired_smallest

# Labels of a value of another turn, of a call rate, or of a stretch of the calls: none
# is the step's own number.
_NOT_THE_NUMBER = {"rate", "stretch", REPEAT}
# The turns of each side after which a number that did not vary is taken as constant.
FEWEST_EQUAL_TURNS = 2
# The logarithm of a ratio beyond any two real measurements.
LARGEST_RATIO = 100.0

_Labels = tuple[tuple[str, str], ...]
# The values of a number by turn, which begin with 1.
_Turns = Mapping[int, float | None]


class NumberKey(NamedTuple):
    """A number without the step that measured it."""

    workload: str
    shape: str
    metric: str
    labels: _Labels


class ChecklistNumber(NamedTuple):
    """The identity of a checklist number: step, workload, shape, metric and labels,
    without the shape's.
    """

    step: int
    workload: str
    shape: str
    metric: str
    labels: _Labels = ()

    @classmethod
    def of(cls, step: int, workload: str, value: Value) -> ChecklistNumber:
        labels = dict(value.labels)
        shape = labels.pop("shape", "")
        labels.pop(REPEAT, None)
        return cls(step, workload, shape, value.metric, tuple(sorted(labels.items())))

    @property
    def place(self) -> ShapePlace:
        return ShapePlace(self.workload, self.shape)

    @property
    def key(self) -> NumberKey:
        return NumberKey(self.workload, self.shape, self.metric, self.labels)


def leading_numbers(run: RunDocument) -> dict[ChecklistNumber, Value]:
    """The leading numbers of a run's steps, in the order of the document."""
    numbers = {}
    for number, value in _values(run):
        is_leading = value.metric in METRICS and METRICS[value.metric].display.leading
        if is_leading and not _NOT_THE_NUMBER & value.labels.keys():
            numbers[number] = value
    return numbers


def _values(run: RunDocument) -> Iterator[tuple[ChecklistNumber, Value]]:
    """Yield the values of all steps, each with the number that it is of."""
    for step in run.checklist.steps:
        for value in step.values:
            yield ChecklistNumber.of(step.number, step.workload, value), value


class HeadNumber(NamedTuple):
    """A leading number of the head, and whether a busy machine disturbed it."""

    value: float
    is_busy: bool


def numbers_of_head(run: RunDocument) -> dict[NumberKey, HeadNumber]:
    """The leading numbers of a run that were measured."""
    busy_steps = {
        (step.workload, step.step) for step in conditions_of(run) if step.is_busy
    }
    numbers = {}
    for number, value in leading_numbers(run).items():
        if value.value is not None:
            depends_on_load = metric(number.metric).depends_on_load
            is_busy = depends_on_load and (number.workload, number.step) in busy_steps
            numbers[number.key] = HeadNumber(value.value, is_busy)
    return numbers


def is_of_turns(name: str) -> bool:
    """Whether a metric is compared by turns of its step: it is not an exact count, and
    the pairs do not measure it.
    """
    entry = METRICS.get(name)
    return bool(
        entry
        and entry.display.leading
        and not entry.is_exact
        and not entry.gate.family
        and name not in SAMPLED
    )


class PairedNumbers:
    """The numbers of two run documents, side by side."""

    def __init__(
        self, base: RunDocument, head: RunDocument, clocks: Clocks = ALL_BY_WALL
    ) -> None:
        self._base = base
        self._head = head
        self._clocks = clocks
        self.leading_of_base = leading_numbers(base)
        self.leading_of_head = leading_numbers(head)
        # The numbers that the first turn of base left out.
        left_to_turns = set()
        for number, value in _values(base):
            if value.reason is not None and value.reason.code == LEFT_TO_TURNS:
                left_to_turns.add(number.key)
        self._turns_of_base = _turns_of(base, left_to_turns)
        self._turns_of_head = _turns_of(head, left_to_turns)
        self._sampled: dict[ShapePlace, dict[str, PairedEffect]] = {}
        # The steps of a side that waited for a CPU, each with its workload.
        self._waited = set()
        for step in (*base.checklist.steps, *head.checklist.steps):
            if (step.waited or 0.0) >= WAITED:
                self._waited.add((step.number, step.workload))

    def get(self, number: ChecklistNumber) -> PairedEffect | Message:
        """The number on both sides, or the reason that it cannot be compared."""
        if number.metric in SAMPLED and not number.labels:
            place = number.place
            if place not in self._sampled:
                self._sampled[place] = sampled_effects(
                    self._base, self._head, place, self._clocks
                )
            effect = self._sampled[place].get(number.metric)
            if effect is not None:
                return effect
        return _from_turns(number.metric, *self._turns(number), self._clock(number))

    def has(self, number: ChecklistNumber) -> bool:
        """Whether a side has a value of it."""
        return number.metric in SAMPLED or number.key in {
            **self._turns_of_base,
            **self._turns_of_head,
        }

    def constant(self, number: ChecklistNumber) -> float | None:
        """The value that all turns of both sides had, at least two of each; None if any
        differs.

        A time that is equal twice is so by chance.
        """
        before, after = self._turns(number)
        if (
            metric(number.metric).origin.timed
            or min(len(before), len(after)) < FEWEST_EQUAL_TURNS
        ):
            return None
        values = {*before.values(), *after.values()}
        if len(values) > 1:
            return None
        return values.pop()

    def is_open(self, number: ChecklistNumber) -> bool:
        """Whether further turns would compare a number that both sides measured.

        It is neither exact nor measured by the pairs, and no turns of both sides show
        that it cannot vary.
        """
        if not is_of_turns(number.metric) or self.constant(number) is not None:
            return False
        before = self._turns_of_base.get(number.key)
        after = self._turns_of_head.get(number.key)
        if before is None or after is None:
            return False
        return _is_measured(before) and _is_measured(after)

    def waits_for_turns(self, number: ChecklistNumber) -> bool:
        """Whether the head has a number that base left to turns, and no turn of both
        sides was taken.
        """
        before, after = self._turns(number)
        return is_of_turns(number.metric) and not before and _is_measured(after)

    def varies(self, number: ChecklistNumber) -> bool:
        """Whether a number varies by its nature, as times do, or did so between the
        turns of a side.
        """
        if metric(number.metric).origin.timed:
            return True
        before, after = self._turns(number)
        return max(len(set(before.values())), len(set(after.values()))) > 1

    def knees(self, number: ChecklistNumber, gain: float) -> tuple[Knee, Knee] | None:
        """The batch knee of both sides over all their turns; None if a side did not
        reach one, or without common turns.
        """
        rates = self._rates_of_sizes(number)
        return rates and paired_knees(*rates, gain)

    def best_sizes(self, number: ChecklistNumber) -> tuple[Knee, Knee] | None:
        """The best batch size of both sides over all their turns; None without common
        turns.

        An SLA chooses it by latencies, which the turns do not have.
        """
        for workload in self._head.workloads:
            if workload.name == number.workload and workload.sla_p99 is not None:
                return None
        rates = self._rates_of_sizes(number)
        return rates and paired_smallest(*rates, NEARLY)

    def _turns(self, number: ChecklistNumber) -> tuple[_Turns, _Turns]:
        """The turns of base and of head."""
        return self._turns_of_base.get(number.key, {}), self._turns_of_head.get(
            number.key, {}
        )

    def _rates_of_sizes(self, number: ChecklistNumber) -> tuple[Rates, Rates] | None:
        """The items per second of every size that all turns of both sides measured; a
        turn is one visit of each size.
        """
        base = _rates_by_size(self._turns_of_base, number)
        head = _rates_by_size(self._turns_of_head, number)
        before = {}
        after = {}
        visits = set()
        for size in base.keys() & head.keys():
            before[size] = base[size]
            after[size] = head[size]
            visits |= {len(base[size]), len(head[size])}
        if len(before) < 2 or len(visits) != 1:
            return None
        return before, after

    def _clock(self, number: ChecklistNumber) -> Clock:
        """The clock of a check's turns: its timer leaves out waits, which matters only
        if there were any.
        """
        entry = metric(number.metric)
        if entry.origin.timed and (entry.step, number.workload) in self._waited:
            return "awake"
        return "wall"


# --- turns of a step


def _turns_of(
    run: RunDocument, left_to_turns: set[NumberKey]
) -> dict[NumberKey, _Turns]:
    """The values of each number, by turn: the first and its repetitions.

    If the first turn of base left a number out, the turns after it are numbered from 1
    on both sides.
    """
    turns: dict[NumberKey, dict[int, float | None]] = {}
    for number, value in _values(run):
        of_number = turns.setdefault(number.key, {})
        if REPEAT in value.labels:
            of_number[_number(value.labels[REPEAT])] = value.value
        else:  # the step's own number, or the typical one of turns that all have a label
            of_number.setdefault(1, value.value)
    for key in left_to_turns:
        turns[key] = {
            number - 1: value
            for number, value in turns.get(key, {}).items()
            if number > 1
        }
    return dict(turns)


def _number(text: str) -> int:
    """The number of a label; 0, which no turn has, if it is not a number."""
    return number_in(text) or 0


def _is_measured(turns: _Turns) -> bool:
    """Whether every turn has a value."""
    return None not in turns.values()


def _from_turns(
    name: str, before: _Turns, after: _Turns, clock: Clock
) -> PairedEffect | Message:
    if not before or not after or not _is_measured(before) or not _is_measured(after):
        return Message("gate.bound-not-measured", {"step": metric(name).step})
    numbers = range(1, len(before) + 1)
    if not before.keys() == after.keys() == set(numbers):
        return Message(
            "gate.repetitions-differ", {"base": len(before), "head": len(after)}
        )
    zero = zero_of(name)
    of_base = []
    of_head = []
    for turn in numbers:
        of_base.append(zero + (before[turn] or 0.0))
        of_head.append(zero + (after[turn] or 0.0))
    ratios = list(map(_log_ratio, of_base, of_head))
    if not max(map(abs, ratios)) <= LARGEST_RATIO:
        return Message("gate.no-ratio")
    base = median(of_base, name) - zero
    effect = PairedEffect.of(
        Differences.of(ratios), base, "turn", zero=zero, clock=clock
    )
    if metric(name).is_whole:  # it keeps the head's median: no batch size is 5.6
        return effect._replace(head=median(of_head, name) - zero)
    return effect


def _log_ratio(base: float, head: float) -> float:
    """The logarithm of head/base, 0 if they are equal, and infinite if they have no
    ratio.
    """
    if base == head:
        return 0.0
    if min(base, head) <= 0:
        return math.inf
    return math.log(head) - math.log(base)


def median(values: Sequence[float], name: str) -> float:
    """The median of a metric's values; for whole numbers one of the values, the lower
    of two in the middle.
    """
    if metric(name).is_whole:
        return statistics.median_low(values)
    return statistics.median(values)


def _rates_by_size(turns: Mapping[NumberKey, _Turns], number: ChecklistNumber) -> Rates:
    """The items per second of each batch size that all turns measured, in the order of
    turns.
    """
    by_size = {}
    every_turn: set[int] = set()
    for key, values in turns.items():
        size = _number(dict(key.labels).get("batch", ""))
        if size and key[:3] == (*number.place, BATCH_THROUGHPUT):
            by_size[size] = values
            every_turn |= values.keys()
    rates_by_size = {}
    for size, values in by_size.items():
        rates = [values.get(turn) or 0.0 for turn in sorted(every_turn)]
        if all(0 < rate < math.inf for rate in rates):
            rates_by_size[size] = rates
    return rates_by_size
