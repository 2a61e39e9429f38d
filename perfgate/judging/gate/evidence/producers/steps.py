"""Numbers of the checklist that ``[gate.tolerance]`` names: from the samples of pairs,
or from turns of their step.

If a step measures the number, both sides repeat it in turns, and a turn is one unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.catalogue.lookup import metric
from perfgate.document.message import Message
from perfgate.document.run import WorkloadRecord
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.checklist import ChecklistNumber
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import REPEATED, Number, Rules
from perfgate.judging.gate.evidence.tolerance import is_named, repeated_metrics


def numbers(evidence: Evidence, rules: Rules) -> Iterator[Number]:
    """Yield a row for every number; if a side lacks it, or has fewer turns of it, with
    the reason.
    """
    if evidence.recorded:
        return
    for name in repeated_metrics(rules.policy):
        for workload in evidence.head.run.workloads:
            for number in _measured(evidence, rules, name, workload):
                yield _row(evidence, rules, number)


def _measured(
    evidence: Evidence, rules: Rules, name: str, workload: WorkloadRecord
) -> list[ChecklistNumber]:
    """The number of each shape that a side measured: some steps measure the first shape
    alone.
    """
    step = metric(name).step
    named = []
    for shape in workload.shapes:
        if is_named(rules.policy, name, ShapePlace(workload.name, shape)):
            named.append(ChecklistNumber(step, workload.name, shape, name))
    return list(filter(evidence.checklist.has, named)) or named[:1]


def _row(evidence: Evidence, rules: Rules, number: ChecklistNumber) -> Number:
    values = evidence.checklist.get(number)
    is_of_turns = isinstance(values, Message) or values.evidence == "turn"
    moved = is_of_turns or number.workload not in evidence.unmoved
    return rules.number(number.place, number.metric, values, REPEATED, moved=moved)
