"""The causes of a decision: the changes that made calls worse, the likeliest first, and the comparisons that each explains.

A cause on a line of the change comes before one that the change only reaches: an unchanged line only feels the effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import PREPROCESSING, PYTHON_TIMES, SIGNATURE
from perfgate.catalogue.terms import Amount
from perfgate.document.comparison import Bound, Comparison, Exact, NumberComparison, Paired, Recorded
from perfgate.document.decision import DecisionDocument
from perfgate.document.explanation import MODES, Aspect, Cause, Compiling, Explanation, OperatorDelta, Part
from perfgate.document.profile import ProfiledLine
from perfgate.document.run import CallRow, CounterSite, RunDocument
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.explain.contributions import EXPLAINS

replace = msgspec.structs.replace
OPERATOR_COUNT = "ops.count:"
_COUNTED = ("added", "removed", "more", "fewer")
_COMPILING: Mapping[str, Compiling] = {
    "counters.graph_breaks": "graph_break",
    "counters.recompiles": "recompilation",
}
_Place = tuple[str, str]
# Place, name of the operator, the aspect that a counter counts other than its calls, the unit of the counts, and the ranks.
_Key = tuple[_Place, str, Aspect | None, Amount, str]


class _Added(NamedTuple):
    seconds: float
    calls: float
    mentions: int


_NOTHING = _Added(0.0, 0.0, 0)


def with_causes(
    decision: DecisionDocument, base: RunDocument | None = None, head: RunDocument | None = None
) -> DecisionDocument:
    """The decision with the causes of its regressions; each comparison that a cause explains gets the cause's number.

    The documents supply the changed code, the calls between functions and the weight of each operator.
    """
    found = _Causes(decision, base, head)
    causes = found.ranked()
    by_place: dict[_Place, dict[int, Cause]] = defaultdict(dict)
    for at, cause in enumerate(causes):
        by_place[cause.place][at] = cause
    comparisons = []
    for comparison in decision.comparisons:
        at_place = by_place[comparison.place]
        explained = found.of(comparison, list(at_place.values())) if _is_worse(comparison) else None
        number: int | None = None
        if explained is not None:
            number = next((at for at, cause in at_place.items() if cause == explained), len(causes))
            if number == len(causes):
                causes.append(explained)
                at_place[number] = explained
        comparisons.append(replace(comparison, cause=number))
    return replace(decision, comparisons=_with_calls(comparisons), causes=found.grouped(causes))


def _with_calls(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons; timings without a cause of their own, such as instructions and throughput, take that of the call."""

    def is_timed(comparison: Comparison) -> bool:
        is_time = isinstance(comparison, NumberComparison) and comparison.unit == "s"
        is_of_call = comparison.metric != PREPROCESSING
        return is_of_call and comparison.outcome == "regressed" and (is_time or isinstance(comparison, Paired))

    of_call = {c.place: c.cause for c in reversed(comparisons) if c.cause is not None and is_timed(c)}
    return [replace(c, cause=of_call.get(c.place)) if c.cause is None and is_timed(c) else c for c in comparisons]


def _is_worse(comparison: Comparison) -> bool:
    if comparison.outcome != "inconclusive":
        return comparison.outcome == "regressed"
    base = comparison.bound if isinstance(comparison, Bound) else comparison.base
    head = comparison.head
    if base is None or head is None:
        return False
    return head < base if comparison.better == "higher" else head > base


class _Causes:
    """The known facts about the operators of every shape, joined from counters, explanations and traces."""

    def __init__(self, decision: DecisionDocument, base: RunDocument | None, head: RunDocument | None) -> None:
        self._decision = decision
        self._weights = _weights(base, head)
        changes = head.source.changes if head else []
        functions = {c.place: c.functions for c in head.counters} if head else {}
        functions |= {(profile.workload, ""): profile.functions for profile in head.profiles} if head else {}
        self._code = defaultdict(
            lambda: ChangedCode(changes), {place: ChangedCode(changes, called) for place, called in functions.items()}
        )
        self._text = _text_of_lines(head)
        self._operators: dict[_Place, list[OperatorDelta]] = defaultdict(list)
        for operator in decision.operators:
            self._operators[operator.place].append(operator)

    def ranked(self) -> list[Cause]:
        """Per place the operators that got worse, the likeliest cause first.

        A graph that breaks or is compiled again changes every operator after it, so it comes before them. Next come the causes
        of a slower call, in the order of its explanation; then the costliest, line by line.
        """
        compiled = _compiled_operators(self._decision)
        candidates = [replace(c, compiling=compiled.get((c.place, c.op))) for c in self._joined().values()]
        worse = [self._with_origin(c) for c in candidates if c.more_count > 0 or (c.more_time or 0) > 0]
        by_place: dict[_Place, list[Cause]] = defaultdict(list)
        for cause in _led_by_counted(worse):
            by_place[cause.place].append(cause)
        ordered = list(chain.from_iterable(map(self._of_place, by_place.values())))
        ordered.sort(key=lambda entry: entry[0])
        others = [self._with_origin(cause) for cause in _on_other_inputs(self._decision, worse)]
        return [cause for _, cause in ordered] + others

    def of(self, comparison: Comparison, at_place: Sequence[Cause]) -> Cause | None:
        """The main cause of one comparison that got worse, by itself or by its explanation; ``at_place`` are those there."""
        cause = self._called_by_ranks(comparison, at_place) or _cause_of(comparison, at_place)
        is_ranked = cause is not None and cause.rank is not None
        tested = None if is_ranked else _tested(comparison, self._operators[comparison.place])
        if tested is None or (cause is not None and (cause.more_time or 0.0) >= (tested.more_time or 0.0)):
            return cause
        tested = self._with_origin(tested)
        return self._function_of(tested, [tested]) or tested

    def _called_by_ranks(self, comparison: Comparison, at_place: Iterable[Cause]) -> Cause | None:
        """The calls that ranks make more often: an exact count, so it precedes any evidence from noisy times."""
        if not (isinstance(comparison, Paired) and comparison.is_of_job):
            return None
        place = comparison.place
        counts = [c for c in self._decision.comparisons if isinstance(c, Exact) and c.place == place]
        more: set[tuple[str, str | None]] = set()
        for count in counts:
            if count.outcome == "regressed" and metric(count.metric).fails_alone:
                more |= {(part.name, part.ranks) for part in count.parts if part.ranks and part.head > part.base}
        return next((cause for cause in at_place if (cause.op, cause.ranks) in more), None)

    def grouped(self, causes: Sequence[Cause]) -> list[Cause]:
        """The causes with the text of their lines; each refers to the first of its group and the first of the same effect."""
        first: dict[tuple[object, ...], int] = {}
        same: dict[tuple[object, ...], int] = {}
        return [
            replace(
                cause,
                code=self._text_of(cause, cause.line),
                group=first.setdefault(self._group(cause), number),
                same_as=None if (earliest := same.setdefault(_effect(cause), number)) == number else earliest,
            )
            for number, cause in enumerate(causes)
        ]

    def _group(self, cause: Cause) -> tuple[object, ...]:
        chain = self._code[cause.place].chain_of(cause.line)
        line = _line(cause)
        return ("chain", *chain) if chain else ("line", line) if line else ("op", cause.op, cause.aspect, cause.ranks)

    def _text_of(self, cause: Cause, line: str | None) -> str | None:
        return self._code[cause.place].text(line) or self._text.get(line or "")

    def _joined(self) -> dict[_Key, Cause]:
        merged: dict[_Key, Cause] = {}
        for part in _from_comparisons(self._decision.comparisons):
            _merge(merged, part)
        for operator in self._decision.operators:
            if operator.base_count is not None:
                _merge(merged, _of_change(operator))
        for explained in self._decision.explanations:
            if (explained.measured or 0.0) <= 0:
                continue
            for number, contribution in enumerate(explained.contributions):
                if contribution.seconds > 0:
                    _merge_explained(merged, explained, contribution, number)
        return _with_aspects(merged)

    def _with_origin(self, cause: Cause) -> Cause:
        origin = self._code[cause.place].origin(cause.line)
        return replace(cause, origin=origin and replace(origin, code=self._text_of(cause, origin.line)))

    def _of_place(self, causes: Sequence[Cause]) -> list[tuple[tuple[Any, ...], Cause]]:
        """The causes of one shape and their order; those on lines of the change come before their consequences."""
        by_line = self._by_line(causes)

        def order(cause: Cause, *, ahead: bool = False) -> tuple[Any, ...]:
            return (
                not cause.changes_the_rest,
                cause.rank is None,
                cause.rank or 0,
                not ahead,
                cause.amount != "calls" and cause.rank is None,
                not cause.counted,
                *(-part for part in by_line.get(_line(cause), _NOTHING)),
                -self._cost(cause),
                -cause.mentions,
                -cause.more_count,
            )

        top = min(causes, key=order)
        placed = [(order(cause), cause) for cause in causes]
        if top.changes_the_rest or _is_of_change(top):
            return placed
        ahead = [c for c in causes if c is not top and _is_of_change(c) and self._explains(c, top, by_line)]
        if not ahead and (function := self._function_of(top, causes)) is not None:
            return [(order(function, ahead=True), function), *placed]
        led = ahead
        if top.rank is not None:
            led = [replace(c, rank=top.rank) if c.rank is None or c.rank > top.rank else c for c in ahead]
        rest = [entry for entry in placed if not any(entry[1] is c for c in ahead)]
        return [*((order(c, ahead=True), c) for c in led), *rest]

    def _by_line(self, causes: Iterable[Cause]) -> dict[str | None, _Added]:
        """Per line the seconds and calls of operators that it adds, and the number of counters that name a part of it."""
        lines: dict[str | None, _Added] = defaultdict(lambda: _NOTHING)
        for cause in causes:
            seconds, count, mentions = lines[_line(cause)]
            if cause.amount == "calls" and cause.aspect is None and not cause.stage:
                seconds, count = seconds + self._cost(cause), count + max(cause.more_count, 0.0)
            lines[_line(cause)] = _Added(seconds, count, mentions + cause.mentions)
        return lines

    def _cost(self, cause: Cause) -> float:
        """The seconds that a cause adds: from the pairs, else from the weight of its runs in a trace; only for ordering."""
        if cause.more_time is not None:
            return max(cause.more_time, 0.0)
        return max(cause.more_count, 0.0) * self._weights.get((*cause.place, cause.op), 0.0)

    def _explains(self, cause: Cause, top: Cause, by_line: Mapping[str | None, _Added]) -> bool:
        """Whether a cause on a changed line may be the reason for the one that would otherwise be named first.

        It is if one of their lines calls the other and both have the same kind of count, or if it adds a good part as much.
        """
        if cause.amount == top.amount and not _takes_longer_alone(top):
            if self._code[cause.place].related(cause.line, top.line):
                return True
            if cause.amount != "calls":
                return cause.more_count >= EXPLAINS * top.more_count
            mine, most = by_line.get(_line(cause), _NOTHING), by_line.get(_line(top), _NOTHING)
            if most.seconds > 0:
                return mine.seconds >= EXPLAINS * most.seconds
            return mine.calls >= EXPLAINS * most.calls
        seconds = cause.more_time or 0.0
        if top.more_time and seconds >= EXPLAINS * top.more_time:
            return True
        # An operator that runs as often as before but takes longer is a side effect of one that runs more often.
        alone = _takes_longer_alone(top) and cause.counted and cause.amount in ("calls", "held")
        return alone and self._code[cause.place].related(cause.line, top.line)

    def _function_of(self, top: Cause, causes: Sequence[Cause]) -> Cause | None:
        """The changed function around operators that run as before and take longer: the function changed, not the operators."""
        if not _takes_longer_alone(top) or top.origin is None or top.origin.reach not in ("caller", "function"):
            return None
        origin = top.origin
        slower = [c for c in causes if c.more_time and c.origin and c.origin.function == origin.function]
        is_in_it = origin.function is None or top.op.endswith(f".{origin.function}")
        name = top.op if is_in_it else origin.function or top.op
        seconds = sum(c.more_time or 0.0 for c in slower)
        return Cause(
            workload=top.workload,
            shape=top.shape,
            op=name,
            more_time=seconds,
            line=origin.line,
            rank=top.rank,
            stage=True,
            inclusive=True,
            origin=replace(origin, reach="line"),
        )


def _text_of_lines(head: RunDocument | None) -> dict[str, str]:
    """The text of the lines at which something was counted or traced."""
    if head is None:
        return {}
    lines: list[ProfiledLine | CallRow | CounterSite] = []
    for profile in head.profiles:
        lines += profile.lines
    for account in head.accounts:
        lines += account.rows
    for counters in head.counters:
        lines += counters.sites
    return {entry.line: entry.code for entry in lines if entry.line and entry.code}


def _compiled_operators(decision: DecisionDocument) -> dict[tuple[_Place, str], Compiling]:
    """The operators at which a graph breaks or is compiled again, by place and name."""
    compiled: dict[tuple[_Place, str], Compiling] = {}
    for comparison in decision.comparisons:
        if comparison.metric in _COMPILING and comparison.outcome == "regressed":
            for part in comparison.parts:
                compiled[comparison.place, part.name] = _COMPILING[comparison.metric]
    return compiled


def _effect(cause: Cause) -> tuple[object, ...]:
    """The effect of a cause, without its place; a slowdown found by a cause's own test is distinct from a count."""
    return (
        cause.tested,
        cause.op,
        cause.aspect,
        cause.amount,
        cause.base_count,
        cause.head_count,
        cause.line,
        cause.ranks,
    )


def _is_of_change(cause: Cause) -> bool:
    return cause.origin is not None and cause.origin.reach in ("line", "caller")


def _line(cause: Cause) -> str | None:
    """The line that a cause is attributed to: the changed line that calls it, if there is one."""
    return cause.origin.line if cause.origin and cause.origin.reach == "caller" else cause.line


def _takes_longer_alone(cause: Cause) -> bool:
    return not cause.counted and (cause.tested or cause.kind == "slower")


def _weights(*runs: RunDocument | None) -> dict[tuple[str, str, str], float]:
    """The seconds of one run of an operator in the traces, from the head if it has them."""
    weights: dict[tuple[str, str, str], float] = {}
    for run in runs:
        for place, rows in RunIndex(run).operators.items() if run else ():
            weights |= {(*place, op): row.self_time / row.count for op, row in rows.items() if row.count}
    return weights


def _on_other_inputs(decision: DecisionDocument, listed: Iterable[Cause]) -> list[Cause]:
    """The operators on other inputs that are no cause yet, if a count rose without naming any; the slowest first.

    They may allocate memory by themselves: a kernel that first converts its inputs to another layout.
    """
    keys = {(cause.place, cause.op) for cause in listed if cause.aspect is None}
    regressed = [c for c in decision.comparisons if isinstance(c, Exact) and c.outcome == "regressed"]
    unexplained = {count.place for count in regressed if not _has_grown_part(count)}
    slower = {
        (test.workload, test.shape, test.op): test.seconds for test in decision.operators if test.outcome == "regressed"
    }
    changed: dict[tuple[_Place, str, str | None], Cause] = {}
    for explained in decision.explanations:
        place = explained.place
        for part in explained.other_inputs if place in unexplained else ():
            if (place, part.op) not in keys:
                cause = _explained(
                    Cause(workload=place[0], shape=place[1], op=part.op, line=part.line, mentions=0), part
                )
                changed.setdefault((place, part.op, part.line), cause)
    return sorted(changed.values(), key=lambda cause: -slower.get((*cause.place, cause.op), 0.0))


def _has_grown_part(comparison: Comparison) -> bool:
    return any(part.head > part.base for part in comparison.parts)


def _led_by_counted(ranked: list[Cause]) -> list[Cause]:
    """The causes; of each line that explains time, the operator that an exact counter found more of comes first.

    The operator that the line calls may take too little time to show in the pairs, although its inner operators and the views
    around it show. Time between operators that grew with their number is explained by the operators that were added.
    """
    first: dict[tuple[_Place, str | None], Cause] = {}
    by_rank = sorted((c for c in ranked if c.rank is not None and c.line), key=lambda c: (c.rank or 0, c.op))
    for cause in by_rank:
        first.setdefault((cause.place, cause.line), cause)
    outside = {place: cause for (place, _), cause in reversed(first.items()) if cause.kind == "outside"}
    launching = {cause.place: cause.rank for cause in ranked if cause.kind == "launching"}
    most_python: dict[_Place, float] = {}
    for cause in ranked:
        if cause.amount == "bytecodes":
            most_python[cause.place] = max(most_python.get(cause.place, 0.0), cause.more_count)

    def led(cause: Cause) -> Cause:
        place = cause.place
        if cause.amount == "bytecodes" and place in outside and cause.more_count >= EXPLAINS * most_python[place] > 0:
            # Time outside operators is Python's, and the bytecodes identify the line.
            return replace(cause, rank=outside[place].rank)
        is_added = cause.counted and cause.amount == "calls" and cause.aspect is None and cause.more_count > 0
        if is_added and cause.rank is None and place in launching:
            return replace(cause, rank=launching[place])
        leading = first.get((place, cause.line))
        # A part of an operator that a line calls runs more often, and no counter names it.
        is_inner = leading is not None and not leading.counted and leading.kind in _COUNTED
        if leading is None or not is_inner or not cause.counted or cause.more_count <= 0:
            return cause
        return replace(cause, rank=leading.rank)

    return [led(cause) for cause in ranked]


def _with_aspects(merged: Mapping[_Key, Cause]) -> dict[_Key, Cause]:
    """The causes, with further aspects of an operator merged into its own cause on the same line.

    If the operator runs more often, that already covers the extra bytes it copies, the blocks it allocates and its arithmetic;
    the bytecodes of a line already cover the functions that it calls.
    """
    joined = dict(merged)
    lines_of_python: dict[_Place, set[str | None]] = {}
    for (where, _, _, amount, _), cause in merged.items():
        if amount == "bytecodes" and cause.more_count > 0:
            lines_of_python.setdefault(where, set()).add(cause.line)
    for key, cause in merged.items():
        where, name, aspect, amount, ranks = key
        if amount == "functions" and cause.line in lines_of_python.get(where, ()):
            del joined[key]
            continue
        plain: _Key = (where, name, None, "calls", ranks)
        own = joined.get(plain)
        if own is None or own.line != cause.line:
            continue
        if amount == "calls" and aspect is not None and aspect not in MODES:
            joined[plain] = replace(own, also=aspect)
            del joined[key]
        elif amount in ("copied", "blocks", "flops") and own.more_count > 0:
            del joined[key]
    return joined


# --- of one comparison


def _cause_of(comparison: Comparison, at_place: Sequence[Cause]) -> Cause | None:
    """The main cause of one comparison: for a counter its likeliest part, for a time the first of its explanation.

    A graph break or recompilation explains all that follows from it. Without an explanation, the candidates are the operators
    that run more often and those tested by themselves; the one that added more time is the cause.
    """
    parts = {(part.name, part.aspect, part.ranks) for part in comparison.parts if part.head > part.base}
    if parts:
        amount = metric(comparison.metric).amount
        matches = [
            c for c in at_place if (c.op, c.aspect, c.ranks) in parts or (c.also and (c.op, c.also, c.ranks) in parts)
        ]
        return next((cause for cause in matches if cause.amount == amount), next(iter(matches), None))
    if isinstance(comparison, Exact):
        return next((cause for cause in at_place if cause.inputs_change), None)
    if comparison.metric == SIGNATURE:
        # What the change does to its counts is what made the output another one.
        return next((cause for cause in at_place if cause.counted and _is_of_change(cause)), None)
    if comparison.unit != "s":
        return None
    if at_place and at_place[0].changes_the_rest:
        return at_place[0]
    timed = ((cause.more_time or 0) > 0 or cause.rank is not None for cause in at_place)
    candidates = (c for c, is_timed in zip(at_place, timed) if is_timed and (not c.stage or c.rank is not None))
    return next(candidates, None)


def _tested(comparison: Comparison, at_place: Iterable[OperatorDelta]) -> Cause | None:
    """The operator that lost most time in the pairs, if that explains a good part of a slower call."""
    if not (isinstance(comparison, Paired) and comparison.is_of_call):
        return None
    if comparison.unit != "s" or comparison.outcome != "regressed":
        return None
    slower = [test for test in at_place if test.outcome == "regressed"]
    most = max(slower, key=lambda test: test.seconds, default=None)
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


# --- from their sources


def _from_comparisons(comparisons: Iterable[Comparison]) -> Iterator[Cause]:
    for comparison in comparisons:
        if comparison.outcome != "regressed" or not isinstance(comparison, NumberComparison):
            continue
        where = comparison.place
        base, head = comparison.base, comparison.head
        if comparison.metric.startswith(OPERATOR_COUNT) and base is not None and head is not None:
            name = comparison.metric.removeprefix(OPERATOR_COUNT)
            yield Cause(workload=where[0], shape=where[1], op=name, base_count=base, head_count=head, counted=True)
        if isinstance(comparison, Recorded):
            yield from (_of_kernels(where, part) for part in comparison.parts)
        elif comparison.unit == "s":
            inclusive = comparison.metric.startswith(PYTHON_TIMES)
            for part in slower_stages(comparison):
                yield replace(_of_kernels(where, part), line=part.line, stage=True, inclusive=inclusive)
        else:
            amount = metric(comparison.metric).amount
            yield from (_of_count(where, part, amount) for part in comparison.parts)


def slower_stages(comparison: NumberComparison) -> list[Part]:
    """The stages of the preprocessing that explain a good part of its slowdown, the slowest first."""
    loss = (comparison.head or 0.0) - (comparison.base or 0.0)
    slower = [part for part in comparison.parts if part.head - part.base >= max(EXPLAINS * loss, 1e-9)]
    return sorted(slower, key=lambda part: part.base - part.head)


def _of_count(where: _Place, part: Part, amount: Amount) -> Cause:
    return Cause(
        workload=where[0],
        shape=where[1],
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


def _of_kernels(where: _Place, part: Part) -> Cause:
    return Cause(workload=where[0], shape=where[1], op=part.name, more_time=part.head - part.base)


def _of_change(change: OperatorDelta) -> Cause:
    return Cause(
        workload=change.workload,
        shape=change.shape,
        op=change.op,
        base_count=change.base_count or 0.0,
        head_count=change.head_count or 0.0,
        more_time=change.seconds or None,
        line=change.line,
    )


def _merge_explained(merged: dict[_Key, Cause], explained: Explanation, part: OperatorDelta, number: int) -> None:
    """Add the explanation of a slower call: the seconds are the pairs', the exact counts stay the counters'."""
    where = explained.place
    name = part.function or part.op
    key: _Key = (where, name, None, "calls", "")
    old = merged.get(key, Cause(workload=where[0], shape=where[1], op=name, mentions=0))
    counted = old.base_count or old.head_count or part.kind not in _COUNTED
    joined = replace(
        old,
        base_count=old.base_count if counted else part.base_count or 0,
        head_count=old.head_count if counted else part.head_count or 0,
        more_time=part.seconds,
        line=old.line or part.line,
        sites=old.sites if old.line else part.sites,
        rank=number,
    )
    merged[key] = _explained(joined, part)


def _explained(cause: Cause, part: OperatorDelta) -> Cause:
    return replace(
        cause,
        kind=part.kind,
        function=part.function,
        inputs_change=part.inputs_change,
        base_inputs=part.base_inputs,
        head_inputs=part.head_inputs,
    )


def _merge(merged: dict[_Key, Cause], new: Cause) -> None:
    """Add a further source's facts about an operator; the counts of an earlier, exact source stay."""
    key = (new.place, new.op, new.aspect, new.amount, new.ranks)
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
