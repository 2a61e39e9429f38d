"""Exact counters, first: no noise, so any worsening beyond the tolerance counts and carries the name of the op."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import COPIES, FRAMEWORK_OPS, LOW_PRECISION_OPS
from perfgate.document.alignment import TimedRow
from perfgate.document.decision import Comparison, Outcome, Part, Policy
from perfgate.document.message import Message
from perfgate.document.run import CounterSet, CounterSite, OpCount, RunDocument
from perfgate.judging.gate.comparison import Place, comparison, relative_change, rounded
from perfgate.judging.gate.operator_counts import grown_sites
from perfgate.judging.gate.policy import tolerance

MAX_PARTS = 12
# What follows the name of an operator that computes in full precision again.
FULL_PRECISION = " (full precision)"
_ABSENT = OpCount(op="", count=0)
_COPY_METRICS = (COPIES, "counters.noncontiguous_copies")
# What the sites of a counter count, where it is not the operator's own calls.
_SITE_WORDS = {"memory.kept": "kept", "counters.repeat_saves": "saved"}
_REASONS = {
    "counters.repeat_saves": Message("gate.same-input-caching"),
}


def compare_counters(base: RunDocument, head: RunDocument, policy: Policy) -> list[Comparison]:
    """Compare every counter of every shape, then the ops whose count changed."""
    bases = {(counters.workload, counters.shape): counters for counters in base.counters}
    checked = {(check.workload, check.shape) for check in head.correctness if check.status == "passed"}
    comparisons: list[Comparison] = []
    for counters in head.counters:
        place = Place(counters.workload, counters.shape)
        if place in bases:
            code = {site.code for site in bases[place].sites if site.code}
            accounts = [account for account in base.accounts if (account.workload, account.shape) == place]
            code |= {row.code for account in accounts for row in account.rows if row.code}
            counted = _Counters(place, bases[place], counters, policy, code, checked=place in checked)
            comparisons += counted.comparisons()
    return comparisons


class _Counters:
    """The counters of one shape on both sides; ``base_code`` is the text of every line of the base that is known."""

    def __init__(
        self,
        place: Place,
        base: CounterSet,
        head: CounterSet,
        policy: Policy,
        base_code: Collection[str],
        *,
        checked: bool,
    ) -> None:
        self._place = place
        self._base = base
        self._head = head
        self._policy = policy
        self._base_code = base_code
        self._checked = checked

    def comparisons(self) -> Iterator[Comparison]:
        for name in sorted(self._base.values.keys() | self._head.values.keys()):
            if name not in self._base.values or name not in self._head.values:
                # As the graph breaks of a side that compiles nothing.
                side = "base" if name in self._base.values else "head"
                yield self._comparison(name, "not_comparable", reason=Message("gate.only-one-side", {"side": side}))
            elif name == LOW_PRECISION_OPS:
                yield self._compare_precision()
            elif name in self._base.unstable or name in self._head.unstable:
                yield self._compare_unstable(name)
            elif 0 in (self._base.repeats, self._head.repeats) and self._base.values[name] != self._head.values[name]:
                # Whole recordings may hold different numbers of calls, so only equal counts prove something.
                reason = Message("gate.whole-recordings")
                yield self._comparison(name, "inconclusive", gating=True, reason=reason, parts=self._parts(name))
            else:
                yield self._compare_exact(name)
        yield from self._compare_ops()

    def _compare_exact(self, name: str) -> Comparison:
        before, after = self._base.values[name], self._head.values[name]
        allowed_more = metric(name).allowed_more
        allowed = max(tolerance(self._policy, name, *self._place), allowed_more / max(before, 1))
        outcome = _outcome(before, after, allowed, slack=allowed if allowed_more else 0.0)
        return self._comparison(
            name,
            outcome,
            gating=True,
            allowed=allowed,
            reason=_REASONS.get(name, self._single_step()) if outcome == "regressed" else None,
            parts=self._parts(name) if outcome in ("regressed", "improved") else [],
        )

    def _single_step(self) -> Message | None:
        """Say where a recording holds a single step: its counts are compared, and nothing shows that they repeat."""
        sides = [side for side, counters in (("base", self._base), ("head", self._head)) if counters.repeats == 1]
        if len(sides) == 1:
            return Message("gate.counted-once", {"side": sides[0]})
        return Message("gate.both-counted-once") if sides else None

    def _compare_unstable(self, name: str) -> Comparison:
        """A count that repeated calls disagree about is not exact; where only the head's do, the change made it so."""
        if name in self._base.unstable:
            return self._comparison(name, "not_comparable", reason=Message("gate.unstable"))
        return self._comparison(name, "inconclusive", reason=Message("gate.unstable-in-head"))

    def _compare_precision(self) -> Comparison:
        """More low-precision ops are suspect unless the workload's own check accepts what they compute; they never fail.

        Half precision is as often the purpose of a change as its accident, and only the workload knows which digits matter.
        Operators that fell back to full precision explain a slower call; the times say whether it is slower.
        """
        if dropped := self._dropped_precision():
            number = rounded(sum(part.head - part.base for part in dropped))
            reason = _with_first_line("gate.full-precision", dropped, number)
            return self._comparison(LOW_PRECISION_OPS, "regressed", reason=reason, parts=dropped[:MAX_PARTS])
        more = self._head.values[LOW_PRECISION_OPS] - self._base.values[LOW_PRECISION_OPS]
        if more <= 0:
            return self._comparison(LOW_PRECISION_OPS, "unchanged", by_check=True)
        parts = self._parts(LOW_PRECISION_OPS)
        computed = _with_first_line("gate.low-precision", parts, more)
        reason = Message("gate.check-accepts" if self._checked else "gate.check-absent", {"computed": computed})
        outcome: Outcome = "unchanged" if self._checked else "inconclusive"
        return self._comparison(LOW_PRECISION_OPS, outcome, reason=reason, parts=parts, by_check=True)

    def _dropped_precision(self) -> list[Part]:
        """The operators that ran in low precision on the base and run in full on the head, as after a dropped autocast.

        An operator that is no longer there at all has lost nothing. The line is the one that asked for low precision.
        """
        low_before, low_after = _sites(self._base, LOW_PRECISION_OPS), _sites(self._head, LOW_PRECISION_OPS)
        all_before, all_after = _by_op(self._base), _by_op(self._head)
        parts = []
        for name in sorted(low_before):
            before, after = low_before[name], low_after.get(name, [])
            full_before = max(0, all_before.get(name, _ABSENT).count - _total(before))
            full_after = max(0, all_after.get(name, _ABSENT).count - _total(after))
            dropped = min(_total(before) - _total(after), full_after - full_before)
            if dropped > 0:
                sites = grown_sites(map(_row, after), map(_row, before), frozenset())
                line = sites[0].line if sites else _largest_line(before)
                parts.append(Part(name=name + FULL_PRECISION, base=full_before, head=full_before + dropped, line=line))
        return sorted(parts, key=lambda part: (part.base - part.head, part.name))

    def _compare_ops(self) -> Iterator[Comparison]:
        """Ops by name inform and explain; they do not fail the gate, for one op may rightly replace another.

        Views are left to the run documents: they launch nothing.
        """
        unstable = {*self._base.unstable, *self._head.unstable}
        if FRAMEWORK_OPS in unstable or 0 in (self._base.repeats, self._head.repeats):
            return
        before, after = _by_op(self._base), _by_op(self._head)
        parts = {part.name: part for part in self._all_parts(FRAMEWORK_OPS)}
        left_out = unstable | self._ops_counted_on_one_side()
        for op in sorted(before.keys() | after.keys()):
            old, new = before.get(op, _ABSENT), after.get(op, _ABSENT)
            name = f"ops.count:{op}"
            if old.count != new.count and not (old.view or new.view or name in left_out):
                yield comparison(
                    self._place,
                    name,
                    "exact",
                    _outcome(old.count, new.count, 0.0),
                    gating=False,
                    base=old.count,
                    head=new.count,
                    delta=relative_change(old.count, new.count),
                    tolerance=0.0,
                    parts=[parts[op]] if op in parts else [],
                )

    def _ops_counted_on_one_side(self) -> set[str]:
        """The ops of which one side had nothing to count: copies, where its recording has no timeline."""
        one_sided = self._base.values.keys() ^ self._head.values.keys()
        sites = [*self._base.sites, *self._head.sites]
        on_both = {site.name for site in sites if site.metric not in one_sided}
        return {f"ops.count:{site.name}" for site in sites if site.metric in one_sided and site.name not in on_both}

    def _parts(self, name: str) -> list[Part]:
        return self._all_parts(name)[:MAX_PARTS]

    def _all_parts(self, name: str) -> list[Part]:
        """What a counter is made of and changed, the largest change first."""
        before, after = _sites(self._base, name), _sites(self._head, name)
        parts = [self._part(before.get(key, []), after.get(key, []), name) for key in before.keys() | after.keys()]
        changed = [part for part in parts if part.base != part.head]
        return sorted(changed, key=lambda part: (-abs(part.head - part.base), part.name))

    def _part(self, before: list[CounterSite], after: list[CounterSite], metric: str) -> Part:
        name = (after or before)[0].name
        word = _SITE_WORDS.get(metric)
        sites = grown_sites(map(_row, before), map(_row, after), self._base_code)
        return Part(
            name=f"{name} ({word})" if word else name,
            base=_total(before),
            head=_total(after),
            line=sites[0].line if sites else _largest_line(after or before),
            sites=sites,
        )

    def _comparison(
        self,
        name: str,
        outcome: Outcome,
        *,
        gating: bool = False,
        allowed: float | None = None,
        reason: Message | None = None,
        parts: list[Part] | None = None,
        by_check: bool = False,
    ) -> Comparison:
        before, after = self._base.values.get(name), self._head.values.get(name)
        return comparison(
            self._place,
            name,
            "check" if by_check else "exact",
            outcome,
            gating=gating,
            base=before,
            head=after,
            delta=relative_change(before, after),
            tolerance=allowed,
            reason=reason,
            parts=parts or [],
        )


def _outcome(base: float, head: float, allowed: float, *, slack: float = 0.0) -> Outcome:
    """What became of a counter of which less is better, from a share of ``slack`` less on."""
    if head > base * (1 + allowed):
        return "regressed"
    return "improved" if head < base * (1 - slack) else "unchanged"


def _with_first_line(code: str, parts: list[Part], number: float) -> Message:
    """How many more operators, with the place of the first where its line is known."""
    if parts and parts[0].line:
        return Message(f"{code}-at", {"number": number, "op": parts[0].name, "line": parts[0].line})
    return Message(code, {"number": number})


def _by_op(counters: CounterSet) -> dict[str, OpCount]:
    return {op.op: op for op in counters.ops}


def _sites(counters: CounterSet, metric: str) -> dict[str, list[CounterSite]]:
    sites: dict[str, list[CounterSite]] = {}
    for site in counters.sites or _sites_of_ops(counters.ops):
        if site.metric == metric:
            sites.setdefault(site.name, []).append(site)
    return sites


def _sites_of_ops(ops: Iterable[OpCount]) -> Iterator[CounterSite]:
    """A document may say of its operators only how often they ran and from which line most often."""
    for op in ops:
        if op.view:
            continue
        yield CounterSite(metric=FRAMEWORK_OPS, name=op.op, count=op.count, line=op.line)
        if op.copy_bytes:
            yield CounterSite(metric="counters.copy_bytes", name=op.op, count=op.copy_bytes, line=op.line)
            for name in _COPY_METRICS:
                yield CounterSite(metric=name, name=op.op, count=op.count, line=op.line)


def _total(sites: Iterable[CounterSite]) -> int:
    return sum(site.count for site in sites)


def _row(site: CounterSite) -> TimedRow:
    return TimedRow(op=site.name, time=site.count, count=site.count, shape=site.tensor, line=site.line, code=site.code)


def _largest_line(sites: Iterable[CounterSite]) -> str | None:
    """The line where most of a counter comes from; of equal ones the first."""
    return max(sites, key=lambda site: site.count).line
