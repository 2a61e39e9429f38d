"""The causes of a decision: the changes that made calls worse, the likeliest first, and the comparisons that each explains.

Everything known about an operator's work is joined into one cause (``join``), causes of a place are ranked (``ranking``), and
each comparison that got worse gets its main cause (``main_cause``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from perfgate.catalogue.names import PREPROCESSING
from perfgate.document.comparison import Bound, Comparison, Exact
from perfgate.document.decision import DecisionDocument
from perfgate.document.explanation import Cause
from perfgate.document.run import RunDocument
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.explain.head_code import HeadCode
from perfgate.judging.gate.explain.join import explained_fact, joined_causes
from perfgate.judging.gate.explain.main_cause import main_cause
from perfgate.judging.gate.explain.ranking import PlaceRanking, RankedCause


def with_causes(
    decision: DecisionDocument, base: RunDocument | None = None, head: RunDocument | None = None
) -> DecisionDocument:
    """The decision with the causes of its regressions; each comparison that a cause explains gets the cause's number.

    The documents supply the changed code, the calls between functions and the weight of each operator.
    """
    code = HeadCode(head)
    causes = _ranked(decision, code, _weights(base, head))
    by_place: dict[ShapePlace, list[Cause]] = defaultdict(list)
    for cause in causes:
        by_place[cause.place].append(cause)
    comparisons = []
    for comparison in decision.comparisons:
        number: int | None = None
        explained: Cause | None = None
        if _is_worse(comparison):
            explained = main_cause(comparison, by_place[comparison.place], decision, code)
        if explained is not None:
            if explained not in causes:
                causes.append(explained)
                by_place[comparison.place].append(explained)
            number = causes.index(explained)
        comparisons.append(replace(comparison, cause=number))
    return replace(
        decision,
        comparisons=_with_causes_of_calls(comparisons),
        explained=replace(decision.explained, causes=code.grouped(causes)),
    )


def _ranked(decision: DecisionDocument, code: HeadCode, weights: Mapping[tuple[str, str, str], float]) -> list[Cause]:
    """The work that got worse, the likeliest cause first over all places."""
    by_place: dict[ShapePlace, list[Cause]] = defaultdict(list)
    for cause in joined_causes(decision):
        if cause.more_count > 0 or (cause.more_time or 0) > 0:
            by_place[cause.place].append(code.with_origin(cause))
    ranked: list[RankedCause] = []
    for place, causes in by_place.items():
        ranked += PlaceRanking(causes, code.at(place), weights).ranked()
    ranked.sort(key=lambda entry: entry.order)
    listed = [entry.cause for entry in ranked]
    return [*listed, *map(code.with_origin, _on_other_inputs(decision, listed))]


def _weights(base: RunDocument | None, head: RunDocument | None) -> dict[tuple[str, str, str], float]:
    """The seconds of one run of an operator in the traces, from the head if it has them."""
    weights = {}
    for run in (base, head):
        operators = RunIndex(run).operators if run else {}
        for place, rows in operators.items():
            for operator, row in rows.items():
                if row.count:
                    weights[place.workload, place.shape, operator] = row.self_time / row.count
    return weights


def _on_other_inputs(decision: DecisionDocument, listed: Iterable[Cause]) -> list[Cause]:
    """The operators on other inputs that are not yet a cause, if a count rose without naming any; the slowest first.

    They may allocate memory by themselves: a kernel that first converts its inputs to another layout.
    """
    named = {(cause.place, cause.op) for cause in listed if cause.aspect is None}
    unexplained = _places_of_unexplained_counts(decision.comparisons)
    slower = {}
    for test in decision.explained.operators:
        if test.outcome == "regressed":
            slower[test.workload, test.shape, test.op] = test.seconds
    causes: dict[tuple[object, ...], Cause] = {}
    for explanation in decision.explained.explanations:
        if explanation.place not in unexplained:
            continue
        for part in explanation.other_inputs:
            if (explanation.place, part.op) not in named:
                cause = explained_fact(explanation.place, part.op, part)
                causes.setdefault((explanation.place, part.op, part.line), cause)
    return sorted(causes.values(), key=lambda cause: -slower.get((*cause.place, cause.op), 0.0))


def _places_of_unexplained_counts(comparisons: Iterable[Comparison]) -> set[ShapePlace]:
    places = set()
    for count in comparisons:
        is_regressed = isinstance(count, Exact) and count.outcome == "regressed"
        if is_regressed and all(part.head <= part.base for part in count.parts):
            places.add(count.place)
    return places


def _with_causes_of_calls(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons; timings without a cause, such as instructions and throughput, take the cause of the call."""
    of_calls: dict[ShapePlace, int] = {}
    for comparison in comparisons:
        if _is_slower(comparison) and comparison.cause is not None:
            of_calls.setdefault(comparison.place, comparison.cause)
    listed = list(comparisons)
    for index, comparison in enumerate(comparisons):
        if _is_slower(comparison) and comparison.cause is None:
            listed[index] = replace(comparison, cause=of_calls.get(comparison.place))
    return listed


def _is_slower(comparison: Comparison) -> bool:
    return comparison.is_timed and comparison.outcome == "regressed" and comparison.metric != PREPROCESSING


def _is_worse(comparison: Comparison) -> bool:
    """Whether a comparison regressed, or is undecided and its estimate is worse."""
    if comparison.outcome != "inconclusive":
        return comparison.outcome == "regressed"
    base = comparison.bound if isinstance(comparison, Bound) else comparison.base
    head = comparison.head
    if base is None or head is None:
        return False
    if comparison.better == "higher":
        return head < base
    return head > base
