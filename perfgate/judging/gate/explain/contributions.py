"""The parts of a call's measured difference: the time that each operator adds, from the
pairs, and its lines, from the traces.

Seconds come from the pairs alone: their members profile in turns. Traces are recorded
once a side, so they show how an operator changed (more often, on other inputs) and the
line with most of its change, and never how much it costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import BUSY, LOW_PRECISION_OPS, SYNCS
from perfgate.document.alignment import AlignedWork, Work, align
from perfgate.document.comparison import Comparison, Exact, Paired
from perfgate.document.explanation import Explanation, InputsChange, OperatorDelta, Part
from perfgate.document.run import OUTSIDE_OPERATORS, CallAccount
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.operators import MIN_PAIRS
from perfgate.judging.gate.compare.parts import grown_lines
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import calls_by_line, traced_work
from perfgate.judging.gate.evidence.work_table import PairedTimes, TracedCall
from perfgate.judging.gate.explain.bottleneck import better_roof, bottleneck
from perfgate.judging.gate.explain.kinds import EXPLAINS, inputs_change, kind_of_change
from perfgate.judging.gate.explain.profiler_cost import (
    cost_of_an_event,
    without_profiler,
)
from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound
from perfgate.stats.summary import median

# A difference is believed if its interval at 95 % lies on one side of zero. It explains
# a difference found by another measure, so a wrong one among dozens of operators costs
# a line of text, and a missing one leaves the loss unexplained.
_TAIL = 0.025
# Of the measured difference; smaller parts stay unexplained.
MIN_PART = 0.01
MAX_CONTRIBUTIONS = 30
MAX_OTHER_INPUTS = 12
# The share of the growth outside operators from which more operators are taken as its
# reason.
_LAUNCHING = 0.5
_MOVED = ("regressed", "improved")
_EXPLAINED_METRICS = tuple(
    name for name, entry in METRICS.items() if entry.gate.explained
)


def explanations(
    calls: Iterable[TracedCall],
    comparisons: Sequence[Comparison],
    tests: Sequence[OperatorDelta] = (),
    *,
    spoiled: Collection[ShapePlace] = (),
) -> list[Explanation]:
    """For every shape that both sides traced, the parts of its change in time, and its
    bottleneck.

    Times of ``spoiled`` places are not explained. If one of the ``tests`` measured an
    operator's loss, that is its contribution.
    """
    exact: dict[ShapePlace, list[Exact]] = defaultdict(list)
    for comparison in comparisons:
        if isinstance(comparison, Exact):
            exact[comparison.place].append(comparison)
    tested: dict[ShapePlace, dict[str, float]] = defaultdict(dict)
    for test in tests:
        tested[test.place][test.op] = test.seconds
    explained = []
    for call in calls:
        moved = call_time(comparisons, call.place)
        if moved is not None and (moved.outcome not in _MOVED or call.place in spoiled):
            moved = None
        explained.append(
            _ExplainedCall(call, exact[call.place]).explanation(
                moved, tested[call.place]
            )
        )
    return explained


def call_time(comparisons: Iterable[Comparison], place: ShapePlace) -> Paired | None:
    """The time of the pairs to explain: a regression or improvement, else the first
    that the catalogue explains.
    """
    times = []
    for row in comparisons:
        if (
            not isinstance(row, Paired)
            or row.place != place
            or row.outcome == "not_comparable"
        ):
            continue
        if row.is_of_call and row.metric in _EXPLAINED_METRICS:
            times.append(row)

    def order(time: Paired) -> tuple[bool, int]:
        return time.outcome not in _MOVED, _EXPLAINED_METRICS.index(time.metric)

    return min(times, key=order, default=None)


class _ExplainedCall:
    """A call that both sides traced; ``exact`` are the comparisons of its counts."""

    def __init__(self, call: TracedCall, exact: Sequence[Exact]) -> None:
        self._call = call
        self._exact = exact
        self._before = _Trace(call.base)
        self._after = _Trace(call.head)

    def explanation(
        self, moved: Paired | None, tested: Mapping[str, float]
    ) -> Explanation:
        """The explanation of the time that ``moved``, if any did; ``tested`` are the
        seconds that tests found.
        """
        pairs = self._call.times
        if moved is not None and moved.metric == BUSY:
            pairs = self._call.kernels
        base = self._call.base
        head = self._call.head
        roof = better_roof((base, head))
        explanation = Explanation(
            workload=self._call.place.workload,
            shape=self._call.place.shape,
            base_bound=bottleneck(base, pairs.base, roof),
            head_bound=bottleneck(head, pairs.head, roof),
            other_inputs=self._other_inputs(),
        )
        if moved is None or moved.base is None or moved.head is None:
            return explanation
        measured = moved.head - moved.base
        parts = self._contributions(
            pairs, tested, clocked=moved.base, measured=measured
        )
        return replace(
            explanation,
            metric=moved.metric,
            measured=rounded(measured),
            explained=rounded(sum(part.seconds for part in parts)),
            contributions=parts[:MAX_CONTRIBUTIONS],
        )

    def _other_inputs(self) -> list[OperatorDelta]:
        """The operators that run as often as before on inputs of another form,
        according to the traces.
        """
        parts = []
        for operator in self._after.operators:
            before, after = self._calls(operator)
            if operator not in self._before.operators or before != after:
                continue
            for pair in self._aligned(operator):
                change = inputs_change(pair)
                if change is None or pair.base is None or pair.head is None:
                    continue
                part = OperatorDelta(
                    op=operator,
                    kind="other_inputs",
                    seconds=0.0,
                    base_count=rounded(pair.base.calls),
                    head_count=rounded(pair.head.calls),
                    line=pair.head.line,
                    inputs_change=change,
                    base_inputs=pair.base.inputs,
                    head_inputs=pair.head.inputs,
                )
                parts.append(part)
        return parts[:MAX_OTHER_INPUTS]

    def _contributions(
        self,
        pairs: PairedTimes,
        tested: Mapping[str, float],
        *,
        clocked: float,
        measured: float,
    ) -> list[OperatorDelta]:
        smallest = abs(measured) * MIN_PART
        added = _added_seconds(pairs, smallest)
        outside = added.pop(OUTSIDE_OPERATORS, None)
        parts = []
        for operator, seconds in added.items():
            parts.append(self._of_operator(operator, tested.get(operator, seconds)))
        if outside is not None:
            parts.append(self._of_outside(outside, pairs))
        parts = without_profiler(
            parts,
            measured,
            at_most=cost_of_an_event(self._call.base, pairs, clocked),
            # The operators are kernels; the host runs at the same time.
            on_device="operators" not in self._call.base.parts,
        )
        large = [part for part in parts if abs(part.seconds) >= smallest]
        # The operators with an exact count that changed in the direction of the time;
        # others only do work for these.
        sign = 1 if measured > 0 else -1
        counted = set()
        for count in self._exact:
            for part in count.parts:
                if part.aspect is None and sign * (part.head - part.base) > 0:
                    counted.add(part.name)
        return _in_order(large, measured, counted)

    def _aligned(self, operator: str) -> list[AlignedWork]:
        return align(
            self._before.operators.get(operator, []),
            self._after.operators.get(operator, []),
        )

    def _calls(self, operator: str) -> tuple[float, float]:
        """How often a call of either side runs an operator."""
        before = self._before.operators.get(operator, [])
        after = self._after.operators.get(operator, [])
        return sum(row.calls for row in before), sum(row.calls for row in after)

    def _of_operator(self, operator: str, seconds: float) -> OperatorDelta:
        base_count, head_count = self._calls(operator)
        site = _largest(self._aligned(operator), growing=seconds > 0)
        kind = kind_of_change(base_count, head_count, seconds)
        change: InputsChange | None = None
        if base_count == head_count:
            change = inputs_change(site)
        if change is not None:
            kind = "other_inputs"
        grown: list[Part] = []
        if seconds > 0 and head_count > base_count:
            # The lines that call it more often.
            grown = grown_lines(
                calls_by_line(self._before.operators.get(operator, [])),
                calls_by_line(self._after.operators.get(operator, [])),
                frozenset(row.code for row in self._before.work if row.code),
            )
        delta = OperatorDelta(
            op=operator,
            kind=kind,
            seconds=rounded(seconds),
            base_count=rounded(base_count),
            head_count=rounded(head_count),
            line=self._line(operator, grown, site),
            inputs_change=change,
            sites=grown,
        )
        if change is None or site is None or site.base is None or site.head is None:
            return delta
        return replace(
            delta, base_inputs=site.base.inputs, head_inputs=site.head.inputs
        )

    def _line(
        self, operator: str, grown: Sequence[Part], site: AlignedWork | None
    ) -> str | None:
        """The line to name for an operator, by the surest evidence that knows one."""
        # Operators that compute in full precision again: the line had asked for less.
        for part in reversed(self._parts_of(LOW_PRECISION_OPS)):
            if part.name == operator and part.line:
                return part.line
        if grown and grown[0].line:
            return grown[0].line
        if site is not None and site.row.line:
            return site.row.line
        counted_at = self._call.lines.get(operator)
        if counted_at:
            return counted_at
        # A new copy on the device: the host began to wait for it.
        is_new_copy = site is not None and site.base is None and site.row.is_copy
        wait = self._more_waits
        if is_new_copy and wait is not None and "copy" in wait.name:
            return wait.line
        return None

    @cached_property
    def _more_waits(self) -> Part | None:
        """The place at which the host of a device began to wait for it; a CPU has no
        such waits.
        """
        if "outside" in self._call.head.parts:
            return None
        return next(
            (part for part in self._parts_of(SYNCS) if part.head > part.base), None
        )

    def _parts_of(self, metric: str) -> list[Part]:
        """The changed parts of an exact count."""
        parts: list[Part] = []
        for count in self._exact:
            if count.metric == metric:
                parts += count.parts
        return parts

    def _of_outside(self, seconds: float, pairs: PairedTimes) -> OperatorDelta:
        """The time added outside operators: of waiting, of more operators, or else of
        the function that grew most.
        """
        wait = self._more_waits
        if wait is not None and seconds > 0:
            return OperatorDelta(
                op=wait.name,
                kind="waiting",
                seconds=rounded(seconds),
                base_count=wait.base,
                head_count=wait.head,
                line=wait.line,
            )
        before = self._before.launches
        after = self._after.launches
        if _launching_seconds(pairs, before, after) / seconds >= _LAUNCHING:
            return OperatorDelta(
                op=OUTSIDE_OPERATORS,
                kind="launching",
                seconds=rounded(seconds),
                base_count=rounded(before),
                head_count=rounded(after),
            )
        delta = OperatorDelta(
            op=OUTSIDE_OPERATORS, kind="outside", seconds=rounded(seconds)
        )
        site = _largest(
            align(self._before.of_python, self._after.of_python), growing=seconds > 0
        )
        if site is None:
            return delta
        line: str | None = None
        if site.row.line:
            line = self._call.code.of_function(site.row.line)
        return replace(delta, function=site.row.operator, line=line)


class _Trace:
    """The work of a traced call on one side: of operators, by operator, and of Python
    functions.
    """

    def __init__(self, account: CallAccount) -> None:
        self.work = traced_work(account.rows)
        self.of_python: list[Work] = []
        self.operators: dict[str, list[Work]] = defaultdict(list)
        # The calls of all operators.
        self.launches = 0.0
        for row in self.work:
            self.operators[row.operator].append(row)
            if row.is_python:
                self.of_python.append(row)
            else:
                self.launches += row.calls


def _launching_seconds(
    pairs: PairedTimes, base_count: float, head_count: float
) -> float:
    """The seconds outside operators that more operators account for, at base's time
    around one; 0 if it is unknown.
    """
    around = [
        times[OUTSIDE_OPERATORS] for times in pairs.base if OUTSIDE_OPERATORS in times
    ]
    if not around or not base_count:
        return 0.0
    return median(around) / base_count * (head_count - base_count)


def _added_seconds(pairs: PairedTimes, smallest: float) -> dict[str, float]:
    """The seconds that each operator adds, if its pairs leave no doubt that it does."""
    if len(pairs) < MIN_PAIRS:
        return {}
    added = {}
    for operator in sorted(pairs.names):
        base, head = pairs.of_part(operator).T
        differences = head - base
        effect = estimate(differences)
        is_sure = (
            lower_bound(differences, _TAIL) > 0 or upper_bound(differences, _TAIL) < 0
        )
        if is_sure and effect and abs(effect) >= smallest:
            added[operator] = effect
    return added


def _in_order(
    parts: Sequence[OperatorDelta], measured: float, counted: Collection[str]
) -> list[OperatorDelta]:
    """The parts in the order of the time that their lines explain together, the
    likeliest cause first.

    The cost of one line of code mostly spreads over several operators: the operator
    that the code calls (``clone``, which is ``counted`` exactly) comes before the
    operators that it calls (``copy_``). If operators were added, removed, run more
    often or run on other inputs, operators that merely take longer are side effects
    (the caches are colder), unless the former explain little and one of the latter
    explains much; and the time between operators grows with their number.
    """
    sign = 1 if measured > 0 else -1
    of_lines: dict[object, float] = defaultdict(float)
    of_changes = 0.0
    for number, part in enumerate(parts):
        seconds = sign * part.seconds
        of_lines[part.line or number] += seconds
        if seconds > 0 and (part.is_launching or part.is_other_work):
            of_changes += seconds
    threshold = EXPLAINS * abs(measured)

    def order(
        numbered: tuple[int, OperatorDelta],
    ) -> tuple[bool, bool, float, bool, float, str]:
        number, part = numbered
        line_seconds = of_lines[part.line or number]
        is_changed = part.is_other_work
        is_cause = is_changed or (
            not part.is_launching and of_changes < threshold <= line_seconds
        )
        is_inner = part.is_counted and part.op not in counted
        return (
            part.is_launching,
            not is_cause,
            -line_seconds,
            is_inner,
            -sign * part.seconds,
            part.op,
        )

    return [part for _, part in sorted(enumerate(parts), key=order)]


def _largest(aligned: Iterable[AlignedWork], *, growing: bool) -> AlignedWork | None:
    """The pair of rows that changed most in one direction; pairs with another count or
    other inputs come first.

    A trace is recorded once a side, so its times alone are noise more often than not.
    """
    sign = 1 if growing else -1

    def weight(pair: AlignedWork) -> tuple[bool, float]:
        is_changed = sign * pair.more_calls > 0 or inputs_change(pair) is not None
        return is_changed, sign * pair.delta

    return max(aligned, key=weight, default=None)
