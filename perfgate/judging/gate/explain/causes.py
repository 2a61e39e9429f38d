"""The causes of a decision: the changes that made calls worse, the likeliest first, and
the comparisons that each explains.

Everything known about an operator's work is joined into one cause (``join``), causes of
a place are ranked (``ranking``), and each comparison that got worse gets its main
cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import PREPROCESSING, SIGNATURE
from perfgate.catalogue.terms import Amount
from perfgate.document.comparison import Bound, Comparison, Exact, Paired
from perfgate.document.decision import Explanations
from perfgate.document.explanation import Aspect, Cause, OperatorDelta, Part
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.changed_code import HeadCode
from perfgate.judging.gate.explain.join import explained_fact, grown_causes, located
from perfgate.judging.gate.explain.kinds import EXPLAINS
from perfgate.judging.gate.explain.ranking import (
    PlaceRanking,
    RankedCause,
    changed_function,
)


class Attributed(NamedTuple):
    """The comparisons, each with the number of its cause, and the causes."""

    comparisons: list[Comparison]
    causes: list[Cause]


def attribute(
    comparisons: Sequence[Comparison],
    work: Explanations,
    code: HeadCode,
    run_seconds: Mapping[tuple[ShapePlace, str], float],
) -> Attributed:
    """Find the causes of the comparisons that got worse.

    ``run_seconds`` are those of one run of an operator of a shape in the traces; they
    only order causes.
    """
    causes = _Causes(_ranked(comparisons, work, code, run_seconds))
    attributed = []
    of_calls: dict[ShapePlace, int] = {}
    for comparison in comparisons:
        number: int | None = None
        if _is_worse(comparison):
            of_place = causes.at(comparison.place)
            main = _called_by_ranks(
                comparison, of_place.causes, comparisons
            ) or _of_parts(comparison, of_place)
            main = _or_tested(main, comparison, work.operators, code)
            if main is not None:
                number = causes.number_of(main)
        if number is not None and _is_slower(comparison):
            of_calls.setdefault(comparison.place, number)
        attributed.append(replace(comparison, cause=number))
    # Timings without a cause, such as instructions and throughput, take the cause of
    # the call.
    for index, comparison in enumerate(attributed):
        if comparison.cause is None and _is_slower(comparison):
            attributed[index] = replace(
                comparison, cause=of_calls.get(comparison.place)
            )
    return Attributed(attributed, _grouped(causes.listed, code))


# An operator, an aspect of it, and the ranks that run it.
_Work: TypeAlias = tuple[str, Aspect | None, str]


class _PlaceCauses:
    """The causes of one place in their order, which are many if a model was replaced:
    they are looked up by their work.
    """

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self._of_work: dict[_Work, list[int]] = defaultdict(list)

    def add(self, cause: Cause) -> None:
        number = len(self.causes)
        self.causes.append(cause)
        self._of_work[cause.op, cause.aspect, cause.ranks].append(number)
        if cause.also is not None:
            self._of_work[cause.op, cause.also, cause.ranks].append(number)

    def of(self, works: Iterable[_Work]) -> list[Cause]:
        numbers: set[int] = set()
        for work in works:
            numbers.update(self._of_work.get(work, ()))
        return [self.causes[number] for number in sorted(numbers)]


class _Causes:
    """All causes, numbered in their order; those that only a test found come last."""

    def __init__(self, ranked: Iterable[Cause]) -> None:
        self.listed: list[Cause] = []
        self._numbers: dict[int, int] = {}
        self._by_place: dict[ShapePlace, _PlaceCauses] = defaultdict(_PlaceCauses)
        for cause in ranked:
            self._add(cause)
        self._ranked = len(self.listed)

    def _add(self, cause: Cause) -> int:
        number = len(self.listed)
        self.listed.append(cause)
        self._numbers[id(cause)] = number
        self._by_place[cause.place].add(cause)
        return number

    def at(self, place: ShapePlace) -> _PlaceCauses:
        return self._by_place[place]

    def number_of(self, cause: Cause) -> int:
        """The number of a cause, which is added if it is new."""
        number = self._numbers.get(id(cause))
        if number is not None:
            return number
        if cause in self.listed[self._ranked :]:
            return self.listed.index(cause, self._ranked)
        return self._add(cause)


def _ranked(
    comparisons: Sequence[Comparison],
    work: Explanations,
    code: HeadCode,
    run_seconds: Mapping[tuple[ShapePlace, str], float],
) -> list[Cause]:
    """The work that got worse, the likeliest cause first over all places."""
    by_place: dict[ShapePlace, list[Cause]] = defaultdict(list)
    for cause in grown_causes(comparisons, work, code):
        by_place[cause.place].append(cause)
    ranked: list[RankedCause] = []
    for place, causes in by_place.items():
        ranked += PlaceRanking(causes, code.at(place), run_seconds).ranked()
    ranked.sort(key=lambda entry: entry.order)
    listed = [entry.cause for entry in ranked]
    return [*listed, *_on_other_inputs(comparisons, work, listed, code)]


def _on_other_inputs(
    comparisons: Iterable[Comparison],
    work: Explanations,
    listed: Iterable[Cause],
    code: HeadCode,
) -> list[Cause]:
    """The operators on other inputs that are not yet a cause, if a count rose without
    naming any; the slowest first.

    They may allocate memory by themselves: a kernel that first converts its inputs to
    another layout.
    """
    named = {(cause.place, cause.op) for cause in listed if cause.aspect is None}
    unexplained = set()
    for count in comparisons:
        is_regressed = isinstance(count, Exact) and count.outcome == "regressed"
        if is_regressed and not any(map(_is_grown, count.parts)):
            unexplained.add(count.place)
    slower = {}
    for test in work.operators:
        if test.outcome == "regressed":
            slower[test.place, test.op] = test.seconds
    causes: dict[Hashable, Cause] = {}
    for explanation in work.explanations:
        place = explanation.place
        for part in explanation.other_inputs:
            if place in unexplained and (place, part.op) not in named:
                cause = located(explained_fact(place, part.op, part), code)
                causes.setdefault((place, part.op, part.line), cause)
    return sorted(
        causes.values(), key=lambda cause: -slower.get((cause.place, cause.op), 0.0)
    )


def _is_grown(part: Part) -> bool:
    return part.head > part.base


def _grouped(causes: Sequence[Cause], code: HeadCode) -> list[Cause]:
    """The causes; each refers to the first of its group and the first of the same
    effect.
    """
    first_of_group: dict[Hashable, int] = {}
    first_of_effect: dict[Hashable, int] = {}
    grouped = []
    for number, cause in enumerate(causes):
        # A chain of values in the change, else a line, else the operator.
        key: Hashable = ("operator", cause.op, cause.aspect, cause.ranks)
        chain = code.at(cause.place).line(cause.line).chain
        if chain:
            key = ("chain", chain)
        elif cause.attributed_line:
            key = ("line", cause.attributed_line)
        # Without its place; a slowdown found by a cause's own test is distinct from a
        # count.
        effect = (
            cause.tested,
            cause.op,
            cause.aspect,
            cause.amount,
            (cause.base_count, cause.head_count),
            cause.line,
            cause.ranks,
        )
        group = first_of_group.setdefault(key, number)
        same = first_of_effect.setdefault(effect, number)
        grouped.append(
            replace(cause, group=group, same_as=None if same == number else same)
        )
    return grouped


def _is_slower(comparison: Comparison) -> bool:
    return (
        comparison.is_timed
        and comparison.outcome == "regressed"
        and comparison.metric != PREPROCESSING
    )


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


# --- the main cause of one comparison


def _called_by_ranks(
    comparison: Comparison, causes: Iterable[Cause], comparisons: Iterable[Comparison]
) -> Cause | None:
    """The calls that ranks make more often: an exact count, so it precedes any evidence
    from noisy times.
    """
    if not (isinstance(comparison, Paired) and comparison.is_of_job):
        return None
    more = set()
    for count in comparisons:
        is_here = isinstance(count, Exact) and count.place == comparison.place
        if (
            is_here
            and count.outcome == "regressed"
            and metric(count.metric).gate.fails_alone
        ):
            for part in count.parts:
                if part.ranks and _is_grown(part):
                    more.add((part.name, part.ranks))
    return next((cause for cause in causes if (cause.op, cause.ranks) in more), None)


def _of_parts(comparison: Comparison, of_place: _PlaceCauses) -> Cause | None:
    """For a counter its likeliest part, for a time the first of its explanation.

    A graph break or recompilation explains all that follows from it. Without an
    explanation, the candidates are the operators that run more often; the first of them
    is the cause.
    """
    causes = of_place.causes
    grown = {
        (part.name, part.aspect, part.ranks)
        for part in comparison.parts
        if _is_grown(part)
    }
    if grown:
        amount = metric(comparison.metric).display.amount
        main = _of_grown_parts(amount, of_place.of(grown))
        if _parts_explain(comparison):
            return main
        # Some work has no operator, such as an allocation for a number.
        return _counted_in_change(causes) or main
    if isinstance(comparison, Exact):
        return next((cause for cause in causes if cause.inputs_change), None)
    if comparison.metric == SIGNATURE:
        # The change to its counts also changed its output.
        return _counted_in_change(causes)
    if comparison.unit != "s":
        return None
    if causes and causes[0].changes_the_rest:
        return causes[0]
    for cause in causes:
        if cause.rank is not None or ((cause.more_time or 0) > 0 and not cause.stage):
            return cause
    return None


def _counted_in_change(causes: Iterable[Cause]) -> Cause | None:
    """The likeliest cause that was counted on a line of the change."""
    return next(
        (cause for cause in causes if cause.counted and cause.is_of_change), None
    )


def _parts_explain(comparison: Comparison) -> bool:
    """Whether the parts of an exact count make up a good part of its growth."""
    if not isinstance(comparison, Exact) or comparison.unit != "1":
        return True
    if comparison.base is None or comparison.head is None:
        return True
    added = sum(part.head - part.base for part in comparison.parts if _is_grown(part))
    return added >= EXPLAINS * (comparison.head - comparison.base)


def _of_grown_parts(amount: Amount, causes: Sequence[Cause]) -> Cause | None:
    """Of the causes of parts that grew the first that counts in their unit, else the
    first.
    """
    for cause in causes:
        if cause.amount == amount:
            return cause
    return causes[0] if causes else None


def _or_tested(
    cause: Cause | None,
    comparison: Comparison,
    operators: Iterable[OperatorDelta],
    code: HeadCode,
) -> Cause | None:
    """The cause; the operator with a test that found it slower, or its function, if
    that lost more time in the pairs.

    Operators that take longer follow from a cause that changes the rest of a call.
    """
    if cause is not None and (cause.rank is not None or cause.changes_the_rest):
        return cause
    tested = _tested(comparison, operators)
    if tested is None:
        return cause
    if cause is not None and (cause.more_time or 0.0) >= (tested.more_time or 0.0):
        return cause
    tested = located(tested, code)
    return changed_function(tested, [tested], code.at(tested.place)) or tested


def _tested(comparison: Comparison, operators: Iterable[OperatorDelta]) -> Cause | None:
    """The operator that lost most time in the pairs, if that explains a good part of a
    slower call.
    """
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
