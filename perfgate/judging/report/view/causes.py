"""What changed underneath a regressed metric: operators by name, with counts, self time and the calling line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import PYTHON_TIMES
from perfgate.catalogue.terms import Amount
from perfgate.document.decision import RULE_METHODS, Aspect, Comparison, DecisionDocument, Part
from perfgate.document.explanation import Contribution, Explanation, OperatorChange, OperatorTest, PartSite
from perfgate.judging.report.view.summary import Summary, is_operator, place

# The share of a call's loss from which an operator that runs as often as before is called its cause.
EXPLAINS = 0.25
_COUNTED = ("added", "removed", "more", "fewer")
Compiling = Literal["graph_break", "recompilation"]
_COMPILING: Mapping[str, Compiling] = {
    "counters.graph_breaks": "graph_break",
    "counters.recompiles": "recompilation",
}
# Place, name of the operator, what a counter tells of it besides that it runs, and what the counts count.
_Key = tuple[str, str, Aspect | None, Amount]


@dataclass(frozen=True)
class Cause:
    """One operator that came, went or changed, or one slower ``stage`` of the preprocessing, in one or several places.

    A module or function that is judged by itself stands like a stage, its time ``inclusive`` of what it calls.

    Counts are per call, ``more_time`` seconds per call (None where nothing says); ``mentions`` is how many regressed counters
    name the operator, ``counted`` whether one of them is exact. ``rank`` is its place in the gate's explanation of a slower
    call, None where that does not name it, and ``part`` what the explanation says of it. ``compiling`` is what happened to a
    compiled graph, where ``op`` is the reason of that. ``aspect`` is what a counter tells of the operator besides that it
    runs, ``also`` such a thing of one that runs more often too. ``sites`` are the lines that add more than before with their
    own counts, ``line`` being the first of them where there are any. ``amount`` is what the counts count.
    """

    places: tuple[str, ...]
    op: str
    base_count: float
    head_count: float
    more_time: float | None = None
    line: str | None = None
    mentions: int = 1
    stage: bool = False
    rank: int | None = None
    part: Contribution | None = None
    counted: bool = False
    compiling: Compiling | None = None
    aspect: Aspect | None = None
    also: Aspect | None = None
    sites: tuple[PartSite, ...] = ()
    amount: Amount = "calls"
    inclusive: bool = False

    @property
    def more_count(self) -> float:
        return self.head_count - self.base_count


def causes(summary: Summary) -> list[Cause]:
    """Per place the operators that got worse, the likeliest cause first.

    A graph that breaks or is compiled again changes every operator after it, so it comes before them. Then what explains a
    slower call, in the gate's order; then the most added self time, and what most counters name.
    """
    decision = summary.decision
    merged: dict[_Key, Cause] = {}
    for part in _from_comparisons(decision.comparisons):
        _merge(merged, part)
    slower = [explained for explained in decision.explanations if (explained.measured or 0.0) > 0]
    times = {(time.workload, time.shape, time.op): time.head - time.base for time in decision.operator_times}
    for change in decision.operator_changes:
        _merge(merged, _of_change(change, times.get((change.workload, change.shape, change.op))))
    for explained in slower:
        for number, contribution in enumerate(explained.contributions):
            if contribution.seconds > 0:
                _merge_explained(merged, explained, contribution, number)
    compiled = _compiled(decision)
    ranked = [
        replace(cause, compiling=compiled.get((cause.places[0], cause.op))) for cause in _with_aspects(merged).values()
    ]
    worse = [cause for cause in ranked if cause.more_count > 0 or (cause.more_time or 0) > 0]
    return sorted(_led_by_counted(worse), key=_order) + _on_other_inputs(decision, worse)


def _on_other_inputs(decision: DecisionDocument, listed: Iterable[Cause]) -> list[Cause]:
    """The operators on other inputs that are no cause yet, where a count rose that names none, the slowest first.

    They may take memory by themselves: a kernel that first brings its inputs into another layout.
    """
    keys = {(where, cause.op) for cause in listed if cause.aspect is None for where in cause.places}
    unexplained = {
        place(c.workload, c.shape)
        for c in decision.comparisons
        if c.outcome == "regressed" and c.method == "exact" and not any(part.head > part.base for part in c.parts)
    }
    slower = {
        (place(test.workload, test.shape), test.op): test.head - test.base
        for test in decision.operator_tests
        if test.outcome == "regressed"
    }
    changed = [
        Cause(places=(where,), op=part.op, base_count=0, head_count=0, line=part.line, part=part, mentions=0)
        for explained in decision.explanations
        for where in [place(explained.workload, explained.shape)]
        for part in explained.other_inputs
        if where in unexplained and (where, part.op) not in keys
    ]
    return sorted(changed, key=lambda cause: -slower.get((cause.places[0], cause.op), 0.0))


def _led_by_counted(ranked: list[Cause]) -> list[Cause]:
    """The causes, of every line that explains time first what an exact counter has more of.

    What the line calls may take too little to show in the pairs, where what it is made of and the views around it do.
    """
    first: dict[tuple[str, str | None], Cause] = {}
    for cause in sorted((cause for cause in ranked if cause.rank is not None and cause.line), key=_order):
        first.setdefault((cause.places[0], cause.line), cause)

    outside = {
        place: cause for (place, _), cause in reversed(first.items()) if cause.part and cause.part.kind == "outside"
    }

    most_python: dict[str, float] = {}
    for cause in ranked:
        if cause.amount == "bytecodes":
            most_python[cause.places[0]] = max(most_python.get(cause.places[0], 0.0), cause.more_count)

    def led(cause: Cause) -> Cause:
        place = cause.places[0]
        if cause.amount == "bytecodes" and place in outside and cause.more_count >= EXPLAINS * most_python[place] > 0:
            # What runs outside operators is Python, and this says which.
            return replace(cause, rank=outside[place].rank)
        leading = first.get((place, cause.line))
        if leading is None or not _inner(leading) or not cause.counted or cause.more_count <= 0:
            return cause
        return replace(cause, rank=leading.rank)

    return [led(cause) for cause in ranked]


def _inner(cause: Cause) -> bool:
    """Tell whether a cause is a part of what some line calls: it runs more often, and no counter names it."""
    return not cause.counted and cause.part is not None and cause.part.kind in _COUNTED


def _order(cause: Cause) -> tuple[bool, bool, int, bool, bool, float, int, float, str, str, tuple[str, ...]]:
    return (
        cause.compiling is None,
        cause.rank is None,
        cause.rank or 0,
        cause.amount != "calls" and cause.rank is None,
        not cause.counted,
        -(cause.more_time or 0),
        -cause.mentions,
        -cause.more_count,
        cause.op,
        cause.aspect or "",
        cause.places,
    )


def _with_aspects(merged: Mapping[_Key, Cause]) -> dict[_Key, Cause]:
    """The causes with those joined that tell more of an operator that is a cause itself, on the same line.

    Where it runs more often, that says enough of the bytes it copies more, the blocks it takes and what it computes; the
    bytecodes of a line say enough of the functions that it calls.
    """
    joined = dict(merged)
    lines_of_python: dict[str, set[str | None]] = {}
    for (where, _, _, amount), cause in merged.items():
        if amount == "bytecodes" and cause.more_count > 0:
            lines_of_python.setdefault(where, set()).add(cause.line)
    for key, cause in merged.items():
        where, name, aspect, amount = key
        if amount == "functions" and cause.line in lines_of_python.get(where, ()):
            del joined[key]
            continue
        plain: _Key = (where, name, None, "calls")
        own = joined.get(plain)
        if own is None or own.line != cause.line:
            continue
        if amount == "calls" and aspect is not None:
            joined[plain] = replace(own, also=aspect)
            del joined[key]
        elif amount in ("copied", "blocks", "flops") and own.more_count > 0:
            del joined[key]
    return joined


def _compiled(decision: DecisionDocument) -> dict[tuple[str, str], Compiling]:
    return {
        (place(comparison.workload, comparison.shape), part.name): _COMPILING[comparison.metric]
        for comparison in decision.comparisons
        if comparison.metric in _COMPILING and comparison.outcome == "regressed"
        for part in comparison.parts
    }


def across_places(ranked: Iterable[Cause]) -> list[Cause]:
    """The causes with those joined that change the same count by the same line in several places."""
    joined: dict[tuple[object, ...], Cause] = {}
    for cause in ranked:
        key = (cause.op, cause.aspect, cause.amount, cause.base_count, cause.head_count, cause.line)
        first = joined.get(key)
        # Sorted by time, the first one has the largest.
        joined[key] = cause if first is None else replace(first, places=first.places + cause.places)
    return list(joined.values())


def cause_of(comparison: Comparison, candidates: Iterable[Cause], tests: Iterable[OperatorTest] = ()) -> Cause | None:
    """What adds most to one comparison: a counter's largest part; of a time what explains it.

    A graph that breaks or is compiled again explains whatever comes of it. Where no explanation says, it is what has more
    added time of the operators that run more often and those that were tested by themselves.
    """
    parts = [part for part in comparison.parts if part.head > part.base]
    at_place = [cause for cause in candidates if place(comparison.workload, comparison.shape) in cause.places]
    if parts:
        largest = max(parts, key=lambda part: part.head - part.base)
        amount = metric(comparison.metric).amount
        matches = [
            cause
            for cause in at_place
            if cause.op == largest.name
            and (largest.aspect == cause.aspect or (cause.also is not None and largest.aspect == cause.also))
        ]
        return next((cause for cause in matches if cause.amount == amount), next(iter(matches), None))
    if comparison.method == "exact":
        return next((cause for cause in at_place if cause.part is not None and cause.part.inputs_change), None)
    if comparison.unit != "s":
        return None
    if at_place and at_place[0].compiling:
        return at_place[0]
    counted = next(
        (entry for entry in at_place if ((entry.more_time or 0) > 0 or entry.rank is not None) and not entry.stage),
        None,
    )
    if counted is not None and counted.rank is not None:
        return counted
    ranked = [cause for cause in (counted, tested_cause(comparison, tests)) if cause is not None]
    return max(ranked, key=lambda cause: cause.more_time or 0.0, default=None)


def tested_cause(comparison: Comparison, tests: Iterable[OperatorTest]) -> Cause | None:
    """The operator that lost most time in the pairs, where that explains a good part of a slower call."""
    if comparison.method != "paired" or comparison.unit != "s" or comparison.outcome != "regressed":
        return None
    at_place = [test for test in tests if (test.workload, test.shape) == (comparison.workload, comparison.shape)]
    slower = [test for test in at_place if test.outcome == "regressed"]
    most = max(slower, key=lambda test: test.head - test.base, default=None)
    if most is None or comparison.base is None or comparison.head is None:
        return None
    more_time = most.head - most.base
    if more_time < EXPLAINS * (comparison.head - comparison.base):
        return None
    where = (place(comparison.workload, comparison.shape),)
    return Cause(places=where, op=most.op, base_count=0, head_count=0, more_time=more_time, line=most.line)


def _from_comparisons(comparisons: Iterable[Comparison]) -> Iterable[Cause]:
    for comparison in comparisons:
        if comparison.outcome != "regressed" or comparison.method in {"check", *RULE_METHODS}:
            continue
        where = (place(comparison.workload, comparison.shape),)
        if is_operator(comparison) and comparison.base is not None and comparison.head is not None:
            name = comparison.metric.partition(":")[2]
            yield Cause(places=where, op=name, base_count=comparison.base, head_count=comparison.head, counted=True)
        if comparison.method == "profiled":
            yield from (_of_kernels(where, part) for part in comparison.parts)
        elif comparison.unit == "s":
            inclusive = comparison.metric.startswith(PYTHON_TIMES)
            yield from (_of_stage(where, part, inclusive=inclusive) for part in slower_stages(comparison))
        else:
            amount = metric(comparison.metric).amount
            yield from (_of_count(where, part, amount) for part in comparison.parts)


def slower_stages(comparison: Comparison) -> list[Part]:
    """The stages of the preprocessing that explain a good part of what it lost, the slowest first."""
    loss = (comparison.head or 0.0) - (comparison.base or 0.0)
    slower = [part for part in comparison.parts if part.head - part.base >= max(EXPLAINS * loss, 1e-9)]
    return sorted(slower, key=lambda part: part.base - part.head)


def _of_count(where: tuple[str, ...], part: Part, amount: Amount) -> Cause:
    return Cause(
        places=where,
        op=part.name,
        aspect=part.aspect,
        base_count=part.base,
        head_count=part.head,
        line=part.line,
        sites=tuple(part.sites),
        counted=True,
        amount=amount,
    )


def _of_kernels(where: tuple[str, ...], part: Part) -> Cause:
    return Cause(places=where, op=part.name, base_count=0, head_count=0, more_time=part.head - part.base)


def _of_stage(where: tuple[str, ...], part: Part, *, inclusive: bool) -> Cause:
    return Cause(
        places=where,
        op=part.name,
        base_count=0,
        head_count=0,
        more_time=part.head - part.base,
        line=part.line,
        stage=True,
        inclusive=inclusive,
    )


def _of_change(change: OperatorChange, more_time: float | None) -> Cause:
    return Cause(
        places=(place(change.workload, change.shape),),
        op=change.op,
        base_count=change.base_count,
        head_count=change.head_count,
        more_time=more_time or None,
        line=change.line,
    )


def _merge_explained(merged: dict[_Key, Cause], explained: Explanation, part: Contribution, number: int) -> None:
    """Add what the explanation of a slower call knows: the seconds are the pairs', the exact counts stay the counters'."""
    where = place(explained.workload, explained.shape)
    name = part.function or part.op
    key: _Key = (where, name, None, "calls")
    old = merged.get(key, Cause(places=(where,), op=name, base_count=0, head_count=0, mentions=0))
    counted = old.base_count or old.head_count or part.kind not in _COUNTED
    merged[key] = replace(
        old,
        base_count=old.base_count if counted else part.base_count or 0,
        head_count=old.head_count if counted else part.head_count or 0,
        more_time=part.seconds,
        line=old.line or part.line,
        sites=old.sites if old.line else tuple(part.sites),
        rank=number,
        part=part,
    )


def _merge(merged: dict[_Key, Cause], new: Cause) -> None:
    """Add what a further source knows about an operator; the counts of an earlier, exact source stay."""
    key = (new.places[0], new.op, new.aspect, new.amount)
    old = merged.get(key)
    if old is None:
        merged[key] = new
        return
    more_time = new.more_time if old.more_time is None else old.more_time
    merged[key] = replace(
        old,
        more_time=more_time,
        line=old.line or new.line,
        sites=old.sites if old.line else new.sites,
        mentions=old.mentions + 1,
        counted=old.counted or new.counted,
    )
