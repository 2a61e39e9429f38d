"""Exact counters, first: no noise, so any worsening beyond the tolerance counts and carries the name of the op."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import COPIES, FRAMEWORK_OPS, LOW_PRECISION_OPS
from perfgate.document.alignment import TimedRow
from perfgate.document.decision import Comparison, Method, Outcome, Part, Policy
from perfgate.document.run import CounterSet, CounterSite, OpCount, RunDocument
from perfgate.judging.gate.policy import tolerance
from perfgate.judging.gate.rounding import rounded
from perfgate.judging.gate.sites import grown_sites

MAX_PARTS = 12
_NOTHING = OpCount(op="", count=0)
_COPY_METRICS = (COPIES, "counters.noncontiguous_copies")
# What follows the name of an operator that computes in full precision again.
FULL_PRECISION = " (full precision)"
# What the sites of a counter count, where it is not the operator's own calls.
_SITE_WORDS = {"memory.kept": "kept", "counters.repeat_saves": "saved"}
_REASONS = {
    "counters.repeat_saves": "same-input caching: a call on an input it has just seen skips operators, which a call on a new "
    "input never does",
}


def compare_counters(base: RunDocument, head: RunDocument, policy: Policy) -> list[Comparison]:
    """Compare every counter of every shape, then the ops whose count changed."""
    bases = {(counters.workload, counters.shape): counters for counters in base.counters}
    checked = {(check.workload, check.shape) for check in head.correctness if check.status == "passed"}
    comparisons: list[Comparison] = []
    for counters in head.counters:
        key = (counters.workload, counters.shape)
        if key in bases:
            code = {site.code for site in bases[key].sites if site.code}
            traced = [account for account in base.accounts if (account.workload, account.shape) == key]
            code |= {row.code for account in traced for row in account.rows if row.code}
            comparisons += _compare_set(bases[key], counters, policy, checked=key in checked, base_code=code)
    return comparisons


def _compare_set(
    base: CounterSet, head: CounterSet, policy: Policy, *, checked: bool, base_code: Collection[str]
) -> Iterator[Comparison]:
    for name in sorted(base.values.keys() | head.values.keys()):
        if name not in base.values or name not in head.values:
            yield _one_sided(base, head, name)
        elif name == LOW_PRECISION_OPS:
            yield _compare_precision(base, head, base_code, checked=checked)
        else:
            yield _compare_counter(base, head, name, policy, base_code)
    yield from _compare_ops(base, head, base_code)


def _one_sided(base: CounterSet, head: CounterSet, name: str) -> Comparison:
    """A counter one side does not have, as the graph breaks of a side that compiles nothing."""
    side = "base" if name in base.values else "head"
    return _comparison(
        base,
        name,
        base.values.get(name),
        head.values.get(name),
        outcome="not_comparable",
        gating=False,
        allowed=None,
        reason=f"only the {side} has it",
    )


def _compare_counter(
    base: CounterSet, head: CounterSet, name: str, policy: Policy, base_code: Collection[str]
) -> Comparison:
    if name in base.unstable or name in head.unstable:
        return _compare_unsteady(base, head, name)
    if 0 in (base.repeats, head.repeats) and base.values[name] != head.values[name]:
        return _compare_whole(base, head, name, base_code)
    allowed = _allowed(base, name, policy)
    outcome = _outcome(
        base.values[name], head.values[name], allowed, slack=allowed if metric(name).allowed_more else 0.0
    )
    return _comparison(
        base,
        name,
        base.values[name],
        head.values[name],
        outcome=outcome,
        gating=True,
        allowed=allowed,
        reason=_REASONS.get(name, _counted_once(base, head)) if outcome == "regressed" else None,
        parts=_parts(base, head, name, base_code) if outcome in ("regressed", "improved") else [],
    )


def _compare_whole(base: CounterSet, head: CounterSet, name: str, base_code: Collection[str]) -> Comparison:
    """Counts of whole recordings are equal or prove nothing: one of them may hold more calls than the other."""
    return _comparison(
        base,
        name,
        base.values[name],
        head.values[name],
        outcome="inconclusive",
        gating=True,
        allowed=None,
        reason="counted over whole recordings, which mark no steps: one may hold more iterations than the other",
        parts=_parts(base, head, name, base_code),
    )


def _counted_once(base: CounterSet, head: CounterSet) -> str | None:
    """A recording may hold a single step: its counts are compared, and nothing shows that they repeat."""
    sides = [side for side, counters in (("base", base), ("head", head)) if counters.repeats == 1]
    return f"counted in a single step of {' and '.join(sides)}, so nothing shows that it repeats" if sides else None


def _compare_unsteady(base: CounterSet, head: CounterSet, name: str) -> Comparison:
    """A count that repeated calls disagree about is not exact; where only the head's do, the change made it so."""
    only_head = name not in base.unstable
    reason = (
        "repeated calls of the head give different counts, those of the base did not"
        if only_head
        else "the count differs between repeated calls of the same code, so it is not exact here"
    )
    return _comparison(
        base,
        name,
        base.values[name],
        head.values[name],
        outcome="inconclusive" if only_head else "not_comparable",
        gating=False,
        allowed=None,
        reason=reason,
    )


def _allowed(base: CounterSet, name: str, policy: Policy) -> float:
    """Return by what share of the base a counter may grow."""
    allowed = tolerance(policy, name, base.workload, base.shape)
    return max(allowed, metric(name).allowed_more / max(base.values[name], 1))


def _outcome(base: float, head: float, allowed: float, *, slack: float = 0.0) -> Outcome:
    """Return what became of a counter; less is better, from a share of ``slack`` less on."""
    if head > base * (1 + allowed):
        return "regressed"
    return "improved" if head < base * (1 - slack) else "unchanged"


def _compare_precision(base: CounterSet, head: CounterSet, base_code: Collection[str], *, checked: bool) -> Comparison:
    """More low-precision ops are suspect unless the workload's own check accepts what they compute; they never fail.

    Half precision is as often the purpose of a change as its accident, and only the workload knows which digits matter.
    Operators that fell back to full precision explain a slower call; the times say whether it is slower.
    """
    before, after = base.values[LOW_PRECISION_OPS], head.values[LOW_PRECISION_OPS]
    if dropped := _dropped_precision(base, head):
        return _comparison(
            base,
            LOW_PRECISION_OPS,
            before,
            after,
            outcome="regressed",
            gating=False,
            allowed=None,
            reason=f"{_number_of(dropped)} more operators a call compute in full precision{_at_first(dropped)}, in lower "
            "precision before",
            parts=dropped[:MAX_PARTS],
        )
    more = after - before
    reason, parts = None, _parts(base, head, LOW_PRECISION_OPS, base_code) if more > 0 else []
    if more > 0:
        computed = f"{more} more operators a call compute below 32-bit floating point{_at_first(parts)}"
        reason = (
            f"{computed}; the workload's check accepts the output"
            if checked
            else f"{computed} and no check looks at it"
        )
    return _comparison(
        base,
        LOW_PRECISION_OPS,
        before,
        after,
        outcome="inconclusive" if more > 0 and not checked else "unchanged",
        gating=False,
        allowed=None,
        reason=reason,
        parts=parts,
        method="check",
    )


def _dropped_precision(base: CounterSet, head: CounterSet) -> list[Part]:
    """Return the operators that ran in low precision on the base and run in full on the head, as after a dropped autocast.

    An operator that is no longer there at all has lost nothing. The line is the one that asked for low precision.
    """
    low_before, low_after = _sites(base, LOW_PRECISION_OPS), _sites(head, LOW_PRECISION_OPS)
    all_before, all_after = _by_op(base), _by_op(head)
    parts = []
    for name in sorted(low_before):
        before, after = low_before[name], low_after.get(name, [])
        full_before = max(0, all_before.get(name, _NOTHING).count - _total(before))
        full_after = max(0, all_after.get(name, _NOTHING).count - _total(after))
        dropped = min(_total(before) - _total(after), full_after - full_before)
        if dropped > 0:
            asked = grown_sites(map(_row, after), map(_row, before), frozenset())
            line = asked[0].line if asked else _largest_line(before)
            parts.append(Part(name=name + FULL_PRECISION, base=full_before, head=full_before + dropped, line=line))
    return sorted(parts, key=lambda part: (part.base - part.head, part.name))


def _total(sites: Iterable[CounterSite]) -> int:
    return sum(site.count for site in sites)


def _number_of(parts: Iterable[Part]) -> str:
    return f"{sum(part.head - part.base for part in parts):g}"


def _at_first(parts: list[Part]) -> str:
    return f" ({parts[0].name} at {parts[0].line})" if parts and parts[0].line else ""


def _compare_ops(base: CounterSet, head: CounterSet, base_code: Collection[str]) -> Iterator[Comparison]:
    """Ops by name inform and explain; they do not fail the gate, for one op may rightly replace another.

    Views are left to the run documents: they launch nothing.
    """
    if FRAMEWORK_OPS in {*base.unstable, *head.unstable} or 0 in (base.repeats, head.repeats):
        return
    before, after = _by_op(base), _by_op(head)
    unsteady = {*base.unstable, *head.unstable, *_counted_on_one_side(base, head)}
    parts = {part.name: part for part in _all_parts(base, head, FRAMEWORK_OPS, base_code)}
    for op in sorted(before.keys() | after.keys()):
        old, new = before.get(op, _NOTHING), after.get(op, _NOTHING)
        if old.count == new.count or old.view or new.view or f"ops.count:{op}" in unsteady:
            continue
        yield _comparison(
            base,
            f"ops.count:{op}",
            old.count,
            new.count,
            outcome=_outcome(old.count, new.count, 0.0),
            gating=False,
            allowed=0.0,
            parts=[parts[op]] if op in parts else [],
        )


def _counted_on_one_side(base: CounterSet, head: CounterSet) -> set[str]:
    """Return the ops of which one side had nothing to count: copies, where its recording has no timeline."""
    one_sided = base.values.keys() ^ head.values.keys()
    sites = [*base.sites, *head.sites]
    seen = {site.name for site in sites if site.metric not in one_sided}
    return {f"ops.count:{site.name}" for site in sites if site.metric in one_sided and site.name not in seen}


def _comparison(
    counters: CounterSet,
    name: str,
    base: float | None,
    head: float | None,
    *,
    outcome: Outcome,
    gating: bool,
    allowed: float | None,
    reason: str | None = None,
    parts: list[Part] | None = None,
    method: Method = "exact",
) -> Comparison:
    described = metric(name)
    return Comparison(
        workload=counters.workload,
        shape=counters.shape,
        metric=name,
        unit=described.unit,
        better=described.better,
        method=method,
        outcome=outcome,
        gating=gating,
        base=base,
        head=head,
        delta=rounded(head / base - 1) if base and head is not None else None,
        tolerance=allowed,
        reason=reason,
        parts=parts or [],
    )


def _parts(base: CounterSet, head: CounterSet, name: str, base_code: Collection[str]) -> list[Part]:
    """Return the largest changes underneath a counter."""
    return _all_parts(base, head, name, base_code)[:MAX_PARTS]


def _all_parts(base: CounterSet, head: CounterSet, name: str, base_code: Collection[str]) -> list[Part]:
    before, after = _sites(base, name), _sites(head, name)
    parts = [_part(before.get(key, []), after.get(key, []), name, base_code) for key in before.keys() | after.keys()]
    changed = [part for part in parts if part.base != part.head]
    return sorted(changed, key=lambda part: (-abs(part.head - part.base), part.name))


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


def _part(before: list[CounterSite], after: list[CounterSite], metric: str, base_code: Collection[str]) -> Part:
    name = (after or before)[0].name
    word = _SITE_WORDS.get(metric)
    sites = grown_sites(map(_row, before), map(_row, after), base_code)
    return Part(
        name=f"{name} ({word})" if word else name,
        base=_total(before),
        head=_total(after),
        line=sites[0].line if sites else _largest_line(after or before),
        sites=sites,
    )


def _row(site: CounterSite) -> TimedRow:
    return TimedRow(op=site.name, time=site.count, count=site.count, shape=site.tensor, line=site.line, code=site.code)


def _largest_line(sites: Iterable[CounterSite]) -> str | None:
    """Return the line where most of a counter comes from; of equal ones the first."""
    return max(sites, key=lambda site: site.count).line


def _by_op(counters: CounterSet) -> dict[str, OpCount]:
    return {op.op: op for op in counters.ops}
