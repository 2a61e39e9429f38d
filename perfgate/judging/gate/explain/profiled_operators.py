"""The operators of a job that take longer on the head, from the traces of one turn a side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from perfgate.document.explanation import OperatorDelta, PartKind
from perfgate.document.profile import JobProfile, ProfiledOperator
from perfgate.document.run import CodeChange
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.values import rounded

# As for functions: an operator takes longer if its growth is so many standard errors of its calls.
_SURE, _SURE_OF_CHANGED = 4.0, 2.5
# An operator that adds less to a unit is no cause of a slowdown that a gate can detect.
_LEAST_SHARE = 0.01
# With fewer calls the spread is unknown.
_FEWEST_CALLS = 4
# The batching of a server differs from turn to turn, and so does the number of operator calls per token. This share of the
# operators may be called less often on the head than all others.
_PACE = 0.1
# Counts that differ by less may come from one more batch.
_SAME_COUNT = 0.05

COLLECTIVE = "c10d::"

# The file of the calling function, its name, and the operator's.
_Key = tuple[str, str, str]


# An operator of the head, and how much longer it takes in a unit.
GrownOperator = tuple[ProfiledOperator, OperatorDelta]


def grown_operators(base: JobProfile, head: JobProfile, changes: Sequence[CodeChange]) -> list[GrownOperator]:
    """The operators that take longer beyond the spread of their calls, most first; between equals those of the change.

    Base's calls are scaled to as many batches as head's.
    """
    if not base.operator_units or not head.operator_units:
        return []
    before, after = _by_key(base.operators), _by_key(head.operators)
    pace = _pace(before, after)
    code = ChangedCode(changes, head.functions)
    grown = []
    for key, operator in after.items():
        old = before.get(key)
        seconds = operator.seconds - (old.seconds * pace if old else 0.0)
        error = math.hypot(_error(operator, head.operator_units), _error(old, base.operator_units) * pace)
        line = code.of_function(operator.line) if operator.line else None
        is_changed = code.is_changed(line)
        whole = base.seconds if operator.on_device else min(base.cpu, base.seconds)
        counts = operator.calls * head.operator_units >= _FEWEST_CALLS and seconds >= _LEAST_SHARE * whole
        if counts and seconds > (_SURE_OF_CHANGED if is_changed else _SURE) * error:
            base_calls = old.calls * pace if old else 0.0
            kind: PartKind = "slower"
            if not base_calls:
                kind = "added"
            elif operator.calls > (1 + _SAME_COUNT) * base_calls:
                kind = "more"
            delta = OperatorDelta(
                op=operator.name,
                kind=kind,
                seconds=rounded(seconds),
                base_count=None if kind == "slower" else rounded(base_calls),
                head_count=None if kind == "slower" else rounded(operator.calls),
                line=line,
            )
            grown.append((is_changed, (operator, delta)))
    most = max((delta.seconds for _, (_, delta) in grown), default=0.0)
    # Half of the largest is considered equal: a trace is of one turn.
    grown.sort(key=lambda entry: (not (entry[0] and entry[1][1].seconds >= most / 2), -entry[1][1].seconds))
    return [growth for _, growth in grown]


def operator_lines(base: JobProfile | None, head: JobProfile | None, changes: Sequence[CodeChange]) -> dict[str, str]:
    """The line of the project at which each operator is called more often than before: a changed one of the function.

    Collectives have their name in the counts.
    """
    if head is None:
        return {}
    before = _by_key(base.operators) if base else {}
    code = ChangedCode(changes, head.functions)
    most: dict[str, tuple[float, str]] = {}
    for key, operator in _by_key(head.operators).items():
        more = operator.calls - (before[key].calls if key in before else 0.0)
        name = (
            operator.name.removeprefix(COLLECTIVE).rstrip("_")
            if operator.name.startswith(COLLECTIVE)
            else operator.name
        )
        if operator.line and more > most.get(name, (0.0, ""))[0]:
            most[name] = more, code.of_function(operator.line)
    return {name: line for name, (_, line) in most.items()}


def _by_key(operators: Iterable[ProfiledOperator]) -> dict[_Key, ProfiledOperator]:
    """The operators by caller and name; the heaviest of several with the same key."""
    listed: dict[_Key, ProfiledOperator] = {}
    for operator in operators:
        listed.setdefault((operator.line.rpartition(":")[0], operator.function, operator.name), operator)
    return listed


def _pace(before: Mapping[_Key, ProfiledOperator], after: Mapping[_Key, ProfiledOperator]) -> float:
    """The factor by which a unit of the head makes unchanged calls more often than base, as its batches are smaller."""
    ratios = sorted(
        operator.calls / before[key].calls for key, operator in after.items() if key in before and before[key].calls > 0
    )
    return ratios[int(_PACE * len(ratios))] if ratios else 1.0


def _error(operator: ProfiledOperator | None, units: int) -> float:
    """The standard error of the seconds of a unit, if calls are alike."""
    return operator.spread * math.sqrt(operator.calls / units) if operator else 0.0
