"""Exact counters, operator counts and settings of the process.

Counts have no noise, so any worsening counts, and names its operator and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from perfgate.catalogue.lookup import is_known, metric
from perfgate.catalogue.names import (
    AUTOGRAD_OPS,
    BLOCKING_TRANSFERS,
    FLOPS,
    FRAMEWORK_OPS,
    LOW_PRECISION_OPS,
    SETTINGS,
    UNBLOCKED_TRANSFERS,
)
from perfgate.document.comparison import Checked, Comparison, Exact, Outcome
from perfgate.document.decision import Policy, Verdict
from perfgate.document.explanation import Part
from perfgate.document.message import Message
from perfgate.document.run import CodeChange, CounterSet
from perfgate.judging.gate.compare.comparison import Count, Range, compared
from perfgate.judging.gate.compare.counted_shape import (
    MAX_PARTS,
    WAVERS,
    WAVERS_ABOVE,
    CountedShape,
)
from perfgate.judging.gate.compare.modes import compare_autograd, compare_precision
from perfgate.judging.gate.evidence.changed_code import MOST_ELSEWHERE
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT, total
from perfgate.judging.gate.evidence.work_table import Counted

# How many times wider than the ranges of varying counts the gap between them must be.
RANGES_APART = 2
# From this many processes of each side on, the gap is compared with base's range alone.
ENOUGH_PROCESSES = 5
# How many counts that vary a note names.
_NAMED_COUNTS = 5
_COUNTED = ("counters.", "memory.", OPERATOR_COUNT)
# A call that runs none of them any more may not have computed its output.
_PROOFS_OF_WORK = (FRAMEWORK_OPS, FLOPS)
_REASONS = {"counters.repeat_saves": Message("gate.same-input-caching")}


_Kind = TypeVar("_Kind", Exact, Checked)


def compare_counters(rows: Iterable[Counted], policy: Policy) -> list[Exact | Checked]:
    comparisons: list[Exact | Checked] = []
    for row in rows:
        shape = CountedShape(*row, policy)
        names = shape.base.values.keys() | shape.head.values.keys()
        comparisons += [_compare(shape, name) for name in sorted(names)]
        comparisons += _compare_operators(shape)
    return comparisons


def _compare(shape: CountedShape, name: str) -> Exact | Checked:
    """Compare a counter by the rule that fits it."""
    base = shape.base
    head = shape.head
    if name not in base.values or name not in head.values:
        # For example the graph breaks of a side without compilation.
        side = "base" if name in base.values else "head"
        reason = Message("gate.only-one-side", {"side": side})
        return shape.comparison(Exact, name, "not_comparable", reason)
    if not is_known(name):
        # Of a newer perfgate: equal counts hide no loss; of others the better direction
        # is unknown.
        is_equal = base.values[name] == head.values[name]
        outcome: Outcome = "not_comparable" if is_equal else "inconclusive"
        return shape.comparison(Exact, name, outcome, Message("gate.unknown-metric"))
    if name == LOW_PRECISION_OPS:
        return compare_precision(shape)
    counter = _Counter(shape, name)
    if name == AUTOGRAD_OPS and name not in shape.unstable:
        return compare_autograd(shape) or counter.compare_values()
    if name == BLOCKING_TRANSFERS and _keeps_unblocked_transfers(shape):
        return replace(shape.comparison(Exact, name, "unchanged"), tolerance=0.0)
    if counter.lost_all_work():
        return counter.compare_lost_work()
    if name in shape.unstable:
        return counter.compare_outside() or counter.compare_ranges()
    if shape.is_of_calls or base.values[name] == head.values[name]:
        return counter.compare_values()
    return counter.undecided(Exact, Message("gate.whole-recordings"))


class _Counter:
    """A known counter of a shape that both sides have."""

    def __init__(self, shape: CountedShape, name: str) -> None:
        self._shape = shape
        self._name = name
        self._base = shape.base
        self._head = shape.head
        self._before = shape.base.values[name]
        self._after = shape.head.values[name]

    def compare_values(self) -> Exact:
        count = self._count(self._before, self._after)
        if count.outcome == "unchanged":
            return count.comparison
        reason: Message | None = None
        if count.outcome == "regressed":
            reason = _REASONS.get(self._name) or _counted_once(self._shape)
        return self._explained(count, reason)

    def compare_outside(self) -> Exact | None:
        """Compare the part of a count at the places where it differs neither between
        calls nor between processes.

        None if that part is the same on both sides, or unknown because the places do
        not add up to the count, or none of them varies although the count does.
        """
        steady = []
        for side in (self._base, self._head):
            rows = side.located(self._name)
            is_explained = side.is_exact(self._name) or any(
                map(self._shape.varies, rows)
            )
            if not is_explained or total(rows) != side.values[self._name]:
                return None
            steady.append(total(self._shape.steady(rows)))
        count = self._count(*steady)
        if count.outcome == "unchanged":
            return None
        return self._explained(count, Message("gate.outside-varying"))

    def compare_ranges(self) -> Exact:
        """Compare a count that differs between repeated calls: all calls of one side
        must lie beyond all of the other.

        With three calls a side, equal code does so once in 20 gates. If the base's own
        calls differ, the gap must also be wider than RANGES_APART times a range: less
        than once in 500, for normal, uniform and log-normal counts. What differs
        between processes is seen only in several of them, so the conductor counts a
        difference in five of each side.
        """
        name = self._name
        before = self._base.ends(name)
        after = self._head.ends(name)
        wavers: str | None = None
        if self._base.is_exact(name):
            wavers = WAVERS
        if before is not None and after is not None:
            count = self._shape.count(name, before, after)
            if count.outcome != "unchanged" and count.gap > self._needed_gap(count):
                reason = Message("gate.ranges-apart")
                return self._explained(count, reason, varying=True)
            if wavers is None and _wavers_above(count):
                wavers = WAVERS_ABOVE
        if wavers is None:
            reason = self._shape.overlap(name)
            return self._shape.comparison(Exact, name, "not_comparable", reason)
        return self._shape.wavering(name, wavers)

    def _needed_gap(self, count: Count) -> float:
        """The gap that equal code hardly ever has.

        In enough processes the range of base alone shows that. Of fewer processes the
        head's may be the wider one by chance.
        """
        if self._base.is_exact(self._name):
            return 0.0
        processes = min(self._base.counters.processes, self._head.counters.processes)
        if processes >= ENOUGH_PROCESSES:
            return RANGES_APART * count.base.width
        return RANGES_APART * max(count.base.width, count.head.width)

    def lost_all_work(self) -> bool:
        return (
            self._name in _PROOFS_OF_WORK
            and self._head.is_exact(self._name)
            and self._shape.is_of_calls
            and self._before > self._after == 0
        )

    def compare_lost_work(self) -> Exact | Checked:
        """A head without the work that the base does is not an improvement: its output
        may not have been computed.

        Uncounted sources, such as a captured graph or a custom kernel, may also produce
        the output. The workload's check decides between the two: if it accepts the
        output, the loss warns; otherwise the gate cannot pass.
        """
        if self._shape.is_checked:
            return self.undecided(Checked, Message("gate.nothing-left-checked"))
        return self.undecided(Exact, Message("gate.nothing-left"))

    def undecided(self, kind: type[_Kind], reason: Message) -> _Kind:
        parts = self._parts()
        return self._shape.comparison(kind, self._name, "inconclusive", reason, parts)

    def _count(self, before: float, after: float) -> Count:
        """A count that is exact on both sides."""
        return self._shape.count(self._name, (before, before), (after, after))

    def _explained(
        self, count: Count, reason: Message | None, *, varying: bool = False
    ) -> Exact:
        parts = self._parts(varying=varying)
        return replace(count.comparison, reason=reason, parts=parts)

    def _parts(self, *, varying: bool = False) -> list[Part]:
        """The parts with the largest changes."""
        return self._shape.parts(self._name, varying=varying)[:MAX_PARTS]


def _wavers_above(count: Count) -> bool:
    """Whether all calls of head lie above all of base, and differ by more than those
    do: a head could hide any growth in its own range.
    """
    is_wider = count.head.width > RANGES_APART * count.base.width
    return count.outcome == "regressed" and is_wider


def _counted_once(shape: CountedShape) -> Message | None:
    """A message for a recording of a single step: its counts are compared, although it
    does not show that they repeat.
    """
    is_base = shape.base.counters.repeats == 1
    is_head = shape.head.counters.repeats == 1
    if is_base and is_head:
        return Message("gate.both-counted-once")
    if is_base or is_head:
        return Message("gate.counted-once", {"side": "base" if is_base else "head"})
    return None


def _keeps_unblocked_transfers(shape: CountedShape) -> bool:
    """Whether no request that lets the host go on was lost: one that may block is then
    another request.
    """
    before = total(shape.base.located(UNBLOCKED_TRANSFERS))
    after = total(shape.head.located(UNBLOCKED_TRANSFERS))
    return after >= before


def _compare_operators(shape: CountedShape) -> Iterator[Exact]:
    """Operators by name inform and explain; they do not fail the gate, for one may
    rightly replace another.

    Views are left to the run documents: they launch no work.
    """
    if not shape.is_of_calls:
        return
    base = shape.base
    head = shape.head
    skipped = _uncounted_operators(shape)
    for operator in (*base.counters.ops, *head.counters.ops):
        if operator.view:
            skipped.add(operator.op)
    parts = {part.name: part for part in shape.parts(FRAMEWORK_OPS)}
    for name in sorted((base.calls.keys() | head.calls.keys()) - skipped):
        before = base.calls.get(name, 0)
        after = head.calls.get(name, 0)
        metric_name = OPERATOR_COUNT + name
        if before != after and metric_name not in shape.unstable:
            count = Count(
                shape.place, metric_name, Range(before, before), Range(after, after)
            )
            of_operator = [parts[name]] if name in parts else []
            yield replace(count.comparison, gating=False, parts=of_operator)


def _uncounted_operators(shape: CountedShape) -> set[str]:
    """The operators that one side could not count: copies, if its recording has no
    timeline.
    """
    one_sided = shape.base.values.keys() ^ shape.head.values.keys()
    uncounted = set()
    counted = set()
    for site in (*shape.base.counters.sites, *shape.head.counters.sites):
        if site.metric in one_sided:
            uncounted.add(site.name)
        else:
            counted.add(site.name)
    return uncounted - counted


def is_differing_count(comparison: Comparison) -> bool:
    """Whether a count differs between the sides, or between processes of the head
    alone.
    """
    if not comparison.metric.startswith(_COUNTED):
        return False
    reason = comparison.reason
    if reason is not None and reason.code in (WAVERS, WAVERS_ABOVE):
        return True
    return isinstance(comparison, Exact) and comparison.outcome in (
        "regressed",
        "improved",
    )


def notes_on_varying(counted: Iterable[CounterSet]) -> list[Message]:
    """A note for each workload with counts that differ between calls or processes of
    one side: they are compared by range.
    """
    varying: dict[str, dict[str, tuple[int, int]]] = {}
    for counters in counted:
        if counters.processes > 1:
            of_workload = varying.setdefault(counters.workload, {})
            for name, ends in _wide_ranges(counters).items():
                least, most = of_workload.get(name, ends)
                of_workload[name] = min(least, ends[0]), max(most, ends[1])
    notes = []
    for workload, ranges in varying.items():
        if ranges:
            notes.append(_note_on_varying(workload, ranges))
    return notes


def _wide_ranges(counters: CounterSet) -> dict[str, tuple[int, int]]:
    """The ranges wider than the allowed growth of a count; ranges of single operators
    if no other count varies.
    """
    totals = {}
    of_operators = {}
    for name, (least, most) in counters.ranges.items():
        if name.startswith(OPERATOR_COUNT):
            of_operators[name] = least, most
        elif is_known(name) and most - least > metric(name).gate.allowed_more:
            totals[name] = least, most
    return totals or of_operators


def _note_on_varying(workload: str, ranges: dict[str, tuple[int, int]]) -> Message:
    counts = []
    for name, (least, most) in sorted(ranges.items())[:_NAMED_COUNTS]:
        counts.append(f"{name} {least}–{most}")
    if len(ranges) > _NAMED_COUNTS:
        counts.append(f"… ({len(ranges) - _NAMED_COUNTS})")
    return Message("notes.counts-vary", {"workload": workload, "counts": counts})


# --- settings of the process: they warn, with the line of the change that names them


def compare_settings(
    rows: Iterable[Counted], changes: Sequence[CodeChange]
) -> Iterator[Comparison]:
    """Yield each setting of a workload that differs, or is on one side only."""
    reported = set()
    for row in rows:
        of_base = row.base.counters.settings
        of_head = row.head.counters.settings
        reasons = []
        if of_base and not of_head:
            reasons.append(Message("gate.no-settings"))
        for name in _differing(of_base, of_head):
            if (row.place.workload, name) not in reported:
                reported.add((row.place.workload, name))
                values = of_base.get(name), of_head.get(name)
                reasons.append(_difference(name, *values, changes))
        for reason in reasons:
            warning = compared(Exact, row.place, SETTINGS, reason=reason)
            yield replace(warning, gating=False)


def _differing(base: Mapping[str, str], head: Mapping[str, str]) -> list[str]:
    """The settings that differ; none if a side has no settings at all."""
    if not base or not head:
        return []
    names = sorted(base.keys() | head.keys())
    return [name for name in names if base.get(name) != head.get(name)]


def _difference(
    name: str, before: str | None, after: str | None, changes: Sequence[CodeChange]
) -> Message:
    """The values of a setting, with the first changed line that names it; without one,
    as after a deletion, the first of few changes.
    """
    values = {"setting": name, "base": before or "-", "head": after or "-"}
    word = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
    for change in changes:
        for number, text in enumerate(change.text):
            if word.search(text):
                line = f"{change.file}:{change.first + number}"
                return Message("gate.other-setting-at", {**values, "line": line})
    if not changes or len(changes) > MOST_ELSEWHERE:
        return Message("gate.other-setting", values)
    line = f"{changes[0].file}:{changes[0].first}"
    return Message("gate.other-setting-at", {**values, "line": line})


def notes_on_settings(
    comparisons: Iterable[Comparison], verdict: Verdict
) -> list[Message]:
    """Notes about other settings for the top of a report with a verdict that has
    another reason; a WARN may be about them.
    """
    notes = []
    for comparison in comparisons:
        if comparison.metric == SETTINGS and comparison.reason and verdict != "WARN":
            notes.append(comparison.reason)
    return notes
