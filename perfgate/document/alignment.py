"""Pair the work of base and head: by operator, inputs and source line, and by fewer of
these if one changed.

Pure arithmetic, for documents and for recordings alike. Amounts are in any unit that
both sides share: calls, seconds per call, nanoseconds of a recording.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from perfgate.document.lines import file_of, number_in

Change = Literal["added", "removed", "more", "fewer", "slower", "faster", "same"]


# If more rows than this of one operator remain, they are paired in order: searching for
# the nearest would take long, and very long on a hostile document.
_MOST_COMPARED = 64
_FAR = 1_000_000_000
# The kind of work that ran on a device.
DEVICE = "device"


@dataclass(frozen=True)
class Work:
    """An amount of work that one side does: an operator, or a function, on one form of
    inputs, from one line of code.
    """

    operator: str
    # In the unit of ``aspect``, for ``calls`` calls together.
    amount: float
    calls: float
    inputs: str | None = None
    # The caller (``model.py:88``); None if unknown.
    line: str | None = None
    # The text of that line.
    code: str | None = None
    # Distinguishes operators of the same name: a kernel from the host's operator.
    kind: str = ""
    # The operator that launched a kernel.
    launched_by: str | None = None
    # The name of a counter; empty for seconds.
    aspect: str = ""
    # Whether the amount differs between calls or processes of the same code.
    varies: bool = False
    # The standard error of a sampled amount.
    error: float = 0.0

    @property
    def is_python(self) -> bool:
        """Whether it is a function of the project and no operator."""
        return self.kind == "python"

    @property
    def is_copy(self) -> bool:
        return self.kind == "copy"

    @property
    def on_device(self) -> bool:
        return self.kind == DEVICE


NO_WORK = Work("", 0.0, 0.0)


class AlignedWork(NamedTuple):
    """The same work on both sides; a side without it is None, never both."""

    base: Work | None
    head: Work | None

    @property
    def row(self) -> Work:
        """The head's row; the base's for a removed operator."""
        row = self.head or self.base
        assert row is not None
        return row

    @property
    def delta(self) -> float:
        return (self.head or NO_WORK).amount - (self.base or NO_WORK).amount

    @property
    def more_calls(self) -> float:
        return (self.head or NO_WORK).calls - (self.base or NO_WORK).calls

    @property
    def by_count(self) -> float:
        """The part of ``delta`` due to running more or less often, at the amount of one
        run in base.

        A row that only one side has is all count. With ``by_speed`` it adds up to
        ``delta``.
        """
        if self.base is None or self.head is None or not self.base.calls:
            return self.delta
        return self.more_calls * self.base.amount / self.base.calls

    @property
    def by_speed(self) -> float:
        """The part of ``delta`` due to each run taking more or less time."""
        return self.delta - self.by_count

    def change(self, *, tolerance: float = 0.0) -> Change:
        """The sort of change of the operator; times with a ratio within ``tolerance``
        of 1 are the same.
        """
        if self.base is None:
            return "added"
        if self.head is None:
            return "removed"
        if self.more_calls:
            return "more" if self.more_calls > 0 else "fewer"
        if self.head.amount > self.base.amount * (1 + tolerance):
            return "slower"
        if self.base.amount > self.head.amount * (1 + tolerance):
            return "faster"
        return "same"


# The fields that two rows must share, from all of them to the name alone; None: the row
# lacks one of the fields.
_Tiers = tuple[Hashable | None, ...]
_MOST_TIERS = 8


def _tiers(row: Work) -> _Tiers:
    """The code finds a line again after lines above it came or went.

    If the inputs changed, the place names the operator.
    """
    inputs = row.inputs or None
    line = row.line or None
    code = row.code or None
    file = file_of(line)
    return (
        (row.inputs, row.line, row.code),
        code and (row.inputs, code),
        line and (row.inputs, line),
        inputs and line and (inputs, file),
        inputs,
        code and (file, code),
        line,
        row.operator,
    )


def align(base: Iterable[Work], head: Iterable[Work]) -> list[AlignedWork]:
    """Every row of both sides once, paired if they are the same operator; largest
    change of the amount first.

    Rows that share name, inputs and line are paired before those that share less, each
    row with at most one other. Among several candidates, the nearest lines and counts
    are paired.
    """
    before = sorted(base, key=_order)
    after = sorted(head, key=_order)
    tiers = {id(row): _tiers(row) for row in (*before, *after)}
    pairs: list[AlignedWork] = []
    for tier in range(_MOST_TIERS):
        groups_of_head = _grouped(after, tiers, tier)
        paired: set[int] = set()
        for key, rows in _grouped(before, tiers, tier).items():
            for pair in _nearest(rows, groups_of_head.get(key, [])):
                pairs.append(pair)
                paired |= {id(pair.base), id(pair.head)}
        before = [row for row in before if id(row) not in paired]
        after = [row for row in after if id(row) not in paired]
    pairs += [AlignedWork(row, None) for row in before]
    pairs += [AlignedWork(None, row) for row in after]
    return sorted(pairs, key=lambda pair: (-abs(pair.delta), _order(pair.row)))


def _grouped(
    rows: Iterable[Work], tiers: Mapping[int, _Tiers], tier: int
) -> dict[Hashable, list[Work]]:
    groups: dict[Hashable, list[Work]] = {}
    for row in rows:
        fields = tiers[id(row)][tier]
        if fields is not None:
            groups.setdefault((row.operator, row.kind, fields), []).append(row)
    return groups


def _nearest(before: Sequence[Work], after: Sequence[Work]) -> list[AlignedWork]:
    if (
        max(len(before), len(after)) > _MOST_COMPARED
        or min(len(before), len(after)) == 0
    ):
        return [AlignedWork(first, second) for first, second in zip(before, after)]

    def distance(at: tuple[int, int]) -> tuple[int, float, tuple[int, int]]:
        first, second = before[at[0]], after[at[1]]
        return _lines_apart(first, second), abs(first.calls - second.calls), at

    pairs = []
    of_base = set(range(len(before)))
    of_head = set(range(len(after)))
    for first, second in sorted(product(of_base, of_head), key=distance):
        if first in of_base and second in of_head:
            of_base.remove(first)
            of_head.remove(second)
            pairs.append(AlignedWork(before[first], after[second]))
    return pairs


def _lines_apart(first: Work, second: Work) -> int:
    """How far apart the lines of two rows are, in one file."""
    numbers = _number(first), _number(second)
    if file_of(first.line) != file_of(second.line) or min(numbers) < 0:
        return _FAR
    return abs(numbers[0] - numbers[1])


def _number(row: Work) -> int:
    number = number_in((row.line or "").rpartition(":")[2])
    return -1 if number is None else number


def _order(row: Work) -> tuple[str, str, str, str, int, float, float]:
    return (
        row.operator,
        row.kind,
        row.inputs or "",
        file_of(row.line),
        _number(row),
        row.amount,
        row.calls,
    )
