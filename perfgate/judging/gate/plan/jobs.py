"""The plan of a job: the rows that both documents must have of it.

Kind, settings, work and output that both sides must prove to have in common, and every
number with its unit, its direction and whether it gates: none of this is taken from an
artifact if the trusted side knows the job.
"""

from __future__ import annotations

from collections.abc import Collection

from perfgate.catalogue.names import NUMBER
from perfgate.document.job import JobNumber, JobRecord
from perfgate.judging.gate.evidence.job_rows import (
    ABOVE_ZERO,
    AS_SET,
    CONFIGURED,
    FITS,
    GATES,
    LISTED,
    MEASURED,
    NUMBERS,
    OF_PROGRAM,
    SETTINGS,
    STEPS_COUNTED,
    TURNS,
    ZERO,
    settings_text,
)
from perfgate.judging.gate.evidence.rows import Row, RowTable
from perfgate.judging.gate.evidence.session_rows import JobRows
from perfgate.judging.gate.evidence.trusted import RequiredJob
from perfgate.judging.gate.plan.difference import EvidencePlan


class JobPlan(EvidencePlan):
    """The rows that both documents must have of one job."""

    def __init__(self, rows: JobRows, required: RequiredJob | None) -> None:
        super().__init__(rows.tables)
        self._job = Row(rows.name)
        self._rows = rows
        self._required = required

    def require_evidence(self) -> None:
        """Require the rows; only the job itself if a document has no record or no turns
        of it.
        """
        record = self._rows.record
        if record is None or not self.tables.both_have(self._job):
            self.require(self._job)
            return
        for table in self.tables:
            for expected in table.announced:
                self.require(*expected)
        self._require_turns()
        self._require_values(record)
        for side, table in self.sides:
            for expected in table.promised:
                self.require(*expected, side=side)
        if self._required is not None:
            self._require_settings(self._required)

    def _require_turns(self) -> None:
        """Require as many turns of each quad as any other quad has, from the first quad
        to the last of either side.
        """
        last = -1
        numbers = set()
        for turn in self.tables.of_metric(TURNS):
            last = max(last, turn.unit)
            numbers.add(turn.key)
        for quad in range(last + 1):
            for number in sorted(numbers):
                self.require(Row(self._rows.name, "", TURNS, "turn", quad, number))

    def _require_values(self, record: JobRecord) -> None:
        """Require in every turn the numbers that any other turn has; gating numbers
        must be above 0.

        Times, rates and amounts are above 0; otherwise they have no ratio, and are not
        compared. A program's count may be 0, and is then 0 in all turns of both sides.
        """
        numbers = {number.metric: number for number in record.numbers}
        metrics = set(numbers)
        for table in self.tables:
            metrics.update(row.metric for row in table.rows if row.key == (MEASURED,))
        for metric in sorted(metrics):
            for side, table in self.sides:
                for turn in table.of_metric(TURNS):
                    self.require(turn.of(metric), side=side)
        for metric, number in numbers.items():
            if not number.gating:
                continue
            if self._is_count(number) and self._is_always_zero(metric):
                continue
            for side, table in self.sides:
                for turn in _of_turns(table, metric):
                    self.require(turn.marked(ABOVE_ZERO), side=side)

    def _is_count(self, number: JobNumber) -> bool:
        """Whether a program named the number, and counts with it."""
        declared: Collection[str] = ()
        if self._required is not None:
            declared = self._required.reference.settings.numbers
        is_named_by_program = (
            number.metric.startswith(NUMBER)
            and number.metric.removeprefix(NUMBER) not in declared
        )
        return is_named_by_program and number.unit == "1"

    def _is_always_zero(self, metric: str) -> bool:
        for table in self.tables:
            for turn in _of_turns(table, metric):
                if turn.marked(ZERO) not in table.rows:
                    return False
        return True

    def _require_settings(self, required: RequiredJob) -> None:
        """Require the trusted side's settings, and under them the numbers as it lists
        them.
        """
        settings = self._rows.settings
        trusted = self._rows.trusted
        own = settings or required.reference
        self._require_fixed(SETTINGS, settings_text(own.kind, own.sha256), CONFIGURED)
        if settings is None or trusted is None:
            return
        self._require_fixed(FITS, AS_SET)
        self._require_fixed(STEPS_COUNTED, AS_SET)
        must_gate = set(settings.must_gate(on_device=self._rows.on_device))
        for number in trusted.numbers:
            self._require_fixed(f"{number.metric}.unit", number.unit)
            self._require_fixed(f"{number.metric}.better", number.better)
            if number.gating:
                must_gate.add(number.metric)
        for metric in sorted(must_gate):
            self._require_fixed(metric, "", GATES)
        if settings.settings.file:
            self._require_fixed(NUMBERS, "", OF_PROGRAM)
        for metric in sorted(required.numbers):
            self.require(self._job.of(metric, LISTED), named_by="store")

    def _require_fixed(self, metric: str, text: str, *key: str) -> None:
        self.require(self._job.of(metric, *key), text, "configuration")


def _of_turns(table: RowTable, metric: str) -> list[Row]:
    return [
        row
        for row in table.of_metric(metric)
        if row.arm == "turn" and len(row.key) == 1
    ]
