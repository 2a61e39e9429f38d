"""How often the operators of base and head run in a call, and which lines of the head add to a count that grew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from perfgate.document.alignment import AlignedRow, TimedRow, align
from perfgate.document.decision import OperatorChange, PartSite
from perfgate.document.run import CallRow, OperatorRow, RunDocument
from perfgate.judging.gate.comparison import Place, rounded

MAX_CHANGES = 10
MIN_SHARE = 0.002  # of a side's busy time; an op that runs more often for less than this explains nothing
MAX_SITES = 6


def operator_changes(base: RunDocument, head: RunDocument) -> list[OperatorChange]:
    """The operators that came, went or run more or less often, a few per shape.

    Each side was traced by itself, so the traced times say how much an operator weighs on its side, never how much more or
    less it takes: they choose the operators and their order, and no more. Recordings that mark no calls are left out: their
    counts are not of one call.
    """
    before, after = _rows_by_place(base), _rows_by_place(head)
    unmarked = {(c.workload, c.shape) for run in (base, head) for c in run.counters if not c.repeats}
    changes: list[OperatorChange] = []
    for place in sorted((before.keys() & after.keys()) - unmarked):
        old, new = before[place], after[place]
        lines = operator_lines(head, place)
        weights = {op: _weight(old.get(op), new.get(op)) for op in old.keys() | new.keys()}
        ops = [
            op
            for op in sorted(weights, key=lambda op: (-weights[op], op))
            if weights[op] > MIN_SHARE or not (op in old and op in new)
        ]
        changes += [
            OperatorChange(
                workload=place.workload,
                shape=place.shape,
                op=op,
                base_count=rounded(_count(old.get(op))),
                head_count=rounded(_count(new.get(op))),
                line=lines.get(op),
            )
            for op in ops[:MAX_CHANGES]
        ]
    return changes


def changed_counts(base: RunDocument, head: RunDocument) -> set[tuple[str, str, str]]:
    """Workload, shape and name of the operators that a call of one side runs more often than one of the other."""
    before, after = _rows_by_place(base), _rows_by_place(head)
    return {
        (*place, op)
        for place in before.keys() & after.keys()
        for op in before[place].keys() | after[place].keys()
        if _count(before[place].get(op)) != _count(after[place].get(op))
    }


def operator_lines(run: RunDocument, place: Place) -> dict[str, str]:
    """The project line that most often calls each operator of a shape, by the exact counters."""
    return {
        op.op: op.line
        for counters in run.counters
        if (counters.workload, counters.shape) == place
        for op in counters.ops
        if op.line
    }


def _rows_by_place(run: RunDocument) -> dict[Place, dict[str, OperatorRow]]:
    places: dict[Place, dict[str, OperatorRow]] = {}
    for row in run.operators:
        places.setdefault(Place(row.workload, row.shape), {})[row.op] = row
    return places


def _weight(before: OperatorRow | None, after: OperatorRow | None) -> float:
    """The share of its side's time that those runs take which only one side has."""
    rows = [row for row in (before, after) if row is not None]
    more = abs(_count(after) - _count(before))
    return max(row.share for row in rows) * more / max(abs(row.count) for row in rows) if more else 0.0


def _count(row: OperatorRow | None) -> float:
    return row.count if row else 0.0


# --- lines


def grown_sites(before: Iterable[TimedRow], after: Iterable[TimedRow], base_code: Collection[str]) -> list[PartSite]:
    """The lines of ``after`` whose count grew, the one to name first.

    The same code on both sides is the same line, whatever its number. A line whose code was edited takes the place of the line
    that is gone from there. ``base_code`` is the text of every line of the base that is known, whatever it runs there: a line
    that the base has too was not added by the change, though it may now do what it did not before. So new code comes before
    it, unless it adds less than half of what that does.
    """
    old, new = _by_code(before), _by_code(after)
    pairs = [pair for code in old.keys() & new.keys() for pair in align(old[code], new[code])]
    gone = [row for code in old.keys() - new.keys() for row in old[code]]
    came = {code: new[code] for code in new.keys() - old.keys()}
    pairs += [AlignedRow(None, row) for code, rows in came.items() if code in base_code for row in rows]
    pairs += align(gone, [row for code, rows in came.items() if code not in base_code for row in rows])
    growth = [(pair.head, pair.head.count - (pair.base.count if pair.base else 0.0)) for pair in pairs if pair.head]
    grown = [(row, more) for row, more in growth if more > 0]
    most = max((more for _, more in grown), default=0.0)

    def order(entry: tuple[TimedRow, float]) -> tuple[bool, float, str, int]:
        row, more = entry
        file, _, number = (row.line or "").rpartition(":")
        return row.code in base_code or more < most / 2, -more, file, int(number) if number.isdecimal() else 0

    return [
        PartSite(line=row.line, base=rounded(row.count - more), head=rounded(row.count), tensor=row.shape)
        for row, more in sorted(grown, key=order)
        if row.line
    ][:MAX_SITES]


def rows_by_line(rows: Iterable[CallRow]) -> list[TimedRow]:
    """One row for every line that runs an operator, whatever its inputs."""
    counts: dict[tuple[str, str | None, str | None], float] = defaultdict(float)
    for row in rows:
        counts[row.op, row.line, row.code] += row.count
    return [TimedRow(op, count, count, line=line, code=code) for (op, line, code), count in counts.items()]


def _by_code(rows: Iterable[TimedRow]) -> dict[str, list[TimedRow]]:
    groups: dict[str, list[TimedRow]] = defaultdict(list)
    for row in rows:
        groups[row.code or row.line or ""].append(row)
    return groups
