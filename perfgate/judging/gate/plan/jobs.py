"""The plan of a job: the rows that both documents must have of it.

Kind, settings, work and output that both sides must prove to have in common, and every number with its unit, its direction and
whether it gates: none of this is taken from an artifact if the trusted side knows the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfgate.catalogue.names import NUMBER
from perfgate.document.job import JobRecord
from perfgate.document.run import Side
from perfgate.job_settings import JobReference
from perfgate.judging.gate.evidence.index import Evidence
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
from perfgate.judging.gate.evidence.rows import Expected, Row, RowTable
from perfgate.judging.gate.evidence.trusted import RequiredJob, trusted_numbers
from perfgate.judging.gate.plan.difference import Requirement, on_both_sides


class JobPlan:
    """The rows that both documents must have of one job, given what each has."""

    def __init__(
        self,
        name: str,
        evidence: Evidence,
        tables: Mapping[Side, RowTable],
        required: RequiredJob | None,
        settings: JobReference | None,
    ) -> None:
        self._name = name
        self._evidence = evidence
        self._tables = tables
        self._required = required
        self._settings = settings

    def requirements(self) -> Iterator[Requirement]:
        """Yield what is required; only the job itself if a document has no record or no turns of it."""
        whole = Row(self._name)
        if not all(whole in table.rows for table in self._tables.values()):
            yield from on_both_sides([Expected(whole)])
            return
        record = next(job for job in self._evidence.base.run.jobs if job.name == self._name)
        for table in self._tables.values():
            yield from on_both_sides(table.announced)
        yield from self._turns()
        yield from self._values(record)
        for side, table in self._tables.items():
            for expected in table.promised:
                yield Requirement(side, expected)
        if self._required is not None:
            yield from self._configured(self._required, record)

    def _turns(self) -> Iterator[Requirement]:
        """Yield as many turns of each quad as any other quad has, from the first quad to the last of either side."""
        numbers: set[tuple[str | float, ...]] = set()
        last = -1
        for table in self._tables.values():
            for turn in table.of_metric(TURNS):
                numbers.add(turn.key)
                last = max(last, turn.unit)
        for quad in range(last + 1):
            for number in sorted(numbers):
                yield from on_both_sides([Expected(Row(self._name, "", TURNS, "turn", quad, number))])

    def _values(self, record: JobRecord) -> Iterator[Requirement]:
        """Yield in every turn the numbers that any other turn has, and gating ones above 0.

        Times, rates and amounts are above 0; otherwise they have no ratio, and are not compared. A program's count may be 0,
        and is then 0 in all turns of both sides.
        """
        numbers = {number.metric: number for number in record.numbers}
        measured: set[str] = set()
        for table in self._tables.values():
            measured |= {row.metric for row in table.rows if row.key == (MEASURED,)}
        for metric in sorted(numbers.keys() | measured):
            for side, table in self._tables.items():
                for turn in table.of_metric(TURNS):
                    yield Requirement(side, Expected(turn._replace(metric=metric)))
        for metric, number in numbers.items():
            is_count = metric.startswith(NUMBER) and number.unit == "1" and metric not in self._declared()
            if number.gating and not (is_count and self._is_always_zero(metric)):
                yield from self._above_zero(metric)

    def _declared(self) -> set[str]:
        """The metrics of the numbers that the base's configuration declares."""
        if self._required is None:
            return set()
        return {f"{NUMBER}{key}" for key in self._required.reference.settings.numbers}

    def _is_always_zero(self, metric: str) -> bool:
        return not any(
            turn._replace(key=(*turn.key, ZERO)) not in table.rows
            for table in self._tables.values()
            for turn in _of_turns(table, metric)
        )

    def _above_zero(self, metric: str) -> Iterator[Requirement]:
        for side, table in self._tables.items():
            for turn in _of_turns(table, metric):
                yield Requirement(side, Expected(turn._replace(key=(*turn.key, ABOVE_ZERO))))

    def _configured(self, required: RequiredJob, record: JobRecord) -> Iterator[Requirement]:
        """Yield the trusted side's settings, and under them the numbers as it lists them."""
        settings = self._settings
        own = settings or required.reference
        yield from self._fixed(Row(self._name, "", SETTINGS, key=(CONFIGURED,)), settings_text(own.kind, own.sha256))
        if settings is None:
            return
        yield from self._fixed(Row(self._name, "", FITS), AS_SET)
        yield from self._fixed(Row(self._name, "", STEPS_COUNTED), AS_SET)
        on_device = required.is_on_device(self._evidence)
        trusted = trusted_numbers(required, settings, record, on_device=on_device).numbers
        for number in trusted:
            yield from self._fixed(Row(self._name, "", f"{number.metric}.unit"), number.unit)
            yield from self._fixed(Row(self._name, "", f"{number.metric}.better"), number.better)
        must_gate = {*settings.must_gate, *(number.metric for number in trusted if number.gating)}
        for metric in sorted(must_gate):
            yield from self._fixed(Row(self._name, "", metric, key=(GATES,)))
        if settings.settings.file:
            yield from self._fixed(Row(self._name, "", NUMBERS, key=(OF_PROGRAM,)))
        for metric in sorted(required.numbers):
            listed = Row(self._name, "", metric, key=(LISTED,))
            yield from on_both_sides([Expected(listed, named_by="store")])

    def _fixed(self, row: Row, text: str = "") -> list[Requirement]:
        return on_both_sides([Expected(row, text, named_by="configuration")])


def _of_turns(table: RowTable, metric: str) -> list[Row]:
    return [row for row in table.of_metric(metric) if row.arm == "turn" and len(row.key) == 1]


def settings_of(name: str, evidence: Evidence, required: RequiredJob | None) -> JobReference | None:
    """The settings that both sides were measured by, if the trusted side knows the job and its kind."""
    if required is None:
        return None
    settings = required.measured_by(*evidence.runs)
    kinds = {job.kind for run in evidence.runs for job in run.jobs if job.name == name}
    return settings if settings is not None and kinds == {settings.kind} else None
