"""The parts of a call's measured difference: the time that each operator adds, from the pairs, and its lines, from the traces.

Seconds come from the pairs alone: their members profile in turns. Traces are recorded once a side, so they show how an operator
changed (more often, on other inputs) and the line with most of its change, and never how much it costs.

The profiler slows a CPU with every operator it records, also the one that launches the kernels of a device. Base gives the
upper bound of that cost: its profiled call less its clocked call, shared among its operators. If additional operators add up
to more than the measured difference, up to this bound is subtracted from them, and any remaining excess is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import LOW_PRECISION_OPS, SYNCS
from perfgate.document.alignment import AlignedWork, Work, align
from perfgate.document.comparison import Comparison, Exact, Paired
from perfgate.document.decision import Invalid
from perfgate.document.explanation import Explanation, InputsChange, OperatorDelta, Part, PartKind
from perfgate.document.run import OUTSIDE_OPERATORS, CallAccount, CallRow
from perfgate.judging.gate.compare.grown_lines import grown_lines
from perfgate.judging.gate.compare.operators import MIN_PAIRS
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.index import Evidence, PairedTimes
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work import calls_by_line
from perfgate.judging.gate.explain.bottleneck import better_roof, bottleneck
from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound
from perfgate.stats.summary import median

# A difference is believed if its interval at 95 % lies on one side of zero. It explains a difference found by another measure,
# so a wrong one among dozens of operators costs a line of text, and a missing one leaves the loss unexplained.
_TAIL = 0.025
# Of the measured difference; a smaller part explains nothing, and several of them remain together as unexplained.
MIN_PART = 0.01
MAX_CONTRIBUTIONS = 30
MAX_OTHER_INPUTS = 12
# The share of a call's change from which a change in the work done is its cause, rather than operators that take longer.
EXPLAINS = 0.25
_COUNTED: frozenset[PartKind] = frozenset({"added", "removed", "more", "fewer"})
_CHANGED: frozenset[PartKind] = frozenset({*_COUNTED, "other_inputs", "waiting"})
_UNCHANGED: frozenset[PartKind] = frozenset({"slower", "faster", "outside"})
# The share of the growth outside operators from which more operators are taken as its reason.
_LAUNCHING = 0.5
_MOVED = ("regressed", "improved")
_EXPLAINED_METRICS = tuple(name for name, entry in METRICS.items() if entry.explained)


def explanations(
    evidence: Evidence,
    comparisons: Sequence[Comparison],
    tests: Sequence[OperatorDelta] = (),
    *,
    invalid: Iterable[Invalid] = (),
) -> list[Explanation]:
    """For every shape that both sides traced, the parts of its change in time, and its bottleneck.

    If one of the ``tests`` measured an operator's loss, that is its contribution.
    """
    spoiled = {entry.place for entry in invalid}
    before, after = evidence.base.accounts, evidence.head.accounts
    explained = []
    for place in sorted(before.keys() & after.keys()):
        times = [] if place in spoiled else call_times(comparisons, *place)
        moved = next((time for time in times if time.outcome in _MOVED), None)
        exact = [c for c in comparisons if isinstance(c, Exact) and c.place == place]
        tested = {test.op: test.seconds for test in tests if test.place == place}
        explained.append(_Shape(evidence, before[place], after[place], moved, exact, tested).explanation())
    return explained


def call_times(comparisons: Sequence[Comparison], workload: str, shape: str) -> list[Paired]:
    """The call times of the pairs: regressions and improvements first, then in the order in which they are explained."""
    of_place = [c for c in comparisons if isinstance(c, Paired) and c.place == (workload, shape)]
    paired = {c.metric: c for c in of_place if c.is_of_call}
    times = [paired[metric] for metric in _EXPLAINED_METRICS if metric in paired]
    comparable = [time for time in times if time.outcome != "not_comparable"]
    return sorted(comparable, key=lambda time: time.outcome not in _MOVED)


@dataclass(frozen=True)
class _Shape:
    """One shape of both sides, the comparison to explain, its exact comparisons, and the tested losses of its operators."""

    evidence: Evidence
    before: CallAccount
    after: CallAccount
    moved: Paired | None
    exact: Sequence[Exact]
    tested: Mapping[str, float]

    @cached_property
    def _place(self) -> ShapePlace:
        return ShapePlace(self.after.workload, self.after.shape)

    @cached_property
    def _rows(self) -> tuple[dict[str, list[CallRow]], dict[str, list[CallRow]]]:
        return _by_op(self.before), _by_op(self.after)

    def explanation(self) -> Explanation:
        pairs = self.evidence.paired_times(self._place)
        roof = better_roof((self.before, self.after))
        explanation = Explanation(
            workload=self._place.workload,
            shape=self._place.shape,
            base_bound=bottleneck(self.before, [first for first, _ in pairs], roof),
            head_bound=bottleneck(self.after, [second for _, second in pairs], roof),
            other_inputs=self._other_inputs(),
        )
        moved = self.moved
        if moved is None or moved.base is None or moved.head is None:
            return explanation
        measured = moved.head - moved.base
        parts = self._contributions(pairs, moved.base, measured)
        return msgspec.structs.replace(
            explanation,
            metric=moved.metric,
            measured=rounded(measured),
            explained=rounded(sum(part.seconds for part in parts)),
            contributions=parts[:MAX_CONTRIBUTIONS],
        )

    def _other_inputs(self) -> list[OperatorDelta]:
        """The operators that run as often as before on inputs of another form, according to the traces."""
        before, after = self._rows
        parts = []
        for op in [op for op in after if op in before]:
            if _count(after[op]) != _count(before[op]):
                continue
            for pair in align(map(_timed, before[op]), map(_timed, after[op])):
                change = _inputs_change(pair)
                if change is not None and pair.base is not None and pair.head is not None:
                    parts.append(
                        OperatorDelta(
                            op=op,
                            kind="other_inputs",
                            seconds=0.0,
                            base_count=rounded(pair.base.calls),
                            head_count=rounded(pair.head.calls),
                            line=pair.head.line,
                            inputs_change=change,
                            base_inputs=pair.base.inputs,
                            head_inputs=pair.head.inputs,
                        )
                    )
        return parts[:MAX_OTHER_INPUTS]

    def _contributions(self, pairs: PairedTimes, clocked: float, measured: float) -> list[OperatorDelta]:
        added = _added_seconds(pairs, abs(measured) * MIN_PART)
        outside = added.pop(OUTSIDE_OPERATORS, None)
        parts = [self._of_operator(op, self.tested.get(op, seconds)) for op, seconds in added.items()]
        if outside is not None:
            around = [first[OUTSIDE_OPERATORS] for first, _ in pairs if OUTSIDE_OPERATORS in first]
            parts.append(self._of_outside(outside, before=median(around) if around else None))
        parts = _without_profiler(
            parts, measured, at_most=self._cost_of_an_event(pairs, clocked), on_device=self._on_device
        )
        large = [part for part in parts if abs(part.seconds) >= abs(measured) * MIN_PART]
        # Operators with a changed exact count; others only do work for these.
        sign = 1 if measured > 0 else -1
        counted: set[str] = set()
        for count in self.exact:
            changed = [part for part in count.parts if sign * (part.head - part.base) > 0]
            counted |= {part.name for part in changed if part.aspect is None}
        return _ranked(large, measured, counted=counted)

    @property
    def _on_device(self) -> bool:
        """Whether the operators are kernels, beside which the host runs."""
        return "operators" not in self.before.parts

    def _cost_of_an_event(self, pairs: PairedTimes, clocked: float) -> float:
        """The seconds that the pairs' profiler adds to a call with every operator, or with the launch of every kernel."""
        events = sum(row.count for row in self.before.rows if row.kind != "python")
        if not events or not pairs:
            return 0.0
        return max(0.0, median([sum(first.values()) for first, _ in pairs]) - clocked) / events

    def _of_operator(self, op: str, seconds: float) -> OperatorDelta:
        before, after = (rows.get(op, []) for rows in self._rows)
        base_count, head_count = _count(before), _count(after)
        site = _largest(align(map(_timed, before), map(_timed, after)), growing=seconds > 0)
        change = _inputs_change(site) if base_count == head_count else None
        grown: list[Part] = []
        if seconds > 0 and head_count > base_count:
            code = frozenset(row.code for row in self.before.rows if row.code)
            grown = grown_lines(calls_by_line(map(_timed, before)), calls_by_line(map(_timed, after)), code)
        # Operators that compute in full precision again: the line had asked for less.
        precision_lines = {part.name: part.line for part in self._parts_of(LOW_PRECISION_OPS) if part.line}
        # A new copy on the device: the host began to wait for it.
        new_copy = site is not None and site.base is None and site.row.kind == "copy"
        wait = self._more_waits if new_copy else None
        return OperatorDelta(
            op=op,
            kind=_kind(base_count, head_count, change, seconds),
            seconds=rounded(seconds),
            base_count=rounded(base_count),
            head_count=rounded(head_count),
            line=precision_lines.get(op)
            or (grown[0].line if grown else None)
            or (site.row.line if site else None)
            or self.evidence.head.operator_lines(self._place).get(op)
            or (wait.line if wait is not None and "copy" in wait.name else None),
            inputs_change=change,
            base_inputs=site.base.inputs if change and site and site.base else None,
            head_inputs=site.head.inputs if change and site and site.head else None,
            sites=grown,
        )

    @cached_property
    def _more_waits(self) -> Part | None:
        """The place at which the host of a device began to wait for it; a CPU has no such waits."""
        if "outside" in self.after.parts:
            return None
        return next((part for part in self._parts_of(SYNCS) if part.head > part.base), None)

    def _parts_of(self, metric: str) -> list[Part]:
        """The changed parts of an exact count."""
        parts: list[Part] = []
        for count in self.exact:
            if count.metric == metric:
                parts += count.parts
        return parts

    def _of_outside(self, seconds: float, *, before: float | None) -> OperatorDelta:
        """The time added outside operators, attributed to waiting, to more operators, or else to the function that grew most.

        ``before`` is base's time outside operators; None if no pair has it, so that operators cannot be priced.
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
        base_ops = _count(row for row in self.before.rows if row.kind != "python")
        head_ops = _count(row for row in self.after.rows if row.kind != "python")
        if before is not None and base_ops and before / base_ops * (head_ops - base_ops) / seconds >= _LAUNCHING:
            return OperatorDelta(
                op=OUTSIDE_OPERATORS,
                kind="launching",
                seconds=rounded(seconds),
                base_count=rounded(base_ops),
                head_count=rounded(head_ops),
            )
        old = [_timed(row) for row in self.before.rows if row.kind == "python"]
        new = [_timed(row) for row in self.after.rows if row.kind == "python"]
        site = _largest(align(old, new), growing=seconds > 0)
        changed = ChangedCode(self.evidence.head.run.source.changes)
        return OperatorDelta(
            op=OUTSIDE_OPERATORS,
            kind="outside",
            seconds=rounded(seconds),
            function=site.row.operator if site else None,
            line=changed.of_function(site.row.line) if site and site.row.line else None,
        )


def _added_seconds(pairs: PairedTimes, smallest: float) -> dict[str, float]:
    """The seconds that each operator adds, if its pairs leave no doubt that it does."""
    seconds = {}
    operators: set[str] = set()
    for before, after in pairs:
        operators |= before.keys() | after.keys()
    for op in sorted(operators):
        differences = np.array([after.get(op, 0.0) - before.get(op, 0.0) for before, after in pairs])
        if differences.size < MIN_PAIRS:
            continue
        effect = estimate(differences)
        is_sure = lower_bound(differences, _TAIL) > 0 or upper_bound(differences, _TAIL) < 0
        if is_sure and effect and abs(effect) >= smallest:
            seconds[op] = effect
    return seconds


def _without_profiler(
    parts: Sequence[OperatorDelta], measured: float, *, at_most: float, on_device: bool
) -> list[OperatorDelta]:
    """The parts without the profiler's cost for additional operators, i.e. without their excess over the measured difference.

    That is at most ``at_most`` seconds an operator, and may well be less: a profiled call has other costs too. The profiler's
    cost lies partly in the operator and partly around it, so any part of it beyond the operator's own time is subtracted from
    the time outside operators; ``on_device`` all of it, because kernels are not slowed and the host that launches them is. An
    operator that runs more often saves no time by that.
    """
    counted = sum(_more_runs(part) for part in parts)
    launched = sum(part.more_count for part in parts if part.kind == "launching")
    more = max(counted, launched) if on_device else counted or launched
    beyond = sum(part.seconds for part in parts) - measured
    each = min(at_most, beyond / more) if more and beyond / more > 0 else 0.0
    corrected, around = [], each * (more - counted)
    for part in parts:
        added = each * _more_runs(part)
        inside = min(added, max(part.seconds, 0.0)) if added > 0 else max(added, min(part.seconds, 0.0))
        inside = 0.0 if on_device else inside
        around += added - inside
        corrected.append(msgspec.structs.replace(part, seconds=rounded(part.seconds - inside)))
    return [
        msgspec.structs.replace(part, seconds=rounded(max(part.seconds - max(around, 0.0), 0.0)))
        if part.kind == "launching"
        else part
        for part in corrected
    ]


def _more_runs(part: OperatorDelta) -> float:
    return part.more_count if part.kind in _COUNTED else 0.0


def _ranked(parts: Sequence[OperatorDelta], measured: float, *, counted: Collection[str]) -> list[OperatorDelta]:
    """The parts in the order of the time that their lines explain together, the likeliest cause first.

    The cost of one line of code mostly spreads over several operators: the one that the code calls (``clone``, one of those
    ``counted`` exactly) comes before its inner ones (``copy_``). If operators were added, removed, run more often or run on
    other inputs, those that merely take longer are side effects (the caches are colder), unless the former explain little and
    one of the latter explains much; and the time between operators grows with their number.
    """
    sign = 1 if measured > 0 else -1
    by_line: dict[object, float] = defaultdict(float)
    for number, part in enumerate(parts):
        by_line[part.line or number] += sign * part.seconds
    from_code = {*_CHANGED, "launching"}
    changed = sum(sign * part.seconds for part in parts if part.kind in from_code and sign * part.seconds > 0)
    threshold = EXPLAINS * abs(measured)

    def order(numbered: tuple[int, OperatorDelta]) -> tuple[bool, bool, float, bool, float, str]:
        number, part = numbered
        line_seconds = by_line[part.line or number]
        slower_alone = part.kind in _UNCHANGED and changed < threshold <= line_seconds
        inner = part.kind in _COUNTED and part.op not in counted
        is_cause = part.kind in _CHANGED or slower_alone
        return part.kind == "launching", not is_cause, -line_seconds, inner, -sign * part.seconds, part.op

    return [part for _, part in sorted(enumerate(parts), key=order)]


def _by_op(account: CallAccount) -> dict[str, list[CallRow]]:
    rows: dict[str, list[CallRow]] = {}
    for row in account.rows:
        rows.setdefault(row.op, []).append(row)
    return rows


def _count(rows: Iterable[CallRow]) -> float:
    return sum(row.count for row in rows)


def _timed(row: CallRow) -> Work:
    return Work(row.op, row.self_time, row.count, row.inputs, row.line, row.code, row.kind)


def _largest(aligned: Sequence[AlignedWork], *, growing: bool) -> AlignedWork | None:
    """The pair of rows that changed most in one direction; one with a changed count or changed inputs before all others.

    A trace is recorded once a side, so its times alone are noise more often than not.
    """
    sign = 1 if growing else -1

    def weight(pair: AlignedWork) -> tuple[bool, float]:
        more = (pair.head.calls if pair.head else 0.0) - (pair.base.calls if pair.base else 0.0)
        return sign * more > 0 or _inputs_change(pair) is not None, sign * pair.delta

    return max(aligned, key=weight, default=None)


def _kind(base: float, head: float, change: InputsChange | None, seconds: float) -> PartKind:
    if base == head:
        if change is not None:
            return "other_inputs"
        return "slower" if seconds > 0 else "faster"
    if base == 0:
        return "added"
    if head == 0:
        return "removed"
    return "more" if head > base else "fewer"


def _inputs_change(pair: AlignedWork | None) -> InputsChange | None:
    """The first difference between the inputs of a pair of rows: the dtypes, else the shapes, else only the layout."""
    if pair is None or pair.base is None or pair.head is None or pair.base.inputs == pair.head.inputs:
        return None
    before, after = _dtypes_and_shapes(pair.base.inputs), _dtypes_and_shapes(pair.head.inputs)
    if before is None or after is None:
        return None
    if before[0] != after[0]:
        return "dtype"
    return "shape" if before[1] != after[1] else "layout"


def _dtypes_and_shapes(inputs: str | None) -> tuple[list[str], list[str]] | None:
    """Dtypes and shapes of inputs in the format of an account (``float32[8,96] strided, int64[4]``).

    None for the profiler's own format, which lacks dtypes and layouts and is the fallback.
    """
    if not inputs or inputs.startswith("["):
        return None
    words = [word.partition("[") for word in inputs.split(", ")]
    return [dtype for dtype, _, _ in words], [rest.partition("]")[0] for _, _, rest in words]
