"""The plan of profiled times, which decide only if a tolerance names them."""

from __future__ import annotations

from collections.abc import Collection

from perfgate.catalogue.names import LATENCY, OPERATOR_TIME, PYTHON_TIMES
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import Policy
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.rows import OPERATORS, SUBROUTINES, Row
from perfgate.judging.gate.evidence.tolerance import configured_tolerance
from perfgate.judging.gate.plan.difference import SIDES, EvidencePlan

_KINDS = {OPERATORS: (OPERATOR_TIME,), SUBROUTINES: PYTHON_TIMES}


def require_profiles(plan: EvidencePlan, changed: Collection[str], policy: Policy, place: ShapePlace) -> None:
    """Require the profile of each pair, and in it every named time that the other side has.

    Operators that one side runs more often, ``changed``, are counted.
    """
    for kind, prefixes in _KINDS.items():
        if not judges_subroutines(policy.tolerances, prefixes):
            continue
        for process in plan.tables.head.of_metric(LATENCY):
            if process.arm == "ab" and not process.shape:
                plan.require(Row(place.workload, place.shape, kind, "ab", process.unit))
        for name in plan.tables.metrics(prefixes):
            operator = name.removeprefix(OPERATOR_TIME)
            is_counted_apart = kind == OPERATORS and operator in changed
            if not is_counted_apart and configured_tolerance(policy, name, place) is not None:
                _require_times(plan, kind, plan.tables.of_metric(name, place.shape))


def _require_times(plan: EvidencePlan, kind: str, rows: Collection[Row]) -> None:
    """Require the times of one name in the pairs that each side profiled.

    A module or function that one side never ran was added or removed by the change.
    """
    for side, table in zip(SIDES, plan.tables):
        is_known = not table.rows.keys().isdisjoint(rows)
        for row in rows:
            is_profiled = row._replace(metric=kind) in table.rows
            if is_profiled and (is_known or kind == OPERATORS):
                plan.require(row, side=side)
