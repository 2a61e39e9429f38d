"""Pair the operators of base with those of head: by name, shape and source line, and by fewer of these if one changed.

Pure arithmetic on rows, for documents and for recordings alike. Times and counts are in any unit that both sides share: seconds
per call, nanoseconds of a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from perfgate.document.changes import Change

# If more rows than this of one operator remain, they are paired in order: searching for the nearest would take long, and
# very long on a hostile document.
_MOST_COMPARED = 64
_FAR = 1_000_000_000


@dataclass(frozen=True)
class TimedRow:
    """The cost of one operator on one side: ``time`` over ``count`` runs of it.

    ``shape`` are the shapes of its inputs, ``line`` (``model.py:88``) is its caller and ``code`` the text of that line;
    None if unknown. ``kind`` distinguishes operators of the same name (a kernel from the host's operator), ``operator`` is
    the one that launched a kernel.
    """

    op: str
    time: float
    count: float
    shape: str | None = None
    line: str | None = None
    code: str | None = None
    kind: str = ""
    operator: str | None = None


class AlignedRow(NamedTuple):
    """One operator of both sides; a side without it is None, never both."""

    base: TimedRow | None
    head: TimedRow | None

    @property
    def row(self) -> TimedRow:
        """The head's row; the base's for a removed operator."""
        row = self.head or self.base
        assert row is not None
        return row

    @property
    def delta(self) -> float:
        return (self.head.time if self.head else 0.0) - (self.base.time if self.base else 0.0)

    @property
    def by_count(self) -> float:
        """The part of ``delta`` due to running more or less often, at the time of one run in base.

        A row that only one side has is all count. With ``by_speed`` it adds up to ``delta``.
        """
        if self.base is None or self.head is None or not self.base.count:
            return self.delta
        return (self.head.count - self.base.count) * self.base.time / self.base.count

    @property
    def by_speed(self) -> float:
        """The part of ``delta`` due to each run taking more or less time."""
        return self.delta - self.by_count

    def change(self, *, tolerance: float = 0.0) -> Change:
        """The sort of change of the operator; times with a ratio within ``tolerance`` of 1 are the same."""
        if self.base is None:
            return "added"
        if self.head is None:
            return "removed"
        if self.head.count != self.base.count:
            return "more" if self.head.count > self.base.count else "fewer"
        if self.head.time > self.base.time * (1 + tolerance):
            return "slower"
        return "faster" if self.base.time > self.head.time * (1 + tolerance) else "same"


# The fields that two rows must share, from all of them to the name alone; None: the row lacks one of the fields. The code
# finds a line again after lines above it came or went. If a shape changed, the place identifies the operator.
_Key = Callable[[TimedRow], Hashable | None]
_TIERS: tuple[_Key, ...] = (
    lambda row: (row.shape, row.line, row.code),
    lambda row: (row.shape, row.code) if row.code else None,
    lambda row: (row.shape, row.line) if row.line else None,
    lambda row: (row.shape, _file(row)) if row.shape and row.line else None,
    lambda row: row.shape or None,
    lambda row: (_file(row), row.code) if row.code else None,
    lambda row: row.line or None,
    lambda row: row.op,
)


def align(base: Iterable[TimedRow], head: Iterable[TimedRow]) -> list[AlignedRow]:
    """Every row of both sides once, paired if they are the same operator; largest change of time first.

    Rows that share name, shape and line are paired before those that share less, each row with at most one other. Among
    several candidates, those with the nearest lines and counts are paired.
    """
    before, after = sorted(base, key=_order), sorted(head, key=_order)
    pairs: list[AlignedRow] = []
    for key in _TIERS:
        matched, before, after = _match(before, after, key)
        pairs += matched
    pairs += [AlignedRow(row, None) for row in before] + [AlignedRow(None, row) for row in after]
    return sorted(pairs, key=lambda pair: (-abs(pair.delta), _order(pair.row)))


def _match(
    before: Sequence[TimedRow], after: Sequence[TimedRow], key: _Key
) -> tuple[list[AlignedRow], list[TimedRow], list[TimedRow]]:
    groups = _grouped(after, key)
    pairs = [
        AlignedRow(rows[one], groups[word][other])
        for word, rows in _grouped(before, key).items()
        for one, other in _nearest(rows, groups.get(word, []))
    ]
    taken_before = {id(pair.base) for pair in pairs}
    taken_after = {id(pair.head) for pair in pairs}
    return (
        pairs,
        [row for row in before if id(row) not in taken_before],
        [row for row in after if id(row) not in taken_after],
    )


def _grouped(rows: Iterable[TimedRow], key: _Key) -> dict[Hashable, list[TimedRow]]:
    groups: dict[Hashable, list[TimedRow]] = {}
    for row in rows:
        if (word := key(row)) is not None:
            groups.setdefault((row.op, row.kind, word), []).append(row)
    return groups


def _nearest(before: Sequence[TimedRow], after: Sequence[TimedRow]) -> list[tuple[int, int]]:
    if max(len(before), len(after)) > _MOST_COMPARED or min(len(before), len(after)) == 0:
        return list(zip(range(len(before)), range(len(after))))
    candidates = sorted(
        product(range(len(before)), range(len(after))),
        key=lambda at: (_distance(before[at[0]], after[at[1]]), abs(before[at[0]].count - after[at[1]].count), at),
    )
    left, right, pairs = set(range(len(before))), set(range(len(after))), []
    for one, other in candidates:
        if one in left and other in right:
            left.remove(one)
            right.remove(other)
            pairs.append((one, other))
    return pairs


def _distance(one: TimedRow, other: TimedRow) -> int:
    first, second = _number(one), _number(other)
    return abs(first - second) if _file(one) == _file(other) and first >= 0 and second >= 0 else _FAR


def _file(row: TimedRow) -> str:
    return (row.line or "").rpartition(":")[0]


def _number(row: TimedRow) -> int:
    number = (row.line or "").rpartition(":")[2]
    return int(number) if number.isdecimal() and len(number) < 9 else -1


def _order(row: TimedRow) -> tuple[str, str, str, str, int, float, float]:
    return (row.op, row.kind, row.shape or "", _file(row), _number(row), row.time, row.count)
