"""Which cause and which line make the difference: the work of both sides, joined to the
comparisons that it explains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.document.comparison import Comparison
from perfgate.document.decision import Explanations
from perfgate.document.explanation import Explanation
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.operators import compare_operators, valid
from perfgate.judging.gate.evidence.changed_code import HeadCode
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.gate.explain.causes import attribute
from perfgate.judging.gate.explain.contributions import explanations
from perfgate.judging.gate.explain.operators import (
    joined,
    operator_changes,
    operator_times,
    replaced_operators,
    slower_alone,
)
from perfgate.judging.gate.explain.profiles import explain_jobs
from perfgate.judging.gate.explain.regressions import (
    Regressions,
    leading,
    reading_order,
)


class Explained(NamedTuple):
    """The comparisons in reading order, each with the number of its cause, and the
    record of what explains them.
    """

    comparisons: list[Comparison]
    record: Explanations


def changed_work(
    work: WorkTable, comparisons: Sequence[Comparison], spoiled: Collection[ShapePlace]
) -> Explanations:
    """The work that changed: operators by name, and the parts of each changed time,
    without times of ``spoiled`` places.
    """
    operators = valid(work.operators, spoiled)
    tests = compare_operators(operators)
    explained = [
        *explanations(work.traced, comparisons, tests, spoiled=spoiled),
        *explain_jobs(work.jobs.values(), comparisons),
    ]
    times = operator_times(operators, tests, explained)
    return Explanations(
        operators=joined(operator_changes(work.listed), tests, times),
        explanations=explained,
        replaced=replaced_operators(work.counted),
    )


def explain(
    comparisons: Sequence[Comparison],
    work: Explanations,
    code: HeadCode,
    run_seconds: Mapping[tuple[ShapePlace, str], float],
    *,
    acceptable: bool,
) -> Explained:
    """Join the changed work to the comparisons that got worse; ``acceptable`` is
    whether regressions can be accepted.
    """
    attributed = attribute(comparisons, work, code, run_seconds)
    ordered = sorted(attributed.comparisons, key=reading_order)
    regressed = leading(ordered)
    ranks: dict[ShapePlace, int] = {}
    for rank, comparison in enumerate(regressed):
        ranks.setdefault(comparison.place, rank)

    def order(explanation: Explanation) -> int:
        return ranks.get(explanation.place, len(ranks))

    regressions = Regressions(ordered, regressed, attributed.causes)
    record = replace(
        work,
        operators=slower_alone(work.operators, ordered, work.explanations),
        explanations=sorted(work.explanations, key=order),
        causes=attributed.causes,
        regressions=regressions.ranked(acceptable=acceptable),
    )
    return Explained(ordered, record)
