"""Times of operators, modules and functions that the policy names and a side lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfgate.catalogue.names import OPERATOR_TIME, PYTHON_TIMES
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import Policy
from perfgate.document.run import OUTSIDE_OPERATORS, Side
from perfgate.judging.gate.evidence.index import Evidence, Kind
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import configured_tolerance

_SIDES: tuple[Side, Side] = ("base", "head")


def untimed_subroutines(evidence: Evidence, policy: Policy, place: ShapePlace) -> list[tuple[str, Side]]:
    """The times that ``[gate.tolerance]`` names and one side lacks in a pair although the other has them, by metric.

    If a side timed none in a pair at all, "operators" or "subroutines" stands for them. Different counts of calls are not a
    missing time, and a module or function that one side never ran was added or removed by the change.
    """
    untimed: set[tuple[str, Side]] = set()
    if judges_subroutines(policy.tolerances, (OPERATOR_TIME,)):
        for operator, side in _absent(evidence, place, "operators"):
            if not operator:
                untimed.add(("operators", side))
            elif (place, operator) not in evidence.changed_counts:
                untimed.add((OPERATOR_TIME + operator, side))
    if judges_subroutines(policy.tolerances, PYTHON_TIMES):
        for name, side in _absent(evidence, place, "subroutines"):
            untimed.add((name or "subroutines", side))
    return sorted((name, side) for name, side in untimed if _is_named(policy, name, place))


def _is_named(policy: Policy, name: str, place: ShapePlace) -> bool:
    return "." not in name or configured_tolerance(policy, name, *place) is not None


def _absent(evidence: Evidence, place: ShapePlace, kind: Kind) -> set[tuple[str, Side]]:
    """The names that one side did not time in a pair and the other did; an empty name if a side timed none in a pair."""
    times = evidence.profiled(place, kind)
    names = [names_of(side.values()) for side in times]
    absent: set[tuple[str, Side]] = set()
    for replicate in evidence.head.run.replicates:
        if (replicate.workload, replicate.arm) != (place.workload, "ab"):
            continue
        for index, side in enumerate(_SIDES):
            other = 1 - index
            of_side = times[index].get(replicate.pair)
            if of_side is None or (names[other] and not names[index]):
                absent.add(("", side))
                continue
            of_other = times[other].get(replicate.pair, {})
            lacking = of_other.keys() - of_side.keys() - {OUTSIDE_OPERATORS}
            if kind == "subroutines":
                lacking &= names[index]
            absent |= {(name, side) for name in lacking}
    return absent


def names_of(times: Iterable[Mapping[str, float]]) -> set[str]:
    names: set[str] = set()
    for by_name in times:
        names |= by_name.keys()
    return names
