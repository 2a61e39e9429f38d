"""Exact counters, operator counts and settings of the process.

Counts have no noise, so any worsening counts, and names its operator and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

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
from perfgate.judging.gate.compare.counted_shape import MAX_PARTS, CountedShape
from perfgate.judging.gate.compare.modes import compare_autograd, compare_precision
from perfgate.judging.gate.evidence.changed_code import MOST_ELSEWHERE
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT, total
from perfgate.judging.gate.evidence.work_table import Counted

# How many times wider than the ranges of varying counts the gap between them must be.
RANGES_APART = 2
# How many counts that vary a note names.
_NAMED_COUNTS = 5
_COUNTED = ("counters.", "memory.", OPERATOR_COUNT)
# A call that runs none of them any more may not have computed its output.
_PROOFS_OF_WORK = (FRAMEWORK_OPS, FLOPS)
_REASONS = {"counters.repeat_saves": Message("gate.same-input-caching")}


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
    if name == AUTOGRAD_OPS and name not in shape.unstable:
        return compare_autograd(shape) or _compare_exact(shape, name)
    if name == BLOCKING_TRANSFERS and _keeps_unblocked_transfers(shape):
        return replace(shape.comparison(Exact, name, "unchanged"), tolerance=0.0)
    if _lost_all_work(shape, name):
        return _compare_lost_work(shape, name)
    if name in shape.unstable:
        return _compare_outside(shape, name) or _compare_ranges(shape, name)
    if not shape.is_of_calls and base.values[name] != head.values[name]:
        reason = Message("gate.whole-recordings")
        parts = _largest_parts(shape, name)
        return shape.comparison(Exact, name, "inconclusive", reason, parts)
    return _compare_exact(shape, name)


def _compare_exact(shape: CountedShape, name: str) -> Exact:
    before = shape.base.values[name]
    after = shape.head.values[name]
    count = shape.count(name, (before, before), (after, after))
    if count.outcome == "unchanged":
        return count.comparison
    reason = None
    if count.outcome == "regressed":
        reason = _REASONS.get(name) or _counted_once(shape)
    return replace(count.comparison, reason=reason, parts=_largest_parts(shape, name))


def _largest_parts(
    shape: CountedShape, name: str, *, varying: bool = False
) -> list[Part]:
    return shape.parts(name, varying=varying)[:MAX_PARTS]


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


def _compare_outside(shape: CountedShape, name: str) -> Exact | None:
    """Compare the part of a count at the places where it differs neither between calls
    nor between processes.

    None if that part is the same on both sides, or unknown because the places do not
    add up to the count, or none of them varies although the count does.
    """
    steady = []
    for side in (shape.base, shape.head):
        rows = side.located(name)
        is_explained = side.is_exact(name) or any(map(shape.varies, rows))
        if not is_explained or total(rows) != side.values[name]:
            return None
        steady.append(total(shape.steady(rows)))
    before, after = steady
    count = shape.count(name, (before, before), (after, after))
    if count.outcome == "unchanged":
        return None
    reason = Message("gate.outside-varying")
    return replace(count.comparison, reason=reason, parts=_largest_parts(shape, name))


def _compare_ranges(shape: CountedShape, name: str) -> Exact:
    """Compare a count that differs between repeated calls: all calls of one side must
    lie beyond all of the other.

    With three calls a side, equal code does so once in 20 gates. If the base's own
    calls differ, the gap must also be wider than RANGES_APART times the wider range:
    less than once in 500, for normal, uniform and log-normal counts. What differs
    between processes is seen only in several of them, so the conductor counts a
    difference in five of each side.
    """
    before = shape.base.ends(name)
    after = shape.head.ends(name)
    if before is not None and after is not None:
        count = shape.count(name, before, after)
        needed = 0.0
        if not shape.base.is_exact(name):
            needed = RANGES_APART * max(count.base.width, count.head.width)
        base, head = count.closest
        if count.outcome != "unchanged" and abs(head - base) > needed:
            parts = _largest_parts(shape, name, varying=True)
            reason = Message("gate.ranges-apart")
            return replace(count.comparison, reason=reason, parts=parts)
    if not shape.base.is_exact(name):
        return shape.comparison(Exact, name, "not_comparable", shape.overlap(name))
    # The change made it waver.
    reason = Message("gate.unstable-in-head")
    return replace(shape.comparison(Exact, name, "inconclusive", reason), gating=False)


def _keeps_unblocked_transfers(shape: CountedShape) -> bool:
    """Whether no request that lets the host go on was lost: one that may block is then
    another request.
    """
    before = total(shape.base.located(UNBLOCKED_TRANSFERS))
    after = total(shape.head.located(UNBLOCKED_TRANSFERS))
    return after >= before


def _lost_all_work(shape: CountedShape, name: str) -> bool:
    is_exact = shape.head.is_exact(name) and shape.is_of_calls
    return (
        name in _PROOFS_OF_WORK
        and is_exact
        and shape.base.values[name] > shape.head.values[name] == 0
    )


def _compare_lost_work(shape: CountedShape, name: str) -> Exact | Checked:
    """A head without the work that the base does is not an improvement: its output may
    not have been computed.

    Uncounted sources, such as a captured graph or a custom kernel, may also produce the
    output. The workload's check decides between the two: if it accepts the output, the
    loss warns; otherwise the gate cannot pass.
    """
    parts = _largest_parts(shape, name)
    if shape.is_checked:
        reason = Message("gate.nothing-left-checked")
        return shape.comparison(Checked, name, "inconclusive", reason, parts)
    reason = Message("gate.nothing-left")
    return shape.comparison(Exact, name, "inconclusive", reason, parts)


def _compare_operators(shape: CountedShape) -> Iterator[Exact]:
    """Operators by name inform and explain; they do not fail the gate, for one may
    rightly replace another.

    Views are left to the run documents: they launch no work.
    """
    if not shape.is_of_calls:
        return
    base = shape.base
    head = shape.head
    views = {
        operator.op
        for operator in (*base.counters.ops, *head.counters.ops)
        if operator.view
    }
    uncounted = _uncounted_operators(shape)
    parts = shape.parts(FRAMEWORK_OPS)
    for operator in sorted(base.calls.keys() | head.calls.keys()):
        before = base.calls.get(operator, 0)
        after = head.calls.get(operator, 0)
        name = OPERATOR_COUNT + operator
        if before == after or name in shape.unstable:
            continue
        if operator not in views and operator not in uncounted:
            count = Count(shape.place, name, Range(before, before), Range(after, after))
            of_operator = [part for part in parts if part.name == operator]
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


def is_differing_count(compared: Comparison) -> bool:
    """Whether a count differs between the sides, or between processes of the head
    alone.
    """
    if not compared.metric.startswith(_COUNTED):
        return False
    wavers = (
        compared.reason is not None and compared.reason.code == "gate.unstable-in-head"
    )
    return wavers or (
        isinstance(compared, Exact) and compared.outcome in ("regressed", "improved")
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
        elif of_base:
            for name in sorted(of_base.keys() | of_head.keys()):
                before = of_base.get(name)
                after = of_head.get(name)
                if before != after and (row.place.workload, name) not in reported:
                    reported.add((row.place.workload, name))
                    reasons.append(_difference(name, before, after, changes))
        for reason in reasons:
            warning = compared(Exact, row.place, SETTINGS, reason=reason)
            yield replace(warning, gating=False)


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
