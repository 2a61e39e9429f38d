"""Which lines of the head add to a count that grew, and by how much each of them.

The same code on both sides is the same line, whatever its number. A line whose code was edited takes the place of the line
that is gone from there. Only a line that adds more than it did can have made a count grow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from perfgate.document.alignment import AlignedRow, TimedRow, align
from perfgate.document.decision import PartSite
from perfgate.document.run import CallRow
from perfgate.judging.gate.rounding import rounded

MAX_SITES = 6
_Rows = list[TimedRow]


def grown_sites(before: Iterable[TimedRow], after: Iterable[TimedRow], base_code: Collection[str]) -> list[PartSite]:
    """Return the lines of ``after`` whose count grew, the one to name first.

    ``base_code`` is every text of a line that is known of the base, whatever it runs there: a line that the base has too
    was not added by the change, though it may now do what it did not before. So new code comes before it, unless it adds
    less than half of what that does.
    """
    old, new = _by_code(before), _by_code(after)
    pairs = [pair for code in old.keys() & new.keys() for pair in align(old[code], new[code])]
    gone = [row for code in old.keys() - new.keys() for row in old[code]]
    came = {code: new[code] for code in new.keys() - old.keys()}
    pairs += [AlignedRow(None, row) for code, rows in came.items() if code in base_code for row in rows]
    pairs += align(gone, [row for code, rows in came.items() if code not in base_code for row in rows])
    grown = [(pair.head, _more(pair)) for pair in pairs if pair.head is not None and _more(pair) > 0]
    most = max((more for _, more in grown), default=0.0)
    grown.sort(
        key=lambda entry: (entry[0].code in base_code or entry[1] < most / 2, -entry[1], _place(entry[0])),
    )
    return [
        PartSite(line=row.line, base=rounded(row.count - more), head=rounded(row.count), tensor=row.shape)
        for row, more in grown
        if row.line
    ][:MAX_SITES]


def rows_by_line(rows: Iterable[CallRow]) -> _Rows:
    """Return one row for every line that runs an operator, whatever its inputs."""
    counts: dict[tuple[str, str | None, str | None], float] = defaultdict(float)
    for row in rows:
        counts[row.op, row.line, row.code] += row.count
    return [TimedRow(op, count, count, line=line, code=code) for (op, line, code), count in counts.items()]


def _more(pair: AlignedRow) -> float:
    return (pair.head.count if pair.head else 0.0) - (pair.base.count if pair.base else 0.0)


def _by_code(rows: Iterable[TimedRow]) -> dict[str, _Rows]:
    groups: dict[str, _Rows] = defaultdict(list)
    for row in rows:
        groups[row.code or row.line or ""].append(row)
    return groups


def _place(row: TimedRow) -> tuple[str, int]:
    file, _, number = (row.line or "").rpartition(":")
    return file, int(number) if number.isdecimal() else 0
