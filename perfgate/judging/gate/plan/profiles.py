"""The plan of profiled times, which decide only if a tolerance names them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from perfgate.catalogue.names import LATENCY, OPERATOR_TIME, PYTHON_TIMES
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import Policy
from perfgate.document.run import Side
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.rows import OPERATORS, SUBROUTINES, Expected, Row, RowTable
from perfgate.judging.gate.evidence.tolerance import configured_tolerance
from perfgate.judging.gate.plan.difference import Requirement, on_both_sides

_KINDS = {OPERATORS: (OPERATOR_TIME,), SUBROUTINES: PYTHON_TIMES}


def profiled_rows(
    tables: Mapping[Side, RowTable], evidence: Evidence, policy: Policy, place: ShapePlace
) -> Iterator[Requirement]:
    """Yield the profile of each pair, and in it every named time that the other side has."""
    for kind, prefixes in _KINDS.items():
        if not judges_subroutines(policy.tolerances, prefixes):
            continue
        for process in tables["head"].of_metric(LATENCY):
            if process.arm == "ab" and not process.shape:
                whole = Row(place.workload, place.shape, kind, "ab", process.unit)
                yield from on_both_sides([Expected(whole)])
        names: set[str] = set()
        for table in tables.values():
            names |= {metric for metric in table.metrics if metric.startswith(prefixes)}
        for name in sorted(names):
            is_counted_apart = (
                kind == OPERATORS and (place, name.removeprefix(OPERATOR_TIME)) in evidence.changed_counts
            )
            if not is_counted_apart and configured_tolerance(policy, name, *place) is not None:
                yield from _mirrored(tables, kind, [row for row in _of_both(tables, name) if row.shape == place.shape])


def _of_both(tables: Mapping[Side, RowTable], metric: str) -> list[Row]:
    return list(dict.fromkeys(chain.from_iterable(table.of_metric(metric) for table in tables.values())))


def _mirrored(tables: Mapping[Side, RowTable], kind: str, rows: Collection[Row]) -> Iterator[Requirement]:
    """Yield the times of one name in the pairs that each side profiled.

    A module or function that one side never ran was added or removed by the change.
    """
    for side, table in tables.items():
        is_known = any(row in table.rows for row in rows)
        for row in rows:
            is_profiled = row._replace(metric=kind) in table.rows
            if is_profiled and (is_known or kind == OPERATORS):
                yield Requirement(side, Expected(row))
