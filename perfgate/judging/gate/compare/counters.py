"""Exact counters and operator counts: without noise, any worsening counts, and names its operator and line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from perfgate.catalogue.lookup import is_known, metric
from perfgate.catalogue.names import (
    AUTOGRAD_BEGINS,
    AUTOGRAD_OPS,
    BLOCKING_TRANSFERS,
    DEFERRED_OPS,
    FLOPS,
    FRAMEWORK_OPS,
    LOADERS_IN_PROCESS,
    LOW_PRECISION_OPS,
    NO_GRAD_OPS,
    TRAINING_MODULES,
    UNBLOCKED_TRANSFERS,
)
from perfgate.document.alignment import AlignedRow, TimedRow, align
from perfgate.document.comparison import Checked, Comparison, Exact, Outcome
from perfgate.document.decision import Policy
from perfgate.document.explanation import Aspect, OperatorDelta, Part, Replacement
from perfgate.document.lines import split_line
from perfgate.document.message import Message
from perfgate.document.run import CallRow, CounterSet, CounterSite, OpCount, OperatorRow
from perfgate.judging.gate.compare.comparison import exact
from perfgate.judging.gate.evidence.index import Evidence, count_of
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import tolerance
from perfgate.judging.gate.evidence.values import rounded

MAX_PARTS = 12
# How many times wider than the ranges of varying counts the gap between them must be.
RANGES_APART = 2
# The share of the operators that autograd records newly which must have run before.
MOST_RECORDED = 0.5
_ABSENT = OpCount(op="", count=0)
# The aspect that the sites of a counter count, if it is not the operator's own calls.
_ASPECTS: dict[str, Aspect] = {
    "memory.kept": "kept",
    "counters.repeat_saves": "saved",
    DEFERRED_OPS: "deferred",
    TRAINING_MODULES: "training",
    LOADERS_IN_PROCESS: "without workers",
    BLOCKING_TRANSFERS: "blocking",
}
# A site by counter, name and line of code, which both sides share.
_Varying = tuple[str, str, str | None]
# How many counts that vary a note names.
_NAMED_COUNTS = 5
_OPERATOR = "ops.count:"
_COUNTED = ("counters.", "memory.", _OPERATOR)
# A call that runs none of them any more may not have computed its output.
_PROOFS_OF_WORK = (FRAMEWORK_OPS, FLOPS)
_REASONS = {"counters.repeat_saves": Message("gate.same-input-caching")}


def compare_counters(evidence: Evidence, policy: Policy) -> list[Exact | Checked]:
    checked = {place for place, check in evidence.head.checks.items() if check.status == "passed"}
    comparisons: list[Exact | Checked] = []
    for place, head in evidence.head.counters.items():
        if base := evidence.base.counters.get(place):
            account = evidence.base.accounts.get(place)
            code = {entry.code for entry in (*base.sites, *(account.rows if account else ())) if entry.code}
            comparisons += _Counters(place, base, head, policy, code, place in checked).comparisons()
    return comparisons


@dataclass(frozen=True)
class _Counters:
    """The counters of one shape on both sides; ``base_code`` is the text of every known line of the base."""

    place: ShapePlace
    base: CounterSet
    head: CounterSet
    policy: Policy
    base_code: Collection[str]
    # Whether the workload's own check accepted the head's output.
    checked: bool

    def comparisons(self) -> Iterator[Exact | Checked]:
        for name in sorted(self.base.values.keys() | self.head.values.keys()):
            if name not in self.base.values or name not in self.head.values:
                # For example the graph breaks of a side that compiles nothing.
                side = "base" if name in self.base.values else "head"
                yield self._comparison(name, "not_comparable", reason=Message("gate.only-one-side", {"side": side}))
            elif not is_known(name):
                # Of a newer perfgate: equal counts hide nothing; for others the better direction is unknown.
                differs = self.base.values[name] != self.head.values[name]
                outcome: Outcome = "inconclusive" if differs else "not_comparable"
                yield self._comparison(name, outcome, gating=differs, reason=Message("gate.unknown-metric"))
            elif name == LOW_PRECISION_OPS:
                yield self._compare_precision()
            elif name == AUTOGRAD_OPS and name not in (*self.base.unstable, *self.head.unstable):
                yield self._compare_autograd()
            elif name == BLOCKING_TRANSFERS and self._lets_the_host_go_on():
                yield self._comparison(name, "unchanged", gating=True, allowed=0.0)
            elif self._has_nothing_left(name):
                yield self._nothing_left(name)
            elif name in self.base.unstable or name in self.head.unstable:
                yield self._compare_outside(name) or self._compare_ranges(name)
            elif 0 in (self.base.repeats, self.head.repeats) and self.base.values[name] != self.head.values[name]:
                # Whole recordings may hold different numbers of calls, so only equal counts prove something.
                reason = Message("gate.whole-recordings")
                yield self._comparison(name, "inconclusive", gating=True, reason=reason, parts=self._parts(name))
            else:
                yield self._compare_exact(name)
        yield from self._compare_ops()

    def _compare_exact(self, name: str) -> Exact:
        before, after = self.base.values[name], self.head.values[name]
        allowed, allowed_more = tolerance(self.policy, name, *self.place), metric(name).allowed_more
        outcome = _outcome(before, after, allowed, allowed_more)
        return self._comparison(
            name,
            outcome,
            gating=True,
            allowed=max(allowed, allowed_more / max(before, 1)),
            reason=_REASONS.get(name, self._single_step()) if outcome == "regressed" else None,
            parts=self._parts(name) if outcome in ("regressed", "improved") else [],
        )

    def _compare_outside(self, name: str) -> Exact | None:
        """Compare the part of a count at the places where it differs neither between calls nor between processes.

        None if that part is the same on both sides, or unknown because the places do not add up to the count.
        """
        if not (self._is_located(self.base, name) and self._is_located(self.head, name)):
            return None
        before, after = (self._outside(side, name) for side in (self.base, self.head))
        allowed, allowed_more = tolerance(self.policy, name, *self.place), metric(name).allowed_more
        outcome = _outcome(before, after, allowed, allowed_more)
        if outcome == "unchanged":
            return None
        return exact(
            self.place,
            name,
            outcome,
            gating=True,
            base=before,
            head=after,
            allowed=max(allowed, allowed_more / max(before, 1)),
            reason=Message("gate.outside-varying"),
            parts=self._parts(name)[:MAX_PARTS],
        )

    def _is_located(self, side: CounterSet, name: str) -> bool:
        """Whether the places of a count add up to it, and some of them vary if it does."""
        sites = [site for site in side.sites if site.metric == name]
        varies = name not in side.unstable or any(map(self._varies, sites))
        return varies and _total(sites) == side.values[name]

    def _outside(self, side: CounterSet, name: str) -> int:
        return sum(_total(self._steady_sites(sites)) for sites in _sites(side, name).values())

    def _steady_sites(self, sites: Iterable[CounterSite]) -> list[CounterSite]:
        return [site for site in sites if not self._varies(site)]

    @cached_property
    def _varying(self) -> frozenset[_Varying]:
        """The places whose count differs between calls or processes of a side."""
        sites = [*self.base.sites, *self.head.sites]
        return frozenset((site.metric, site.name, _text(site)) for site in sites if site.between)

    def _varies(self, site: CounterSite) -> bool:
        """Whether a count differs at a place; of an operator with unknown places, at each of its lines."""
        if (site.metric, site.name, _text(site)) in self._varying:
            return True
        is_located = any(name == site.name for metric, name, _ in self._varying if metric == FRAMEWORK_OPS)
        return not is_located and f"ops.count:{site.name}" in self._unstable

    @cached_property
    def _unstable(self) -> frozenset[str]:
        return frozenset((*self.base.unstable, *self.head.unstable))

    def _compare_ranges(self, name: str) -> Exact:
        """Compare a count that differs between repeated calls: all calls of one side must lie beyond all of the other.

        With three calls a side, equal code does so once in 20 gates. If the base's own calls differ, the gap must also be wider
        than RANGES_APART times the wider range: less than once in 500, for normal, uniform and log-normal counts. What differs
        between processes is seen only in several of them, so the conductor counts a difference in five of each side.
        """
        if name in self.base.unstable:
            overlap = self._comparison(name, "not_comparable", reason=self._overlap(name))
        else:
            # The change made it waver.
            overlap = self._comparison(name, "inconclusive", reason=Message("gate.unstable-in-head"))
        before, after = (_range(counters, name) for counters in (self.base, self.head))
        if before is None or after is None:
            return overlap
        allowed, allowed_more = tolerance(self.policy, name, *self.place), metric(name).allowed_more
        gap = RANGES_APART * max(before[1] - before[0], after[1] - after[0]) if name in self.base.unstable else 0
        if _outcome(before[1], after[0], allowed, allowed_more) == "regressed" and after[0] - before[1] > gap:
            outcome: Outcome = "regressed"
            ends = before[1], after[0]
        elif _outcome(before[0], after[1], allowed, allowed_more) == "improved" and before[0] - after[1] > gap:
            outcome = "improved"
            ends = before[0], after[1]
        else:
            return overlap
        return exact(
            self.place,
            name,
            outcome,
            gating=True,
            base=ends[0],
            head=ends[1],
            allowed=max(allowed, allowed_more / max(before[1], 1)),
            reason=Message("gate.ranges-apart"),
            parts=self._parts(name, varying=True)[:MAX_PARTS],
        )

    def _overlap(self, name: str) -> Message:
        """A message for a count whose ranges on base and head are too close, with the ranges if they are known."""
        before, after = (_range(counters, name) for counters in (self.base, self.head))
        if before is None or after is None:
            return Message("gate.unstable")
        ends = {"least": before[0], "most": before[1], "head_least": after[0], "head_most": after[1]}
        return Message("gate.unstable-between", ends)

    def _has_nothing_left(self, name: str) -> bool:
        is_exact = name not in self.head.unstable and 0 not in (self.base.repeats, self.head.repeats)
        return name in _PROOFS_OF_WORK and is_exact and self.base.values[name] > self.head.values[name] == 0

    def _nothing_left(self, name: str) -> Exact | Checked:
        """A head without the work that the base does is no improvement: its output may not have been computed.

        Uncounted sources, such as a captured graph or a custom kernel, may also produce the output. The workload's check
        decides between the two: if it accepts the output, the loss warns; otherwise the gate cannot pass.
        """
        parts = self._parts(name)
        if self.checked:
            return self._checked(name, "inconclusive", reason=Message("gate.nothing-left-checked"), parts=parts)
        return self._comparison(name, "inconclusive", gating=True, reason=Message("gate.nothing-left"), parts=parts)

    def _single_step(self) -> Message | None:
        """A message for a recording of a single step: its counts are compared, and nothing shows that they repeat."""
        sides = [side for side, counters in (("base", self.base), ("head", self.head)) if counters.repeats == 1]
        if len(sides) == 1:
            return Message("gate.counted-once", {"side": sides[0]})
        return Message("gate.both-counted-once") if sides else None

    def _compare_precision(self) -> Exact | Checked:
        """More low-precision ops are suspect unless the workload's own check accepts the output; they never fail.

        Half precision is as often the purpose of a change as its accident, and only the workload knows which digits matter.
        Operators that fell back to full precision fail.
        """
        if dropped := self._dropped_precision():
            number = rounded(sum(part.head - part.base for part in dropped))
            reason = _with_first_line("gate.full-precision", dropped, number)
            return self._comparison(LOW_PRECISION_OPS, "regressed", gating=True, reason=reason, parts=dropped)
        most, least = _range(self.base, LOW_PRECISION_OPS), _range(self.head, LOW_PRECISION_OPS)
        if most is None or least is None:
            return self._comparison(LOW_PRECISION_OPS, "not_comparable", reason=self._overlap(LOW_PRECISION_OPS))
        more = least[0] - most[1]
        if more <= 0:
            return self._checked(LOW_PRECISION_OPS, "unchanged")
        parts = self._parts(LOW_PRECISION_OPS)
        computed = _with_first_line("gate.low-precision", parts, more)
        reason = Message("gate.check-accepts" if self.checked else "gate.check-absent", {"computed": computed})
        outcome: Outcome = "unchanged" if self.checked else "inconclusive"
        return self._checked(LOW_PRECISION_OPS, outcome, reason=reason, parts=parts)

    def _dropped_precision(self) -> list[Part]:
        """The operators that ran in low precision on the base and run in full on the head, as after a dropped autocast.

        An operator that is no longer there at all has lost nothing. The line is the one that asked for low precision.
        """
        low_before, low_after = _sites(self.base, LOW_PRECISION_OPS), _sites(self.head, LOW_PRECISION_OPS)
        all_before, all_after = _by_op(self.base), _by_op(self.head)
        parts = []
        for name in sorted(low_before):
            before, after = low_before[name], low_after.get(name, [])
            if f"ops.count:{name}" in self._unstable or any(map(self._varies, (*before, *after))):
                continue
            full_before = max(0, all_before.get(name, _ABSENT).count - _total(before))
            full_after = max(0, all_after.get(name, _ABSENT).count - _total(after))
            dropped = min(_total(before) - _total(after), full_after - full_before)
            if dropped > 0:
                sites = grown_sites(map(_row, after), map(_row, before), frozenset())
                line = sites[0].line if sites else _largest_line(before)
                parts.append(
                    Part(name=name, aspect="full precision", base=full_before, head=full_before + dropped, line=line)
                )
        return sorted(parts, key=lambda part: (part.base - part.head, part.name))

    def _left_a_region(self, names: Collection[str]) -> bool:
        """Whether fewer of these operators run in a region without gradients: it was lost, and not only a detach()."""
        before, after = _sites(self.base, NO_GRAD_OPS), _sites(self.head, NO_GRAD_OPS)
        return any(_total(after.get(name, [])) < _total(before.get(name, [])) for name in names)

    def _lets_the_host_go_on(self) -> bool:
        """Whether no request that lets the host go on was lost: one that may block is then another request."""
        return _total_of(UNBLOCKED_TRANSFERS, self.head) >= _total_of(UNBLOCKED_TRANSFERS, self.base)

    def _compare_autograd(self) -> Exact:
        """Regressed if autograd records operators that ran unrecorded on the base; operators that are new are no reason."""
        if any(_total_of(AUTOGRAD_OPS, side) != side.values[AUTOGRAD_OPS] for side in (self.base, self.head)):
            return self._compare_exact(AUTOGRAD_OPS)
        recorded = _newly_recorded(self.base, self.head)
        if not recorded:
            return self._comparison(AUTOGRAD_OPS, "unchanged", gating=True, allowed=0.0)
        grown = [part for part in self._parts(AUTOGRAD_OPS) if part.name in recorded and part.head > part.base]
        begins = next((site for site in self.head.sites if site.metric == AUTOGRAD_BEGINS), None)
        first = begins if begins and not self.base.values[AUTOGRAD_OPS] else next(iter(grown), None)
        part = Part(
            name=first.name if first else "",
            aspect="recorded" if not self.base.values[AUTOGRAD_OPS] or self._left_a_region(recorded) else "attached",
            base=self.base.values[AUTOGRAD_OPS],
            head=self.head.values[AUTOGRAD_OPS],
            line=first.line if first else None,
        )
        return self._comparison(AUTOGRAD_OPS, "regressed", gating=True, allowed=0.0, parts=[part])

    def _compare_ops(self) -> Iterator[Exact]:
        """Ops by name inform and explain; they do not fail the gate, for one op may rightly replace another.

        Views are left to the run documents: they launch nothing.
        """
        if 0 in (self.base.repeats, self.head.repeats):
            return
        before, after = _by_op(self.base), _by_op(self.head)
        parts = {part.name: part for part in self._parts(FRAMEWORK_OPS)}
        # The ops that one side could not count: copies, if its recording has no timeline.
        one_sided = self.base.values.keys() ^ self.head.values.keys()
        sites = [*self.base.sites, *self.head.sites]
        on_both = {site.name for site in sites if site.metric not in one_sided}
        left_out = self._unstable | {f"ops.count:{site.name}" for site in sites if site.name not in on_both}
        for op in sorted(before.keys() | after.keys()):
            old, new = before.get(op, _ABSENT), after.get(op, _ABSENT)
            name = f"ops.count:{op}"
            if old.count != new.count and not (old.view or new.view or name in left_out):
                yield exact(
                    self.place,
                    name,
                    _outcome(old.count, new.count, 0.0),
                    gating=False,
                    base=old.count,
                    head=new.count,
                    allowed=0.0,
                    parts=[parts[op]] if op in parts else [],
                )

    def _parts(self, name: str, *, varying: bool = False) -> list[Part]:
        """The parts of a counter that changed, the largest change first; places whose count varies only if ``varying``."""
        before, after = _sites(self.base, name), _sites(self.head, name)
        parts = []
        for key in before.keys() | after.keys():
            old, new = before.get(key, []), after.get(key, [])
            if not varying:
                old, new = self._steady_sites(old), self._steady_sites(new)
            if _total(old) != _total(new):
                parts.append(self._part(key, _ASPECTS.get(name), old, new))
        return sorted(parts, key=lambda part: (-abs(part.head - part.base), part.name))

    def _part(self, key: str, aspect: Aspect | None, old: Sequence[CounterSite], new: Sequence[CounterSite]) -> Part:
        """The change of a count at the places of one name, with the lines that grew."""
        grown = grown_sites(map(_row, old), map(_row, new), self.base_code)
        line = grown[0].line if grown else _largest_line(new or old)
        return Part(name=key, aspect=aspect, base=_total(old), head=_total(new), line=line, sites=grown)

    def _comparison(
        self,
        name: str,
        outcome: Outcome,
        *,
        gating: bool = False,
        allowed: float | None = None,
        reason: Message | None = None,
        parts: Sequence[Part] = (),
    ) -> Exact:
        return exact(
            self.place,
            name,
            outcome,
            gating=gating,
            base=self.base.values.get(name),
            head=self.head.values.get(name),
            allowed=allowed,
            reason=reason,
            parts=parts[:MAX_PARTS],
        )

    def _checked(
        self, name: str, outcome: Outcome, *, reason: Message | None = None, parts: Sequence[Part] = ()
    ) -> Checked:
        """A count that the workload's check of the output excuses, or would excuse."""
        entry = metric(name)
        return Checked(
            workload=self.place.workload,
            shape=self.place.shape,
            metric=name,
            unit=entry.unit,
            better=entry.better,
            outcome=outcome,
            gating=False,
            base=self.base.values[name],
            head=self.head.values[name],
            reason=reason,
            parts=list(parts[:MAX_PARTS]),
        )


def is_differing_count(compared: Comparison) -> bool:
    """Whether a count differs between the sides, or between processes of the head alone."""
    if not compared.metric.startswith(_COUNTED):
        return False
    wavers = compared.reason is not None and compared.reason.code == "gate.unstable-in-head"
    return wavers or (isinstance(compared, Exact) and compared.outcome in ("regressed", "improved"))


def notes_on_varying(evidence: Evidence) -> list[Message]:
    """A note for each workload with counts that differ between calls or processes of one side: they are compared by range."""
    varying: dict[str, dict[str, tuple[int, int]]] = {}
    for index in (evidence.base, evidence.head):
        for place, counters in index.counters.items():
            if counters.processes > 1:
                of_workload = varying.setdefault(place.workload, {})
                for name, ends in _wide_ranges(counters).items():
                    least, most = of_workload.get(name, ends)
                    of_workload[name] = min(least, ends[0]), max(most, ends[1])
    return [_note_on_varying(workload, ranges) for workload, ranges in varying.items() if ranges]


def _wide_ranges(counters: CounterSet) -> dict[str, tuple[int, int]]:
    """The ranges that are wider than what a count may grow by; those of single operators if no other count varies."""
    totals = {
        name: (least, most)
        for name, (least, most) in counters.ranges.items()
        if not name.startswith(_OPERATOR) and is_known(name) and most - least > metric(name).allowed_more
    }
    return totals or {name: ends for name, ends in counters.ranges.items() if name.startswith(_OPERATOR)}


def _note_on_varying(workload: str, ranges: dict[str, tuple[int, int]]) -> Message:
    listed = [f"{name} {least}–{most}" for name, (least, most) in sorted(ranges.items())]
    more = [f"… ({len(listed) - _NAMED_COUNTS})"] if len(listed) > _NAMED_COUNTS else []
    return Message("notes.counts-vary", {"workload": workload, "counts": [*listed[:_NAMED_COUNTS], *more]})


def _total_of(metric: str, counters: CounterSet) -> int:
    return _total(site for site in counters.sites if site.metric == metric)


def _newly_recorded(base: CounterSet, head: CounterSet) -> set[str]:
    """The operators that ran unrecorded on the base and are recorded now, if most that are recorded now are such.

    A few may also be recorded because they read other tensors.
    """
    recorded_before, recorded_after = _sites(base, AUTOGRAD_OPS), _sites(head, AUTOGRAD_OPS)
    all_before, all_after = _by_op(base), _by_op(head)
    moved: Counter[str] = Counter()
    for name, sites in recorded_after.items():
        before, after = _total(recorded_before.get(name, [])), _total(sites)
        unrecorded_before = all_before.get(name, _ABSENT).count - before
        unrecorded_after = all_after.get(name, _ABSENT).count - after
        moved[name] = min(after - before, unrecorded_before - unrecorded_after)
    more = head.values[AUTOGRAD_OPS] - base.values[AUTOGRAD_OPS]
    names = {name for name, count in moved.items() if count > 0}
    return names if sum(moved[name] for name in names) > MOST_RECORDED * more else set()


def _range(counters: CounterSet, name: str) -> tuple[int, int] | None:
    """The least and the most of a count; None if its calls differ by an unknown amount."""
    value = counters.values[name]
    return counters.ranges.get(name) if name in counters.unstable else (value, value)


def _outcome(base: float, head: float, allowed: float, allowed_more: float = 0.0) -> Outcome:
    """The outcome of a counter of which less is better; a difference of up to ``allowed_more`` leaves it unchanged."""
    if head > base * (1 + allowed) and head > base + allowed_more:
        return "regressed"
    return "improved" if head < base - allowed_more else "unchanged"


def _with_first_line(code: str, parts: list[Part], number: float) -> Message:
    if parts and parts[0].line:
        return Message(f"{code}-at", {"number": number, "op": parts[0].name, "line": parts[0].line})
    return Message(code, {"number": number})


def _by_op(counters: CounterSet) -> dict[str, OpCount]:
    return {op.op: op for op in counters.ops}


def _sites(counters: CounterSet, metric: str) -> dict[str, list[CounterSite]]:
    sites: dict[str, list[CounterSite]] = {}
    # A document may hold for its operators only their counts and the line that runs each most often.
    of_ops = (
        CounterSite(metric=FRAMEWORK_OPS, name=op.op, count=op.count, line=op.line)
        for op in counters.ops
        if not op.view
    )
    for site in counters.sites or of_ops:
        if site.metric == metric:
            sites.setdefault(site.name, []).append(site)
    return sites


def _total(sites: Iterable[CounterSite]) -> int:
    return sum(site.count for site in sites)


def _row(site: CounterSite) -> TimedRow:
    return TimedRow(op=site.name, time=site.count, count=site.count, shape=site.tensor, line=site.line, code=site.code)


def _text(site: CounterSite) -> str | None:
    """The code of a site, which both sides share, or the number of its line."""
    return site.code or site.line


def _largest_line(sites: Iterable[CounterSite]) -> str | None:
    """The line with the largest share of a counter; the first of equal ones."""
    return max(sites, key=lambda site: site.count).line


# A line by its file and its text.
_Code = tuple[str, str | None]
MAX_CHANGES = 10
MIN_SHARE = 0.002  # of a side's busy time; an op that runs more often for less than this explains nothing
MAX_SITES = 6


def operator_changes(evidence: Evidence) -> list[OperatorDelta]:
    """The operators that came, went or run more or less often, a few per shape.

    Each side was traced by itself, so the traced times show how much an operator weighs on its side, never how much more or
    less it takes: they only select and order the operators. Recordings that mark no calls are left out: their counts are not of
    one call. So are operators whose count differs between calls or processes of the same code.
    """
    before, after = evidence.base.operators, evidence.head.operators
    changes: list[OperatorDelta] = []
    for place in sorted((before.keys() & after.keys()) - evidence.unmarked):
        old, new = before[place], after[place]
        lines = evidence.head.operator_lines(place)
        steady = (old.keys() | new.keys()) - _varying_operators(evidence, place)
        weights = {op: _weight(old.get(op), new.get(op)) for op in steady}
        by_weight = sorted(weights, key=lambda op: (-weights[op], op))
        ops = [op for op in by_weight if weights[op] > MIN_SHARE or not (op in old and op in new)]
        changes += [
            OperatorDelta(
                workload=place.workload,
                shape=place.shape,
                op=op,
                base_count=rounded(count_of(old.get(op))),
                head_count=rounded(count_of(new.get(op))),
                line=lines.get(op),
            )
            for op in ops[:MAX_CHANGES]
        ]
    return changes


def replaced_operators(evidence: Evidence) -> list[Replacement]:
    """The operators that others replaced one for one, on the same line or among the edited lines of a file."""
    found: list[Replacement] = []
    for place, after in evidence.head.counters.items():
        old = evidence.base.counters.get(place)
        if old is not None and FRAMEWORK_OPS not in {*old.unstable, *after.unstable}:
            varying = _varying_operators(evidence, place)
            found += [one for one in _replacements(old, after) if not {one.before, one.after} & varying]
    return found[:MAX_CHANGES]


def _varying_operators(evidence: Evidence, place: ShapePlace) -> set[str]:
    """The operators whose count differs between calls or processes of a side."""
    names: list[str] = []
    for index in (evidence.base, evidence.head):
        if place in index.counters:
            names += index.counters[place].unstable
    return {name.removeprefix(_OPERATOR) for name in names if name.startswith(_OPERATOR)}


def _replacements(before: CounterSet, after: CounterSet) -> Iterator[Replacement]:
    common = {(_file(site), site.code) for site in before.sites} & {(_file(site), site.code) for site in after.sites}
    old, new = _ops_of_code(before, common), _ops_of_code(after, common)
    for at in old.keys() & new.keys():
        gone, came = old[at] - new[at], new[at] - old[at]
        if len(gone) == len(came) == 1 and [*gone.values()] == [*came.values()]:
            ((operator, count),) = came.items()
            lines = [s.line for s in _sites(after, FRAMEWORK_OPS)[operator] if _code(s, common) == at and s.line]
            yield Replacement(
                workload=after.workload,
                shape=after.shape,
                before=next(iter(gone)),
                after=operator,
                count=count,
                line=min(lines, key=lambda line: split_line(line)[1], default=None),
            )


def _ops_of_code(counters: CounterSet, common: Collection[_Code]) -> dict[_Code, Counter[str]]:
    """How often each line runs each operator. Lines missing on the other side count as one: edits move calls between them."""
    ops: defaultdict[_Code, Counter[str]] = defaultdict(Counter)
    for sites in _sites(counters, FRAMEWORK_OPS).values():
        for site in sites:
            if site.code:
                ops[_code(site, common)][site.name] += site.count
    return ops


def _code(site: CounterSite, common: Collection[_Code]) -> _Code:
    """File and text of a line, as its number changes with the lines above it; no text for a line that the other side lacks."""
    file = _file(site)
    return (file, site.code) if (file, site.code) in common else (file, None)


def _file(site: CounterSite) -> str:
    return (site.line or "").rpartition(":")[0]


def _weight(before: OperatorRow | None, after: OperatorRow | None) -> float:
    """The share of its side's time for runs that only one side has."""
    rows = [row for row in (before, after) if row is not None]
    more = abs(count_of(after) - count_of(before))
    return max(row.share for row in rows) * more / max(abs(row.count) for row in rows) if more else 0.0


# --- lines


def grown_sites(before: Iterable[TimedRow], after: Iterable[TimedRow], base_code: Collection[str]) -> list[Part]:
    """The lines of ``after`` with a higher count, the one to name first.

    The same code on both sides is the same line, whatever its number. A line of edited code replaces the line that was
    removed from there. ``base_code`` is the text of every known line of the base, whatever it runs there: a line that the base
    has too was not added by the change, though it may behave differently now. So new code comes before it, unless it adds less
    than half as much.
    """
    grown: list[tuple[TimedRow, float]] = []
    for pair in _aligned_by_code(_by_code(before), _by_code(after), base_code):
        if pair.head is not None:
            more = pair.head.count - (pair.base.count if pair.base else 0.0)
            grown += [(pair.head, more)] if more > 0 else []
    most = max((more for _, more in grown), default=0.0)

    def order(entry: tuple[TimedRow, float]) -> tuple[bool, float, str, int]:
        row, more = entry
        line = row.line or ""
        return row.code in base_code or more < most / 2, -more, *split_line(line)

    return [
        Part(line=row.line, base=rounded(row.count - more), head=rounded(row.count), tensor=row.shape)
        for row, more in sorted(grown, key=order)
        if row.line
    ][:MAX_SITES]


def _aligned_by_code(
    old: Mapping[str, Sequence[TimedRow]], new: Mapping[str, Sequence[TimedRow]], base_code: Collection[str]
) -> list[AlignedRow]:
    """The rows of both sides, line by line: by their code, and removed lines with the new ones in their place."""
    pairs: list[AlignedRow] = []
    removed: list[TimedRow] = []
    added: list[TimedRow] = []
    for code in old.keys() | new.keys():
        if code in old and code in new:
            pairs += align(old[code], new[code])
        elif code in old:
            removed += old[code]
        elif code in base_code:
            pairs += [AlignedRow(None, row) for row in new[code]]
        else:
            added += new[code]
    return pairs + list(align(removed, added))


def rows_by_line(rows: Iterable[CallRow]) -> list[TimedRow]:
    """One row for every line that runs an operator, whatever its inputs."""
    counts: dict[tuple[str, str | None, str | None], float] = defaultdict(float)
    for row in rows:
        counts[row.op, row.line, row.code] += row.count
    return [TimedRow(op, count, count, line=line, code=code) for (op, line, code), count in counts.items()]


def _by_code(rows: Iterable[TimedRow]) -> dict[str, list[TimedRow]]:
    groups: dict[str, list[TimedRow]] = defaultdict(list)
    for row in rows:
        groups[row.code or row.line or ""].append(row)
    return groups
