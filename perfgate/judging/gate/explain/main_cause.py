"""The main cause of one comparison that got worse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import SIGNATURE
from perfgate.catalogue.terms import Amount
from perfgate.document.comparison import Comparison, Exact, Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.explanation import Aspect, Cause, OperatorDelta
from perfgate.judging.gate.explain.head_code import HeadCode
from perfgate.judging.gate.explain.kinds import EXPLAINS
from perfgate.judging.gate.explain.ranking import changed_function


def main_cause(
    comparison: Comparison, causes: Sequence[Cause], decision: DecisionDocument, code: HeadCode
) -> Cause | None:
    """The main cause among the ``causes`` of its place, or the operator with a test that found it slower."""
    cause = _called_by_ranks(comparison, causes, decision) or _of_parts(comparison, causes)
    if cause is not None and cause.rank is not None:
        return cause
    tested = _tested(comparison, decision.explained.operators)
    if tested is None:
        return cause
    if cause is not None and (cause.more_time or 0.0) >= (tested.more_time or 0.0):
        return cause
    tested = code.with_origin(tested)
    return changed_function(tested, [tested]) or tested


def _called_by_ranks(comparison: Comparison, causes: Iterable[Cause], decision: DecisionDocument) -> Cause | None:
    """The calls that ranks make more often: an exact count, so it precedes any evidence from noisy times."""
    if not (isinstance(comparison, Paired) and comparison.is_of_job):
        return None
    more = set()
    for count in decision.comparisons:
        is_here = isinstance(count, Exact) and count.place == comparison.place
        if is_here and count.outcome == "regressed" and metric(count.metric).gate.fails_alone:
            for part in count.parts:
                if part.ranks and part.head > part.base:
                    more.add((part.name, part.ranks))
    return next((cause for cause in causes if (cause.op, cause.ranks) in more), None)


def _of_parts(comparison: Comparison, causes: Sequence[Cause]) -> Cause | None:
    """For a counter its likeliest part, for a time the first of its explanation.

    A graph break or recompilation explains all that follows from it. Without an explanation, the candidates are the operators
    that run more often; the first of them is the cause.
    """
    grown = {(part.name, part.aspect, part.ranks) for part in comparison.parts if part.head > part.base}
    if grown:
        return _of_grown_parts(metric(comparison.metric).display.amount, grown, causes)
    if isinstance(comparison, Exact):
        return next((cause for cause in causes if cause.inputs_change), None)
    if comparison.metric == SIGNATURE:
        # The change to its counts also changed its output.
        return next((cause for cause in causes if cause.counted and cause.is_of_change), None)
    if comparison.unit != "s":
        return None
    if causes and causes[0].changes_the_rest:
        return causes[0]
    for cause in causes:
        if cause.rank is not None or ((cause.more_time or 0) > 0 and not cause.stage):
            return cause
    return None


def _of_grown_parts(
    amount: Amount, grown: set[tuple[str, Aspect | None, str]], causes: Iterable[Cause]
) -> Cause | None:
    first: Cause | None = None
    for cause in causes:
        is_also = cause.also is not None and (cause.op, cause.also, cause.ranks) in grown
        if is_also or (cause.op, cause.aspect, cause.ranks) in grown:
            if cause.amount == amount:
                return cause
            first = first or cause
    return first


def _tested(comparison: Comparison, operators: Iterable[OperatorDelta]) -> Cause | None:
    """The operator that lost most time in the pairs, if that explains a good part of a slower call."""
    if not (isinstance(comparison, Paired) and comparison.is_of_call):
        return None
    if comparison.unit != "s" or comparison.outcome != "regressed":
        return None
    most: OperatorDelta | None = None
    for test in operators:
        is_slower = test.place == comparison.place and test.outcome == "regressed"
        if is_slower and (most is None or test.seconds > most.seconds):
            most = test
    if most is None or comparison.base is None or comparison.head is None:
        return None
    if most.seconds < EXPLAINS * (comparison.head - comparison.base):
        return None
    return Cause(
        workload=comparison.workload,
        shape=comparison.shape,
        op=most.op,
        more_time=most.seconds,
        line=most.line,
        tested=True,
    )
