"""The operators that came, went, run more or less often, or were replaced by others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from perfgate.catalogue.names import FRAMEWORK_OPS
from perfgate.document.alignment import Work
from perfgate.document.explanation import OperatorDelta, Replacement
from perfgate.document.lines import file_of, split_line
from perfgate.document.run import OperatorRow
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import Evidence, count_of
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT, CountedSide

MAX_CHANGES = 10
# Of a side's busy time; an operator that runs more often for less than this explains no slowdown.
MIN_SHARE = 0.002
# A line by its file and its text.
_Code = tuple[str, str | None]


def operator_changes(evidence: Evidence) -> list[OperatorDelta]:
    """The operators that came, went or run more or less often, a few per shape.

    Each side was traced by itself, so the traced times show how much an operator weighs on its side, never how much more or
    less it takes: they only select and order the operators. Recordings that mark no calls are left out: their counts are not of
    one call. So are operators with counts that differ between calls or processes of the same code.
    """
    before = evidence.base.operators
    after = evidence.head.operators
    changes = []
    for place in sorted((before.keys() & after.keys()) - evidence.unmarked):
        old = before[place]
        new = after[place]
        lines = evidence.head.operator_lines(place)
        for operator in _heaviest_changes(old, new, _varying_operators(evidence, place)):
            delta = OperatorDelta(
                workload=place.workload,
                shape=place.shape,
                op=operator,
                base_count=rounded(count_of(old.get(operator))),
                head_count=rounded(count_of(new.get(operator))),
                line=lines.get(operator),
            )
            changes.append(delta)
    return changes


def _heaviest_changes(old: dict[str, OperatorRow], new: dict[str, OperatorRow], varying: Collection[str]) -> list[str]:
    weights = {}
    for operator in (old.keys() | new.keys()).difference(varying):
        weight = _weight(old.get(operator), new.get(operator))
        if weight > MIN_SHARE or operator not in old or operator not in new:
            weights[operator] = weight
    return sorted(weights, key=lambda operator: (-weights[operator], operator))[:MAX_CHANGES]


def _weight(before: OperatorRow | None, after: OperatorRow | None) -> float:
    """The share of its side's time for runs that only one side has."""
    more = abs(count_of(after) - count_of(before))
    if not more:
        return 0.0
    share = max(_share(before), _share(after))
    return share * more / max(abs(count_of(before)), abs(count_of(after)))


def _share(row: OperatorRow | None) -> float:
    if row is None:
        return 0.0
    return row.share


def replaced_operators(evidence: Evidence) -> list[Replacement]:
    """The operators that others replaced one for one, on the same line or among the edited lines of a file."""
    replacements = []
    for place, after in evidence.head.counters.items():
        before = evidence.base.counters.get(place)
        if before is None or FRAMEWORK_OPS in (*before.unstable, *after.unstable):
            continue
        varying = _varying_operators(evidence, place)
        for row in _replacements(place, CountedSide(before), CountedSide(after)):
            if varying.isdisjoint((row.before, row.after)):
                replacements.append(row)
    return replacements[:MAX_CHANGES]


def _varying_operators(evidence: Evidence, place: ShapePlace) -> set[str]:
    """The operators with counts that differ between calls or processes of a side."""
    operators = set()
    for index in (evidence.base, evidence.head):
        if place not in index.counters:
            continue
        for name in index.counters[place].unstable:
            if name.startswith(OPERATOR_COUNT):
                operators.add(name.removeprefix(OPERATOR_COUNT))
    return operators


def _replacements(place: ShapePlace, before: CountedSide, after: CountedSide) -> Iterator[Replacement]:
    common = _codes(before) & _codes(after)
    old = _operators_by_code(before, common)
    new = _operators_by_code(after, common)
    for code in old.keys() & new.keys():
        gone = old[code] - new[code]
        came = new[code] - old[code]
        if len(gone) != 1 or [*gone.values()] != [*came.values()]:
            continue
        ((operator, count),) = came.items()
        rows = [row for row in after.of(FRAMEWORK_OPS, operator) if row.line and _code(row, common) == code]
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


def _operators_by_code(side: CountedSide, common: Collection[_Code]) -> dict[_Code, Counter[str]]:
    """How often each line runs each operator. Lines missing on the other side count as one: edits move calls between them."""
    operators: defaultdict[_Code, Counter[str]] = defaultdict(Counter)
    for row in side.located(FRAMEWORK_OPS):
        if row.code:
            operators[_code(row, common)][row.operator] += int(row.amount)
    return operators


def _code(row: Work, common: Collection[_Code]) -> _Code:
    """File and text of a line, as its number changes with the lines above it; no text for a line that the other side lacks."""
    code = file_of(row.line), row.code
    if code in common:
        return code
    return (code[0], None)
