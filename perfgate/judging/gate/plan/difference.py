"""The plan less the rows: what is missing, grouped for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from perfgate.document.decision import Missing, MissingSide, NamedBy
from perfgate.document.run import Side
from perfgate.judging.gate.evidence.rows import Expected, Row, RowArm, RowTable

SIDES: tuple[Side, Side] = ("base", "head")
# The arms with units that a person can count: pairs, and quads of a job.
_COUNTED_ARMS: tuple[RowArm, ...] = ("ab", "aa", "turn")


class Requirement(NamedTuple):
    """A row that a side must have."""

    side: Side
    expected: Expected


def on_both_sides(expected: Iterable[Expected]) -> list[Requirement]:
    return [Requirement(side, entry) for entry in expected for side in SIDES]


class _Name(NamedTuple):
    """One entry for people: everything of one metric and shape."""

    workload: str
    shape: str
    metric: str


class _Group:
    """The required rows of one name on one side."""

    def __init__(self) -> None:
        self.lacking: list[Expected] = []
        self.differs = False
        self._is_partial = False

    def add(self, expected: Expected, table: RowTable) -> None:
        text = table.rows.get(expected.row)
        if text is None:
            self.lacking.append(expected)
        elif expected.text not in (None, text):
            self.lacking.append(expected)
            self.differs = True
        else:
            self._is_partial = True

    @property
    def units(self) -> list[int]:
        """The pairs or quads that lack it, if others have it."""
        rows = [expected.row for expected in self.lacking]
        if not self._is_partial or any(row.arm not in _COUNTED_ARMS for row in rows):
            return []
        return sorted({row.unit for row in rows})

    def named_by(self, *, of_both: bool) -> NamedBy:
        """Who requires it. What one side has is required by that document."""
        names = {expected.named_by for expected in self.lacking}
        if "configuration" in names:
            return "configuration"
        return "store" if "store" in names and of_both else "document"


def missing_rows(plan: Iterable[Requirement], tables: Mapping[Side, RowTable]) -> list[Missing]:
    """The required rows that are not there, in the order of the plan: one entry for all of one metric and shape."""
    groups: dict[_Name, dict[Side, _Group]] = {}
    for side, expected in plan:
        of_name = groups.setdefault(_name_of(expected.row), {})
        of_name.setdefault(side, _Group()).add(expected, tables[side])
    missing: list[Missing] = []
    for name, by_side in groups.items():
        missing += _entries(name, {side: group for side, group in by_side.items() if group.lacking})
    return missing


def _name_of(row: Row) -> _Name:
    return _Name(row.workload, row.shape, row.metric)


def _entries(name: _Name, lacking: Mapping[Side, _Group]) -> list[Missing]:
    groups = list(lacking.values())
    if len(groups) == len(SIDES) and groups[0].units == groups[1].units:
        return [_entry(name, "both", groups[0])]
    return [_entry(name, side, group) for side, group in lacking.items()]


def _entry(name: _Name, side: MissingSide, group: _Group) -> Missing:
    return Missing(
        workload=name.workload,
        shape=name.shape,
        metric=name.metric,
        side=side,
        pairs=group.units,
        named_by=group.named_by(of_both=side == "both"),
        differs=group.differs,
    )
