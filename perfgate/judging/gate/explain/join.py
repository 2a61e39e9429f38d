"""One join over work: counts, traces and times of the same work of an operator become
one cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import BUSY, PYTHON_TIMES
from perfgate.catalogue.terms import Amount
from perfgate.document.comparison import Comparison, NumberComparison, Recorded
from perfgate.document.decision import Explanations
from perfgate.document.explanation import (
    MODES,
    Aspect,
    Cause,
    Compiling,
    Explanation,
    OperatorDelta,
    Part,
)
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.parts import most_grown
from perfgate.judging.gate.evidence.changed_code import HeadCode
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT
from perfgate.judging.gate.explain.kinds import EXPLAINS

_COMPILING: Mapping[str, Compiling] = {
    "counters.graph_breaks": "graph_break",
    "counters.recompiles": "recompilation",
}
# More calls of an operator already cover more of these.
_COVERED_BY_CALLS: tuple[Amount, ...] = ("copied", "blocks", "flops")


class _Identity(NamedTuple):
    """Work that all sources agree on: an operator's calls at a place, or another aspect
    or amount of it, of some ranks.
    """

    place: ShapePlace
    operator: str
    aspect: Aspect | None
    amount: Amount
    ranks: str

    @classmethod
    def of(cls, cause: Cause) -> _Identity:
        return cls(cause.place, cause.op, cause.aspect, cause.amount, cause.ranks)

    @property
    def calls(self) -> _Identity:
        """The operator's plain calls."""
        return self._replace(aspect=None, amount="calls")


def grown_causes(
    comparisons: Sequence[Comparison], work: Explanations, code: HeadCode
) -> list[Cause]:
    """Everything known about work that grew, one cause for each, at its place in the
    head's code.
    """
    causes: dict[_Identity, Cause] = {}
    facts = [
        *_compared(comparisons),
        *_traced(work.operators),
        *_explained(work.explanations),
    ]
    for fact in facts:
        identity = _Identity.of(fact)
        cause = causes.get(identity)
        causes[identity] = fact if cause is None else _join(cause, fact)
    # The operators at which a graph breaks or is compiled again.
    compiled = {}
    for comparison in comparisons:
        if comparison.metric in _COMPILING and comparison.outcome == "regressed":
            for part in comparison.parts:
                compiled[comparison.place, part.name] = _COMPILING[comparison.metric]
    grown = []
    for cause in _without_covered(causes):
        if cause.more_count > 0 or (cause.more_time or 0) > 0:
            compiling = compiled.get((cause.place, cause.op))
            grown.append(located(replace(cause, compiling=compiling), code))
    return grown


def located(cause: Cause, code: HeadCode) -> Cause:
    """The cause with the text of its line, and the changed place behind it."""
    line = code.at(cause.place).line(cause.line)
    return replace(cause, code=line.text, origin=line.origin)


def _join(cause: Cause, fact: Cause) -> Cause:
    """Add a further source. Counts of an earlier, exact source stay; an explanation
    knows the time better.
    """
    joined = replace(
        cause,
        mentions=cause.mentions + fact.mentions,
        counted=cause.counted or fact.counted,
    )
    if not (cause.base_count or cause.head_count):
        joined = replace(joined, base_count=fact.base_count, head_count=fact.head_count)
    if not cause.line:
        joined = replace(joined, line=fact.line, sites=fact.sites)
    if fact.rank is None:
        if cause.more_time is not None:
            return joined
        return replace(joined, more_time=fact.more_time)
    return replace(
        joined,
        more_time=fact.more_time,
        rank=fact.rank,
        kind=fact.kind,
        function=fact.function,
        inputs_change=fact.inputs_change,
        base_inputs=fact.base_inputs,
        head_inputs=fact.head_inputs,
    )


def _compared(comparisons: Iterable[Comparison]) -> Iterator[Cause]:
    """Yield the parts of everything that regressed: counts, seconds of kernels, and
    seconds of stages and functions.
    """
    regressed = [row for row in comparisons if row.outcome == "regressed"]
    for comparison in regressed:
        if not isinstance(comparison, NumberComparison):
            continue
        place = comparison.place
        base = comparison.base
        head = comparison.head
        if (
            comparison.metric.startswith(OPERATOR_COUNT)
            and base is not None
            and head is not None
        ):
            operator = comparison.metric.removeprefix(OPERATOR_COUNT)
            yield _counted_fact(
                place, Part(name=operator, base=base, head=head), "calls"
            )
        if isinstance(comparison, Recorded) or comparison.metric == BUSY:
            for part in comparison.parts:
                yield _timed_fact(place, part)
        elif comparison.unit == "s":
            # Stages of the preprocessing that explain a good part of its slowdown.
            least = max(EXPLAINS * ((head or 0.0) - (base or 0.0)), 1e-9)
            inclusive = comparison.metric.startswith(PYTHON_TIMES)
            for part in most_grown(comparison.parts):
                if part.head - part.base >= least:
                    fact = _timed_fact(place, part)
                    yield replace(fact, line=part.line, stage=True, inclusive=inclusive)
        else:
            amount = metric(comparison.metric).display.amount
            for part in comparison.parts:
                yield _counted_fact(place, part, amount)


def _counted_fact(place: ShapePlace, part: Part, amount: Amount) -> Cause:
    return Cause(
        workload=place.workload,
        shape=place.shape,
        op=part.name,
        aspect=part.aspect,
        ranks=part.ranks,
        base_count=part.base,
        head_count=part.head,
        line=part.line,
        sites=part.sites,
        counted=True,
        amount=amount,
    )


def _timed_fact(place: ShapePlace, part: Part) -> Cause:
    return Cause(
        workload=place.workload,
        shape=place.shape,
        op=part.name,
        more_time=part.head - part.base,
    )


def _traced(operators: Iterable[OperatorDelta]) -> Iterator[Cause]:
    """Yield the operators that run more or less often according to the traces."""
    for operator in operators:
        if operator.base_count is not None:
            yield Cause(
                workload=operator.workload,
                shape=operator.shape,
                op=operator.op,
                base_count=operator.base_count or 0.0,
                head_count=operator.head_count or 0.0,
                more_time=operator.seconds or None,
                line=operator.line,
            )


def _explained(explanations: Iterable[Explanation]) -> Iterator[Cause]:
    """Yield the parts of the explanations of slower calls, with their rank in it: the
    seconds are measured in pairs.
    """
    for explanation in explanations:
        if (explanation.measured or 0.0) <= 0:
            continue
        for rank, part in enumerate(explanation.contributions):
            if part.seconds > 0:
                fact = explained_fact(explanation.place, part.function or part.op, part)
                fact = replace(
                    fact, more_time=part.seconds, sites=part.sites, rank=rank
                )
                if part.is_counted:
                    fact = replace(
                        fact,
                        base_count=part.base_count or 0.0,
                        head_count=part.head_count or 0.0,
                    )
                yield fact


def explained_fact(place: ShapePlace, name: str, part: OperatorDelta) -> Cause:
    """An operator by its part in an explanation; no counter mentions it."""
    return Cause(
        workload=place.workload,
        shape=place.shape,
        op=name,
        line=part.line,
        mentions=0,
        kind=part.kind,
        function=part.function,
        inputs_change=part.inputs_change,
        base_inputs=part.base_inputs,
        head_inputs=part.head_inputs,
    )


def _without_covered(causes: Mapping[_Identity, Cause]) -> list[Cause]:
    """The causes without further aspects of an operator that its own calls on the same
    line cover.

    If the operator runs more often, that already covers the extra bytes it copies, the
    blocks it allocates and its arithmetic; the bytecodes of a line already cover the
    functions that it calls.
    """
    listed = dict(causes)
    lines_of_python = set()
    for identity, cause in causes.items():
        if identity.amount == "bytecodes" and cause.more_count > 0:
            lines_of_python.add((identity.place, cause.line))
    for identity, cause in causes.items():
        if (
            identity.amount == "functions"
            and (identity.place, cause.line) in lines_of_python
        ):
            del listed[identity]
            continue
        calls = listed.get(identity.calls)
        if calls is None or calls.line != cause.line:
            continue
        if identity.amount in _COVERED_BY_CALLS and calls.more_count > 0:
            del listed[identity]
        elif (
            identity.amount == "calls"
            and identity.aspect is not None
            and identity.aspect not in MODES
        ):
            listed[identity.calls] = replace(calls, also=identity.aspect)
            del listed[identity]
    return list(listed.values())
