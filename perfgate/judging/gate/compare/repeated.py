"""Numbers of the checklist that ``[gate.tolerance]`` names: judged by the rule of pairs, on their pairs or turns.

If a step measures the number, both sides repeat it in turns, and a turn is one pair of the rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.document.budget import parse_place
from perfgate.document.comparison import Paired
from perfgate.document.decision import Policy
from perfgate.document.message import Message
from perfgate.judging.gate.compare.alpha import AlphaShares
from perfgate.judging.gate.compare.judge import Tested, judge_together
from perfgate.judging.gate.compare.rule import Errors
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import ChecklistNumber
from perfgate.judging.gate.evidence.pairs import SAMPLED
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import configured_tolerance, margins_for_unchanged


def metrics_in_turns(policy: Policy) -> tuple[str, ...]:
    """The metrics that steps must repeat: the samples of the pairs supply the others."""
    return tuple(name for name in repeated_metrics(policy) if name not in SAMPLED)


def repeated_metrics(policy: Policy) -> tuple[str, ...]:
    """The metrics of the checklist that a tolerance names in full; a pattern names none, for it may cover a whole step."""
    return tuple(sorted({parse_place(key).metric for key in policy.tolerances} & _REPEATABLE))


_REPEATABLE = {name for name, entry in METRICS.items() if entry.repeatable}


def compare_repeated(evidence: Evidence, policy: Policy, shares: AlphaShares, *, interim: bool = False) -> list[Paired]:
    """Compare every number that a tolerance names; one that a side lacks, or has less often, is undecided with a reason."""
    rows = [row for name in repeated_metrics(policy) for row in _rows(evidence, policy, name)]
    errors = Errors(alarm=shares.of_repeated, unchanged=policy.alpha_ok, looks=tuple(policy.looks))
    judged: dict[str, Iterator[Paired]] = {}
    for workload in {row.place.workload for row in rows if isinstance(row, Tested)}:
        tested = [row for row in rows if isinstance(row, Tested) and row.place.workload == workload]
        judged[workload] = iter(judge_together(tested, errors, interim=interim))
    return [next(judged[row.place.workload]) if isinstance(row, Tested) else row for row in rows]


def _rows(evidence: Evidence, policy: Policy, name: str) -> Iterator[Tested | Paired]:
    """Yield each workload's rows of a metric; some steps measure the first shape alone."""
    step, numbers = metric(name).step, evidence.numbers
    for workload in evidence.head.run.workloads:
        named = [
            (ChecklistNumber(step, workload.name, shape, name), allowed)
            for shape in workload.shapes
            if (allowed := _allowed(policy, name, workload.name, shape)) is not None
        ]
        for number, allowed in [one for one in named if numbers.has(one[0])] or named[:1]:
            place, found = ShapePlace(number.workload, number.shape), numbers.get(number)
            if isinstance(found, Message):
                yield _undecided(place, name, allowed, found)
            else:
                moved = found.evidence == "turn" or place.workload not in evidence.kept_layout
                margins = margins_for_unchanged(policy, name, *place, moved=moved)
                yield Tested(place, name, found, allowed, margins, better=metric(name).better)


def _undecided(place: ShapePlace, name: str, allowed: float, reason: Message) -> Paired:
    entry = metric(name)
    return Paired(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        evidence="turn",
        outcome="inconclusive",
        gating=True,
        tolerance=allowed,
        reason=reason,
    )


def _allowed(policy: Policy, name: str, workload: str, shape: str) -> float | None:
    named = [place for key in policy.tolerances if (place := parse_place(key)).metric == name]
    is_meant = any(place.covers(workload, shape) for place in named)
    return configured_tolerance(policy, name, workload, shape) if is_meant else None
