"""Every operator of a shape once, with its counts, its test and its times; and the
operators that replaced others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from perfgate.catalogue.names import FRAMEWORK_OPS
from perfgate.document.alignment import Work
from perfgate.document.comparison import Comparison
from perfgate.document.explanation import Explanation, OperatorDelta, Replacement
from perfgate.document.lines import file_of, split_line
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import CountedSide
from perfgate.judging.gate.evidence.work_table import (
    Counted,
    ListedOperators,
    PairedTimes,
    TimedParts,
    count_of,
    varying_operators,
)
from perfgate.stats.signed_rank import estimate
from perfgate.stats.summary import median

MAX_CHANGES = 10
# Of a side's busy time; an operator that runs more often for less than this explains no
# slowdown.
MIN_SHARE = 0.002
# A line by its file and its text.
_Code = tuple[str, str | None]
# The most operators of a shape listed with their times.
MAX_OPERATORS = 100
# An operator of a shape of a workload.
_Key = tuple[ShapePlace, str]


def joined(
    changes: Iterable[OperatorDelta],
    tests: Iterable[OperatorDelta],
    times: Iterable[OperatorDelta],
) -> list[OperatorDelta]:
    """Each operator of a shape once, in the order of the lists: its counts, its test,
    and its times.
    """
    rows: dict[_Key, OperatorDelta] = {}
    for delta in (*changes, *tests, *times):
        key = delta.place, delta.op
        first = rows.get(key)
        if first is None:
            rows[key] = delta
        elif delta.outcome != "untested":
            rows[key] = replace(
                delta, base_count=first.base_count, head_count=first.head_count
            )
        else:
            rows[key] = replace(
                first, base=delta.base, head=delta.head, seconds=delta.seconds
            )
    return list(rows.values())


def slower_alone(
    operators: Iterable[OperatorDelta],
    comparisons: Iterable[Comparison],
    explanations: Iterable[Explanation],
) -> list[OperatorDelta]:
    """The operators, marked if they are slower and neither run more often nor are named
    by a count or an explanation.
    """
    explained = set()
    for comparison in comparisons:
        for part in comparison.parts:
            if part.aspect is None:
                explained.add((comparison.place, part.name))
    for explanation in explanations:
        for contribution in explanation.contributions:
            explained.add((explanation.place, contribution.op))
    marked = []
    for delta in operators:
        is_explained = (
            delta.base_count is not None or (delta.place, delta.op) in explained
        )
        marked.append(
            replace(delta, alone=delta.outcome == "regressed" and not is_explained)
        )
    return marked


# --- operators that run more or less often


def operator_changes(rows: Sequence[ListedOperators]) -> list[OperatorDelta]:
    """The operators that came, went or run more or less often, a few per shape.

    Each side was traced by itself, so the traced times show how much an operator weighs
    on its side, never how much more or less it takes: they only select and order the
    operators. Recordings that mark no calls are left out: their counts are not of one
    call. So are operators with counts that differ between calls or processes of the
    same code.
    """
    changes = []
    for row in sorted(rows, key=lambda row: row.place):
        for operator in _heaviest_changes(row):
            delta = OperatorDelta(
                workload=row.place.workload,
                shape=row.place.shape,
                op=operator,
                base_count=rounded(count_of(row.base.get(operator))),
                head_count=rounded(count_of(row.head.get(operator))),
                line=row.lines.get(operator),
            )
            changes.append(delta)
    return changes


def _heaviest_changes(row: ListedOperators) -> list[str]:
    weights = {}
    for operator in (row.base.keys() | row.head.keys()).difference(row.varying):
        # The share of its side's time for runs that only one side has.
        before = row.base.get(operator)
        after = row.head.get(operator)
        counts = count_of(before), count_of(after)
        weight = max(side.share if side else 0.0 for side in (before, after))
        if counts[0] == counts[1]:
            weight = 0.0
        else:
            weight *= abs(counts[1] - counts[0])
            weight /= max(map(abs, counts))
        if weight > MIN_SHARE or operator not in row.base or operator not in row.head:
            weights[operator] = weight
    return sorted(weights, key=lambda operator: (-weights[operator], operator))[
        :MAX_CHANGES
    ]


# --- the times of operators


def operator_times(
    profiled: Iterable[TimedParts],
    tests: Iterable[OperatorDelta],
    explanations: Iterable[Explanation],
) -> list[OperatorDelta]:
    """The time of every profiled operator on both sides, most time first, shape by
    shape.

    The difference comes from the explanation, which excludes the profiler's own time,
    else from the test, else from the paired estimate.
    """
    differences = {}
    for test in tests:
        differences[test.place, test.op] = test.seconds
    for explanation in explanations:
        for part in explanation.contributions:
            differences[explanation.place, part.profiled] = part.seconds
    times: list[OperatorDelta] = []
    for parts in profiled:
        rows = []
        for operator in _heaviest(parts.times):
            rows.append(_time(parts.place, operator, parts.times, differences))
        times += sorted(rows, key=lambda row: -max(row.base or 0.0, row.head or 0.0))
    return times


def _heaviest(pairs: PairedTimes) -> list[str]:
    """The operators with most time, and the time outside them."""
    total = {name: float(pairs.of_part(name).sum()) for name in pairs.names}
    has_outside = total.pop(OUTSIDE_OPERATORS, None) is not None
    operators = sorted(total, key=lambda operator: (-total[operator], operator))[
        :MAX_OPERATORS
    ]
    if has_outside:
        operators.append(OUTSIDE_OPERATORS)
    return operators


def _time(
    place: ShapePlace,
    operator: str,
    pairs: PairedTimes,
    differences: Mapping[_Key, float],
) -> OperatorDelta:
    of_base, of_head = pairs.of_part(operator).T
    difference = differences.get((place, operator))
    if difference is None:
        difference = estimate(of_head - of_base)
    if any(operator in times for times in pairs.head):
        before = median(of_base)
        after = max(0.0, before + difference)
    else:
        before = max(0.0, -difference)
        after = 0.0
    base = rounded(before)
    head = rounded(after)
    return OperatorDelta(
        workload=place.workload,
        shape=place.shape,
        op=operator,
        base=base,
        head=head,
        seconds=rounded(head - base),
    )


# --- operators that took the place of others


def replaced_operators(shapes: Iterable[Counted]) -> list[Replacement]:
    """The operators that others replaced one for one, on the same line or among the
    edited lines of a file.
    """
    replacements = []
    for counted in shapes:
        base = counted.base
        head = counted.head
        if base.is_exact(FRAMEWORK_OPS) and head.is_exact(FRAMEWORK_OPS):
            varying = varying_operators(base.counters) | varying_operators(
                head.counters
            )
            for row in _replacements(counted.place, base, head):
                if varying.isdisjoint((row.before, row.after)):
                    replacements.append(row)
    return replacements[:MAX_CHANGES]


def _replacements(
    place: ShapePlace, before: CountedSide, after: CountedSide
) -> Iterator[Replacement]:
    common = _codes(before) & _codes(after)
    old = _operators_by_code(before, common)
    new = _operators_by_code(after, common)
    for code in old.keys() & new.keys():
        gone = old[code] - new[code]
        came = new[code] - old[code]
        if len(gone) != 1 or [*gone.values()] != [*came.values()]:
            continue
        ((operator, count),) = came.items()
        rows = [
            row
            for row in after.of(FRAMEWORK_OPS, operator)
            if row.line and _code(row, common) == code
        ]
        first = min(rows, key=lambda row: split_line(row.line)[1], default=None)
        yield Replacement(
            workload=place.workload,
            shape=place.shape,
            before=next(iter(gone)),
            after=operator,
            count=count,
            line=first.line if first else None,
        )


def _codes(side: CountedSide) -> set[_Code]:
    return {(file_of(site.line), site.code) for site in side.counters.sites}


def _operators_by_code(
    side: CountedSide, common: Collection[_Code]
) -> dict[_Code, Counter[str]]:
    """How often each line runs each operator.

    Lines missing on the other side count as one: edits move calls between them.
    """
    operators: defaultdict[_Code, Counter[str]] = defaultdict(Counter)
    for row in side.located(FRAMEWORK_OPS):
        if row.code:
            operators[_code(row, common)][row.operator] += int(row.amount)
    return operators


def _code(row: Work, common: Collection[_Code]) -> _Code:
    """File and text of a line, as its number changes with the lines above it; no text
    for a line that the other side lacks.
    """
    code = file_of(row.line), row.code
    if code in common:
        return code
    return (code[0], None)
