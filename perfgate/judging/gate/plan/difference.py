"""A plan less the rows: the missing evidence, grouped for people."""

from __future__ import annotations

from perfgate.document.decision import Missing, MissingSide, NamedBy
from perfgate.document.run import Side
from perfgate.judging.gate.evidence.rows import Row, RowArm, RowTable, SideTables

SIDES: tuple[Side, Side] = ("base", "head")
# The arms with units that a person can count: pairs, and quads of a job.
_COUNTED_ARMS: tuple[RowArm, ...] = ("ab", "aa", "turn")


class EvidencePlan:
    """The rows that the documents must have of one workload or job."""

    def __init__(self, tables: SideTables) -> None:
        self.tables = tables
        self.sides = list(zip(SIDES, tables))
        # By workload, shape and metric, in the order in which they are required.
        self._groups: dict[tuple[str, str, str], dict[Side, _Group]] = {}

    def require(
        self,
        row: Row,
        text: str | None = None,
        named_by: NamedBy = "document",
        *,
        side: MissingSide = "both",
    ) -> None:
        """Add a row that a side or both must have, with its text if that is fixed, and
        who requires it.
        """
        of_metric = self._groups.setdefault((row.workload, row.shape, row.metric), {})
        for required, table in self.sides:
            if side in (required, "both"):
                of_metric.setdefault(required, _Group()).add(row, text, named_by, table)

    def missing(self) -> list[Missing]:
        """The rows that are not there, in the order of the plan: one entry for all of
        one metric and shape.
        """
        missing = []
        for (workload, shape, metric), by_side in self._groups.items():
            lacking: dict[MissingSide, _Group] = {
                side: group for side, group in by_side.items() if group.lacking
            }
            if (
                len(lacking) == len(SIDES)
                and lacking["base"].units == lacking["head"].units
            ):
                lacking = {"both": lacking["base"]}
            for side, group in lacking.items():
                entry = Missing(
                    workload=workload,
                    shape=shape,
                    metric=metric,
                    side=side,
                    pairs=group.units,
                    named_by=group.named_by(of_both=side == "both"),
                    differs=group.differs,
                )
                missing.append(entry)
        return missing


class _Group:
    """The required rows of one metric and shape on one side."""

    def __init__(self) -> None:
        self.lacking: list[Row] = []
        self.differs = False
        self._is_partial = False
        self._names: set[NamedBy] = set()

    def add(
        self, row: Row, text: str | None, named_by: NamedBy, table: RowTable
    ) -> None:
        present = table.rows.get(row)
        if present is not None and text in (None, present):
            self._is_partial = True
            return
        self.lacking.append(row)
        self._names.add(named_by)
        self.differs = self.differs or present is not None

    @property
    def units(self) -> list[int]:
        """The pairs or quads that lack it, if others have it."""
        units = set()
        for row in self.lacking:
            if row.arm not in _COUNTED_ARMS or not self._is_partial:
                return []
            units.add(row.unit)
        return sorted(units)

    def named_by(self, *, of_both: bool) -> NamedBy:
        """Who requires it. A row that one side has is required by that document."""
        if "configuration" in self._names:
            return "configuration"
        if "store" in self._names and of_both:
            return "store"
        return "document"
