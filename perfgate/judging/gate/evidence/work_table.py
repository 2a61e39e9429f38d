"""The table of work: what a call runs on both sides, place by place. Counts are
compared and causes are found in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.lookup import METRICS
from perfgate.document.explanation import Part
from perfgate.document.run import CallAccount, CounterSet, OperatorRow
from perfgate.document.samples import PackedArray, Replicate, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.index import Evidence, RunIndex
from perfgate.judging.gate.evidence.kernel_blocks import kernel_seconds
from perfgate.judging.gate.evidence.pairs import preprocess_lanes
from perfgate.judging.gate.evidence.process import QUANTILE
from perfgate.judging.gate.evidence.quads import JobOfSides
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT, CountedSide, KernelSums
from perfgate.stats.arrays import Floats
from perfgate.stats.summary import median


class PairedTimes:
    """Seconds by name, of both members of each pair, in the order of measuring."""

    def __init__(self) -> None:
        self.base: list[Mapping[str, float]] = []
        self.head: list[Mapping[str, float]] = []

    def __len__(self) -> int:
        return len(self.base)

    @property
    def names(self) -> list[str]:
        """All names, in the order in which the pairs have them."""
        names: dict[str, None] = {}
        for times in zip(self.base, self.head):
            names |= dict.fromkeys(chain.from_iterable(times))
        return list(names)

    def of_part(self, name: str) -> Floats:
        """The seconds of a part, a row for each pair; 0 where a member did not run it."""
        return np.array(
            [
                (base.get(name, 0.0), head.get(name, 0.0))
                for base, head in zip(self.base, self.head)
            ]
        )


class Counted(NamedTuple):
    """The exact counters of a shape on both sides; ``base_code`` is the text of every
    known line of the base.

    ``is_checked`` is whether the workload's own check accepted the head's output.
    """

    place: ShapePlace
    base: CountedSide
    head: CountedSide
    base_code: Collection[str]
    is_checked: bool


class ListedOperators(NamedTuple):
    """The operators of a traced call of both sides, by name.

    The counts of ``varying`` operators differ between calls or processes of a side.
    ``lines`` are the lines of the head that call each most often.
    """

    place: ShapePlace
    base: Mapping[str, OperatorRow]
    head: Mapping[str, OperatorRow]
    varying: Collection[str]
    lines: Mapping[str, str]


class TimedParts(NamedTuple):
    """The times of the operators, or of the functions and modules, of a shape in all
    pairs that profiled them.

    One side runs those in ``changed`` more often than the other.
    """

    place: ShapePlace
    times: PairedTimes
    changed: Collection[str]
    lines: Mapping[str, str]


class TracedCall(NamedTuple):
    """A traced call of both sides, with the times of its operators and its kernels in
    the pairs.
    """

    place: ShapePlace
    base: CallAccount
    head: CallAccount
    times: PairedTimes
    kernels: PairedTimes
    lines: Mapping[str, str]
    code: ChangedCode


class RecordedValue(NamedTuple):
    """A value of a step in two recordings."""

    place: ShapePlace
    metric: str
    base: float
    head: float


class RecordedKernels(NamedTuple):
    """The kernels of a step in two recordings; None if one has none."""

    place: ShapePlace
    base: KernelSums | None
    head: KernelSums | None


class WorkTable:
    """The work of both sides; each kind of row is looked up on its first use."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._base = evidence.base
        self._head = evidence.head
        self.places = evidence.places
        self.code = evidence.code
        self.of_stacks = evidence.of_stacks

    @property
    def jobs(self) -> Mapping[str, JobOfSides]:
        return self._evidence.jobs

    # --- exact counters

    @cached_property
    def counters(self) -> list[CounterSet]:
        """The counters of all shapes of base, then of head."""
        return [*self._base.counters.values(), *self._head.counters.values()]

    @cached_property
    def counted(self) -> list[Counted]:
        """The shapes that both sides counted."""
        rows = []
        for place, head in self._head.counters.items():
            base = self._base.counters.get(place)
            if base is None:
                continue
            code = {site.code for site in base.sites}
            if place in self._base.accounts:
                code |= {row.code for row in self._base.accounts[place].rows}
            check = self._head.checks.get(place)
            row = Counted(
                place,
                CountedSide(base),
                CountedSide(head),
                set(filter(None, code)),
                is_checked=check is not None and check.status == "passed",
            )
            rows.append(row)
        return rows

    def _lines(self, place: ShapePlace) -> dict[str, str]:
        """The line of the head that most often calls each operator of a shape, by the
        exact counters.
        """
        if place not in self._head.counters:
            return {}
        return {
            operator.op: operator.line
            for operator in self._head.counters[place].ops
            if operator.line
        }

    # --- traced calls

    @cached_property
    def listed(self) -> list[ListedOperators]:
        """The operators of shapes that both sides traced, except in recordings that do
        not mark single calls.
        """
        unmarked = {counted.place for counted in self.counters if not counted.repeats}
        rows = []
        for place, head in self._head.operators.items():
            if place not in self._base.operators or place in unmarked:
                continue
            varying = set()
            for counted in self.counters:
                if counted.place == place:
                    varying |= varying_operators(counted)
            lines = self._lines(place)
            base = self._base.operators[place]
            rows.append(ListedOperators(place, base, head, varying, lines))
        return rows

    def changed_operators(self, place: ShapePlace) -> set[str]:
        """The operators that a traced call of one side runs more often than a call of
        the other.
        """
        if place not in self._base.operators or place not in self._head.operators:
            return set()
        before = self._base.operators[place]
        after = self._head.operators[place]
        names = before.keys() | after.keys()
        return {
            name
            for name in names
            if count_of(before.get(name)) != count_of(after.get(name))
        }

    @cached_property
    def run_seconds(self) -> dict[tuple[ShapePlace, str], float]:
        """The seconds of one run of an operator of a shape in the traces, from the head
        if it has them.
        """
        seconds = {}
        for index in (self._base, self._head):
            for place, rows in index.operators.items():
                for operator, row in rows.items():
                    if row.count:
                        seconds[place, operator] = row.self_time / row.count
        return seconds

    @cached_property
    def traced(self) -> list[TracedCall]:
        """The shapes that both sides traced; recordings have none."""
        rows = []
        for place in sorted(self._base.accounts.keys() & self._head.accounts.keys()):
            row = TracedCall(
                place,
                self._base.accounts[place],
                self._head.accounts[place],
                self._operator_times(place),
                self.kernels(place),
                self._lines(place),
                self.code.at(place),
            )
            rows.append(row)
        return rows

    # --- profiled pairs

    @cached_property
    def operators(self) -> list[TimedParts]:
        rows = []
        for place in self.places:
            times = self._operator_times(place)
            changed = self.changed_operators(place)
            rows.append(TimedParts(place, times, changed, self._lines(place)))
        return rows

    @cached_property
    def subroutines(self) -> list[TimedParts]:
        rows = []
        for place in self.places:
            times = self._times(
                place, lambda process, shape: process.profile.subroutines.get(shape)
            )
            rows.append(TimedParts(place, times, (), {}))
        return rows

    def _operator_times(self, place: ShapePlace) -> PairedTimes:
        return self._times(
            place, lambda process, shape: process.profile.operators.get(shape)
        )

    def kernels(self, place: ShapePlace) -> PairedTimes:
        return self._times(place, kernel_seconds)

    def _times(
        self,
        place: ShapePlace,
        seconds_of: Callable[[Replicate, str], Mapping[str, float] | None],
    ) -> PairedTimes:
        """The seconds of the pairs in which both members have some."""
        times = PairedTimes()
        for first, second in self._evidence.pairs.get(place.workload, ()):
            base = seconds_of(first, place.shape)
            head = seconds_of(second, place.shape)
            if base and head:
                times.base.append(base)
                times.head.append(head)
        return times

    def stages(self, place: ShapePlace) -> list[Part]:
        """The stages of the preprocessing that both sides have, each at the first
        changed line of its function.

        Their times are the median over pairs of the 10th percentile of the calls of a
        process.
        """
        lows: dict[str, list[tuple[float, float]]] = defaultdict(list)
        lines = {}
        pairs = self._evidence.pairs.get(place.workload, ())
        for before, after in preprocess_lanes(pairs, place.shape):
            walls = {stage.name: stage.wall for stage in before.times.stages}
            for stage in after.times.stages:
                if stage.name in walls:
                    lows[stage.name].append((_low(walls[stage.name]), _low(stage.wall)))
                    lines[stage.name] = stage.line
        code = self.code.at(place)
        stages = []
        for name, line in lines.items():
            base, head = map(median, zip(*lows[name]))
            first = line and code.of_function(line)
            stages.append(
                Part(name=name, base=rounded(base), head=rounded(head), line=first)
            )
        return stages

    # --- recordings

    @cached_property
    def recorded_places(self) -> list[ShapePlace]:
        """The places of two recordings; none of other documents."""
        if not self._evidence.recorded:
            return []
        return list(dict.fromkeys([*self._base.places, *self._head.places]))

    @cached_property
    def recorded_kernels(self) -> list[RecordedKernels]:
        rows: list[RecordedKernels] = []
        if not self._evidence.recorded:
            return rows
        before = self._base.kernel_times
        after = self._head.kernel_times
        for place in dict.fromkeys([*before, *after]):
            base = KernelSums(before[place]) if place in before else None
            head = KernelSums(after[place]) if place in after else None
            rows.append(RecordedKernels(place, base, head))
        return rows

    @cached_property
    def recorded_values(self) -> list[RecordedValue]:
        """The values of steps that reports of recordings show, if both have them."""
        rows: list[RecordedValue] = []
        if not self._evidence.recorded:
            return rows
        before = _shown_values(self._base)
        for (place, name), value in _shown_values(self._head).items():
            if (place, name) in before:
                rows.append(RecordedValue(place, name, before[place, name], value))
        return rows


def _shown_values(index: RunIndex) -> dict[tuple[ShapePlace, str], float]:
    values = {}
    for workload, steps in index.steps.items():
        for value in chain.from_iterable(step.values for step in steps):
            name = value.metric
            is_shown = name in METRICS and METRICS[name].display.recorded
            if is_shown and value.value is not None:
                place = ShapePlace(workload, value.labels.get("shape", ""))
                values[place, name] = value.value
    return values


def varying_operators(counters: CounterSet) -> set[str]:
    """The operators with counts that differ between calls or processes."""
    return {
        name.removeprefix(OPERATOR_COUNT)
        for name in counters.unstable
        if name.startswith(OPERATOR_COUNT)
    }


def count_of(row: OperatorRow | None) -> float:
    if row is None:
        return 0.0
    return row.count


def _low(wall: PackedArray) -> float:
    return float(np.quantile(unpack(wall), QUANTILE)) / 1e9
