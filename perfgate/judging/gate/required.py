"""What a verdict needs, and what of that the documents lack: leaving evidence out must never improve a verdict.

What must be there is said by the trusted side (the base's configuration, main's stored run), by what each document declares,
and by the other document: both sides of a check are measured alike, so what one of them has the other must have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from perfgate.catalogue.lookup import METRICS, card
from perfgate.catalogue.names import (
    FRAMEWORK_OPS,
    LATENCY,
    LOW_PRECISION_OPS,
    P50,
    PREPROCESSING,
    PREPROCESSING_STAGES,
    SIGNATURE,
    SLA,
)
from perfgate.document.decision import HarnessChange, Missing, MissingSide, NamedBy, Policy
from perfgate.document.run import (
    CORRECTNESS,
    PAIRS_PER_ROUND,
    BlockColumns,
    CorrectnessResult,
    CounterSet,
    Replicate,
    RunDocument,
    Side,
    WorkloadRecord,
)
from perfgate.document.tolerances import judges_subroutines
from perfgate.judging.gate.budgets import bounds_with_lost_values
from perfgate.judging.gate.operators import untimed_subroutines
from perfgate.judging.gate.recorded import are_recordings

# What the conductor sees of every block, whatever the device. A column that the device or the kernel
# fills is held to the other blocks.
_ALWAYS_SEEN = ("seen_ns", "used_ns", "out_of_turn_ns", "waited_ns")
_REPORTED = ("run_delay_ns", "instructions", "throttled", "clock_share", "foreign_processes")
_SIDES: tuple[Side, ...] = ("base", "head")


@dataclass(frozen=True)
class Required:
    """What the trusted side says must have been measured; nothing where there is no trusted side.

    ``workloads`` are those of the base's configuration, ``aa_pairs`` its pairs of base against base. ``stored`` are the newest
    stored runs of main that measured a workload file of the base; of a workload that counts whose file is the very same.
    """

    workloads: tuple[str, ...] = ()
    aa_pairs: int = 0
    stored: tuple[RunDocument, ...] = ()


class _Documents(NamedTuple):
    base: RunDocument
    head: RunDocument

    def of(self, side: Side) -> RunDocument:
        return self.base if side == "base" else self.head


def missing_evidence(
    base: RunDocument,
    head: RunDocument,
    changes: Sequence[HarnessChange],
    required: Required,
    policy: Policy,
    *,
    timed: bool,
) -> list[Missing]:
    """Return what a verdict over these documents needs and they lack, by name.

    ``timed`` is False where the sides cannot be compared by time, which is said elsewhere. A workload that fails to load, or
    that the base cannot run, has its own word in the decision too.
    """
    both = _Documents(base, head)
    explained = _explained(both, changes)
    names = [name for name in _workloads(both, required) if name not in explained]
    return [entry for name in names for entry in _of_workload(both, name, required, policy, timed=timed)]


def _explained(both: _Documents, changes: Iterable[HarnessChange]) -> set[str]:
    failed = {workload.name for run in both for workload in run.workloads if workload.error}
    said = {change.workload for change in changes if change.kind == "not_comparable"}
    measured = {workload.name for run in both for workload in run.workloads}
    removed = {change.workload for change in changes if change.kind == "removed"} - measured
    return failed | said | removed


def _workloads(both: _Documents, required: Required) -> list[str]:
    """Return every workload that is asked for, declared, or of which anything was measured."""
    names = [*required.workloads]
    for run in both:
        names += [workload.name for workload in run.workloads]
        names += [replicate.workload for replicate in run.replicates]
        names += [counters.workload for counters in run.counters]
        names += [check.workload for check in run.correctness]
        names += [step.workload for step in run.steps]
    return list(dict.fromkeys(names))


def _of_workload(both: _Documents, name: str, required: Required, policy: Policy, *, timed: bool) -> Iterator[Missing]:
    unlisted = [side for side in _SIDES if all(workload.name != name for workload in both.of(side).workloads)]
    if unlisted:
        asked = name in required.workloads and len(unlisted) == len(_SIDES)
        yield Missing(workload=name, side=_sides(unlisted), named_by="configuration" if asked else "document")
        return
    stored = _stored(both, name, required)
    shapes = _shapes(both, name, stored)
    for shape in shapes:
        yield from _unlisted_shape(both, name, shape, stored)
    if timed and not are_recordings(*both):
        yield from _missing_pairs(both, name, shapes, stored)
        yield from _missing_twins(both.base, name, required)
        yield from _missing_columns(both, name)
        yield from _missing_settings(both, name)
        yield from _missing_subroutines(both, name, shapes, policy)
    yield from _missing_steps(both, name)
    yield from _missing_harness(both, name)
    yield from _missing_sla(both, name, stored)
    for shape in shapes:
        for bound in bounds_with_lost_values(*both, policy, name, shape):
            yield Missing(workload=name, shape=shape, metric=bound, side="head")
        yield from _missing_counters(both, name, shape, stored)
        yield from _missing_checks(both, name, shape, stored)


def _stored(both: _Documents, name: str, required: Required) -> RunDocument | None:
    """Return the newest stored run that measured this workload by the file that both sides were measured by."""
    files = {record.sha256 for run in both if (record := _record(run, name))}
    if are_recordings(*both) or len(files) > 1:
        return None
    for run in required.stored:
        record = _record(run, name)
        if record and record.error is None and record.sha256 in files:
            return run
    return None


def _record(run: RunDocument, name: str) -> WorkloadRecord | None:
    return next((workload for workload in run.workloads if workload.name == name), None)


def _sides(lacking: Sequence[Side]) -> MissingSide:
    return "both" if len(lacking) > 1 else lacking[0]


def _declared(run: RunDocument | None, name: str) -> list[str]:
    record = _record(run, name) if run else None
    return record.shapes if record else []


def _shapes(both: _Documents, name: str, stored: RunDocument | None) -> list[str]:
    shapes: list[str] = []
    for run in (*both, *([stored] if stored else [])):
        shapes += _declared(run, name)
    for run in both:
        shapes += [shape for one in run.replicates if one.workload == name for shape, _ in one.lanes]
        shapes += [counters.shape for counters in run.counters if counters.workload == name]
        shapes += [check.shape for check in run.correctness if check.workload == name]
    return list(dict.fromkeys(shapes))


def _unlisted_shape(both: _Documents, name: str, shape: str, stored: RunDocument | None) -> Iterator[Missing]:
    unlisted = [side for side in _SIDES if shape not in _declared(both.of(side), name)]
    if unlisted:
        by_store = shape in _declared(stored, name)
        yield Missing(workload=name, shape=shape, side=_sides(unlisted), named_by="store" if by_store else "document")


# --- pairs


def _missing_pairs(both: _Documents, name: str, shapes: Sequence[str], stored: RunDocument | None) -> Iterator[Missing]:
    """Yield the pairs that lack a member, and those whose members lack the blocks of a shape.

    Pairs are numbered as they run, base against base among them; each number is a pair that was measured or that failed.
    """
    members = _members(both, name)
    absent: dict[MissingSide, list[int]] = {}
    compared: dict[int, tuple[Replicate, Replicate]] = {}
    failed = {pair.pair for pair in both.head.failed_pairs if pair.workload == name}
    for pair in _numbers(members, failed):
        first, second, twin = (members.get((pair, role)) for role in _ROLES)
        if pair in failed and not (first or second or twin):
            continue
        if first and second and first.arm == "ab":
            compared[pair] = first, second
        elif not (first and twin and first.arm == "aa"):
            absent.setdefault(_absent_side(first, second, twin), []).append(pair)
    for side, pairs in absent.items():
        yield Missing(workload=name, metric=LATENCY, side=side, pairs=pairs)
    yield from _missing_lanes(name, shapes, compared, stored)


_Role = Literal["first", "head", "twin"]
_ROLES: tuple[_Role, ...] = ("first", "head", "twin")


def _members(both: _Documents, name: str) -> dict[tuple[int, _Role], Replicate]:
    """Return the members of pairs; a twin is the second member of a pair of base against base."""
    members: dict[tuple[int, _Role], Replicate] = {}
    for replicate in both.base.replicates:
        if replicate.workload == name:
            members[replicate.pair, "first" if replicate.member == "first" else "twin"] = replicate
    for replicate in both.head.replicates:
        if replicate.workload == name:
            members[replicate.pair, "head"] = replicate
    return members


def _numbers(members: Iterable[tuple[int, _Role]], failed: Collection[int]) -> Iterator[int]:
    """Yield the numbers of every round from its first pair to the last that left a trace."""
    last: dict[int, int] = {}
    for pair in (*(pair for pair, _ in members), *failed):
        number = pair // PAIRS_PER_ROUND
        last[number] = max(pair, last.get(number, 0))
    for number in sorted(last):
        yield from range(number * PAIRS_PER_ROUND, last[number] + 1)


def _absent_side(first: Replicate | None, second: Replicate | None, twin: Replicate | None) -> MissingSide:
    if first is None and second is None and twin is None:
        return "both"
    return "head" if first and first.arm == "ab" else "base"


def _missing_lanes(
    name: str,
    shapes: Sequence[str],
    compared: dict[int, tuple[Replicate, Replicate]],
    stored: RunDocument | None,
) -> Iterator[Missing]:
    preprocessed = {shape for members in compared.values() for member in members for shape in member.preprocess}
    stored_metrics = _timed_metrics(stored, name)
    if PREPROCESSING in stored_metrics:
        # The checklist times the preprocessing of one shape, the pairs that of all.
        preprocessed |= set(shapes)
    for metric, of in ((LATENCY, shapes), (PREPROCESSING, [shape for shape in shapes if shape in preprocessed])):
        for shape in of:
            lacking: dict[Side, list[int]] = {"base": [], "head": []}
            for pair, members in compared.items():
                for side, member in zip(_SIDES, members):
                    if shape not in (member.shapes if metric == LATENCY else member.preprocess):
                        lacking[side].append(pair)
            if not compared or all(len(pairs) == len(compared) for pairs in lacking.values()):
                named_by: NamedBy = "store" if metric in stored_metrics else "document"
                yield Missing(workload=name, shape=shape, metric=metric, side="both", named_by=named_by)
                continue
            for side, pairs in lacking.items():
                if pairs:
                    # Where no pair has it, its number says nothing.
                    some = pairs if len(pairs) < len(compared) else []
                    yield Missing(workload=name, shape=shape, metric=metric, side=side, pairs=some)


def _timed_metrics(stored: RunDocument | None, name: str) -> set[str]:
    """Return which lanes the checklist of the stored run timed: calls, and where the workload has some, preprocessing."""
    steps = [step for step in stored.steps if step.workload == name] if stored else []
    timed = {value.metric for step in steps for value in step.values if value.value is not None}
    lanes = ((LATENCY, P50), (PREPROCESSING, PREPROCESSING_STAGES))
    return {lane for lane, measured in lanes if measured in timed}


def _missing_twins(base: RunDocument, name: str, required: Required) -> Iterator[Missing]:
    """Yield that fewer pairs of base against base were measured than the base's configuration asks for."""
    twins = [one for one in base.replicates if one.workload == name and one.arm == "aa" and one.member == "second"]
    if len(twins) < required.aa_pairs:
        yield Missing(workload=name, metric="replicates.aa", side="base", named_by="configuration")


def _missing_columns(both: _Documents, name: str) -> Iterator[Missing]:
    lanes: dict[Side, list[tuple[str, BlockColumns]]] = {
        side: [lane for one in both.of(side).replicates if one.workload == name for lane in one.lanes]
        for side in _SIDES
    }
    every = [columns for side in _SIDES for _, columns in lanes[side]]
    needed = [*_ALWAYS_SEEN, *(column for column in _REPORTED if any(getattr(one, column) for one in every))]
    for column in needed:
        for side in _SIDES:
            for shape in dict.fromkeys(shape for shape, columns in lanes[side] if not getattr(columns, column)):
                yield Missing(workload=name, shape=shape, metric=column, side=side)


def _missing_subroutines(both: _Documents, name: str, shapes: Sequence[str], policy: Policy) -> Iterator[Missing]:
    """Yield the parts of a call that are judged and of which a pair lacks the time."""
    if not judges_subroutines(policy.tolerances):
        return
    for shape in shapes:
        lacking: dict[str, list[Side]] = {}
        for metric, side in untimed_subroutines(*both, policy, name, shape):
            lacking.setdefault(metric, []).append(side)
        for metric, sides in lacking.items():
            yield Missing(workload=name, shape=shape, metric=metric, side=_sides(sides))


def _missing_settings(both: _Documents, name: str) -> Iterator[Missing]:
    """Yield the settings that one member of a pair reports and another does not: they must be equal on both sides."""
    members = {side: [one for one in both.of(side).replicates if one.workload == name] for side in _SIDES}
    settings = sorted({key for side in _SIDES for one in members[side] for key in one.settings})
    for key in settings:
        for side in _SIDES:
            if any(key not in one.settings for one in members[side]):
                yield Missing(workload=name, metric=f"settings.{key}", side=side)


# --- what the checklist counts and checks


def _missing_steps(both: _Documents, name: str) -> Iterator[Missing]:
    for side in _SIDES:
        run = both.of(side)
        asked = {number for workload in run.workloads if workload.name == name for number in workload.steps}
        for number in sorted(asked - {step.number for step in run.steps if step.workload == name}):
            yield Missing(workload=name, metric=f"steps.{card(number).slug}", side=side)


def _missing_harness(both: _Documents, name: str) -> Iterator[Missing]:
    """Yield what the harnesses of the sides lack: what only the head has is new where the head's says so."""
    before, after = (next((one for one in run.harness if one.workload == name), None) for run in both)
    if before and not after:
        yield Missing(workload=name, metric="harness", side="head")
    if not after or name in after.added:
        return
    if not before:
        yield Missing(workload=name, metric="harness", side="base")
    elif before.error is None and after.error is None:
        new = {*(after.shapes.keys() - before.shapes.keys()), *(after.functions.keys() - before.functions.keys())}
        if before.sla_p99 is None and after.sla_p99 is not None:
            new.add("sla_p99")
        for entry in sorted(new - set(after.added)):
            yield Missing(workload=name, metric=f"harness.{entry}", side="base")


def _missing_sla(both: _Documents, name: str, stored: RunDocument | None) -> Iterator[Missing]:
    """Yield that a side does not say what the workload promises: its file does, and both sides are measured by one."""
    records = [record for run in (*both, stored) if run and (record := _record(run, name))]
    p99, rate = any(record.sla_p99 for record in records), any(record.sla_rate for record in records)
    lacking = [
        side
        for side, record in zip(_SIDES, records)
        if (p99 and record.sla_p99 is None) or (rate and record.sla_rate is None)
    ]
    if lacking:
        named_by: NamedBy = "store" if len(lacking) == len(_SIDES) else "document"
        yield Missing(workload=name, metric=SLA, side=_sides(lacking), named_by=named_by)


def _missing_counters(both: _Documents, name: str, shape: str, stored: RunDocument | None) -> Iterator[Missing]:
    sets = {side: _counters(both.of(side), name, shape) for side in _SIDES}
    before = _counters(stored, name, shape) if stored else None
    lacking = [side for side in _SIDES if sets[side] is None]
    if lacking:
        # Recordings of a host alone, or of a device alone, count what they have.
        if len(lacking) < len(_SIDES) or not are_recordings(*both):
            by_store = before is not None and len(lacking) == len(_SIDES)
            named_by: NamedBy = "store" if by_store else "document"
            yield Missing(workload=name, shape=shape, metric=FRAMEWORK_OPS, side=_sides(lacking), named_by=named_by)
        return
    yield from _missing_counts(both, name, shape, before)


def _missing_counts(both: _Documents, name: str, shape: str, stored: CounterSet | None) -> Iterator[Missing]:
    counted = [(side, one) for side in _SIDES if (one := _counters(both.of(side), name, shape))]
    of_documents = {metric for _, one in counted for metric in (*one.values, *one.steady, *one.unstable)}
    # A metric that an older perfgate counted and this one does not is no metric of the catalogue.
    of_stored = stored.values.keys() & METRICS.keys() if stored else set()
    says_steady = any(one.steady for run in both for one in run.counters) or bool(stored and stored.steady)
    for metric in sorted(filter(_is_of_set, of_documents | of_stored)):
        lacking = [
            side
            for side, one in counted
            if metric not in one.not_applicable
            and (metric not in one.values or (says_steady and metric not in one.steady and metric not in one.unstable))
        ]
        if lacking:
            by_store = metric in of_stored and len(lacking) == len(_SIDES)
            named_by: NamedBy = "store" if by_store else "document"
            yield Missing(workload=name, shape=shape, metric=metric, side=_sides(lacking), named_by=named_by)
    for side, one in counted if any(each.sites for _, each in counted) else ():
        for part in _incomplete_sites(one):
            yield Missing(workload=name, shape=shape, metric=part, side=side)


def _is_of_set(metric: str) -> bool:
    """Return whether a metric is a counter of its own: ``unstable`` names single operators too."""
    return not metric.startswith("ops.")


def _incomplete_sites(counted: CounterSet) -> Iterator[str]:
    """Yield the places and operators that do not add up to their counter, of those that the gate judges by."""
    of_ops = _counts_by_name(counted, FRAMEWORK_OPS)
    for metric, counts in ((FRAMEWORK_OPS, of_ops), (LOW_PRECISION_OPS, _counts_by_name(counted, LOW_PRECISION_OPS))):
        if sum(counts.values()) != counted.values.get(metric, 0):
            yield f"sites.{metric}"
    ops = {op.op: op.count for op in counted.ops}
    yield from (f"ops.count:{name}" for name, count in sorted(of_ops.items()) if ops.get(name) != count)


def _counts_by_name(counted: CounterSet, metric: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for site in counted.sites:
        if site.metric == metric:
            counts[site.name] += site.count
    return counts


def _counters(run: RunDocument, name: str, shape: str) -> CounterSet | None:
    return next((one for one in run.counters if (one.workload, one.shape) == (name, shape)), None)


def _missing_checks(both: _Documents, name: str, shape: str, stored: RunDocument | None) -> Iterator[Missing]:
    checks = {side: _check(both.of(side), name, shape) for side in _SIDES}
    before = _check(stored, name, shape) if stored else None
    results = [check for check in (*checks.values(), before) if check]
    # Only a workload that has a check passes one, and both sides are measured by one file.
    checked = any(check.status == "passed" for check in results)
    unchecked = [
        side for side in _SIDES if (check := checks[side]) is None or (checked and check.status == "not_checked")
    ]
    if unchecked:
        if len(unchecked) < len(_SIDES) or not are_recordings(*both):
            by_store = before is not None and len(unchecked) == len(_SIDES)
            named_by: NamedBy = "store" if by_store else "document"
            yield Missing(workload=name, shape=shape, metric=CORRECTNESS, side=_sides(unchecked), named_by=named_by)
        return
    unsigned = [side for side in _SIDES if (check := checks[side]) and check.signature is None]
    failed = any(check and check.status == "error" for check in checks.values())
    signed = any(check.signature for check in results)
    if unsigned and signed and not failed:
        by_store = len(unsigned) == len(_SIDES)
        named_by = "store" if by_store else "document"
        yield Missing(workload=name, shape=shape, metric=SIGNATURE, side=_sides(unsigned), named_by=named_by)


def _check(run: RunDocument, name: str, shape: str) -> CorrectnessResult | None:
    return next((one for one in run.correctness if (one.workload, one.shape) == (name, shape)), None)
