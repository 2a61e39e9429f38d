"""The evidence that a verdict needs, and any of it that the documents lack: omitted evidence must never improve a verdict.

The trusted side (the base's configuration, main's stored run), the declarations of each document and the other document define
the required evidence: both sides of a check are measured alike, so each must have all that the other has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from perfgate.catalogue.lookup import CARDS, METRICS
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
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import HarnessChange, Missing, MissingSide, NamedBy, Policy
from perfgate.document.run import (
    CORRECTNESS,
    PAIRS_PER_ROUND,
    CorrectnessResult,
    CounterSet,
    RunDocument,
    Side,
    WorkloadRecord,
)
from perfgate.document.samples import STOPPED, Replicate
from perfgate.judging.gate.comparison import ShapePlace
from perfgate.judging.gate.evidence import Evidence
from perfgate.judging.gate.operators import untimed_subroutines
from perfgate.judging.gate.required_jobs import RequiredJob
from perfgate.judging.gate.rules import bounds_with_lost_values

# The conductor sees these of every block, on any device.
_ALWAYS_SEEN = ("seen_ns", "used_ns", "out_of_turn_ns", "waited_ns")
# Reported by the device or the kernel: a block must have it if another block has it.
_REPORTED = ("run_delay_ns", "instructions", "throttled", "clock_share", "foreign_processes")
_SIDES: tuple[Side, ...] = ("base", "head")
_Entry = TypeVar("_Entry", CounterSet, CorrectnessResult)


@dataclass(frozen=True)
class Required:
    """The measurements that the trusted side requires; empty without a trusted side.

    ``workloads`` and ``jobs`` are those of the base's configuration, and ``aa_pairs`` its pairs of base against base.
    ``stored`` are the newest stored runs of main that measured a workload file of the base; a workload uses the one that
    measured the same file. ``sealed`` is whether both sides must prove that their code and environment stayed unchanged.
    """

    workloads: tuple[str, ...] = ()
    jobs: Mapping[str, RequiredJob] = field(default_factory=dict)
    aa_pairs: int = 0
    stored: tuple[RunDocument, ...] = ()
    sealed: bool = False


def missing_evidence(
    evidence: Evidence,
    changes: Sequence[HarnessChange],
    required: Required,
    policy: Policy,
    *,
    timed: bool,
) -> list[Missing]:
    """The evidence that a verdict needs and the documents lack, by name.

    ``timed`` is False if the sides cannot be compared by time, which is reported elsewhere. A workload that fails to load, or
    that the base cannot run, is reported separately.
    """
    runs = evidence.runs
    failed = {workload.name for run in runs for workload in run.workloads if workload.error}
    not_comparable = {change.workload for change in changes if change.kind == "not_comparable"}
    removed = {change.workload for change in changes if change.kind == "removed"}
    removed -= {workload.name for run in runs for workload in run.workloads}
    names = [*required.workloads]
    for run in runs:
        names += [workload.name for workload in run.workloads]
        for entries in (run.replicates, run.counters, run.correctness, run.steps):
            names += [entry.workload for entry in entries]
    explained = failed | not_comparable | removed
    jobs = [*required.jobs, *(job.name for run in runs for job in run.jobs)]
    return _missing_seals(evidence, [*names, *jobs], required) + [
        entry
        for name in dict.fromkeys(names)
        if name not in explained
        for entry in _WorkloadEvidence(name, evidence, required, policy).missing(timed=timed)
    ]


def _missing_seals(evidence: Evidence, names: Sequence[str], required: Required) -> list[Missing]:
    """The seals that a side lacks, if it must prove that the code it ran stayed unchanged or the other side does."""
    lacking = [side for side, run in zip(_SIDES, evidence.runs) if run.seal is None]
    if not lacking or evidence.recorded or not (required.sealed or len(lacking) < len(_SIDES)):
        return []
    return [Missing(workload=name, metric="seal", side=_both_or(lacking)) for name in dict.fromkeys(names)]


class _WorkloadEvidence:
    """The data of both documents on one workload, and main's stored run that measured it by the same file."""

    def __init__(self, name: str, evidence: Evidence, required: Required, policy: Policy) -> None:
        self._name = name
        self._evidence = evidence
        self._runs: dict[Side, RunDocument] = dict(zip(_SIDES, evidence.runs))
        self._required = required
        self._policy = policy
        self._recorded = evidence.recorded
        self._records: dict[Side, WorkloadRecord | None] = {
            side: _record(run, name) for side, run in self._runs.items()
        }
        self._replicates: dict[Side, list[Replicate]] = {
            side: [replicate for replicate in run.replicates if replicate.workload == name]
            for side, run in self._runs.items()
        }
        # Main's newest stored run that measured this workload by the file that both sides were measured by.
        files = {record.sha256 for record in self._records.values() if record}
        self._stored = next((run for run in required.stored if self._is_measured_by(run, files)), None)

    def _is_measured_by(self, run: RunDocument, files: set[str]) -> bool:
        record = _record(run, self._name)
        return not self._recorded and record is not None and record.error is None and {record.sha256} == files

    def missing(self, *, timed: bool) -> Iterator[Missing]:
        name = self._name
        unlisted = [side for side, record in self._records.items() if record is None]
        if unlisted:
            is_configured = name in self._required.workloads and len(unlisted) == len(_SIDES)
            named_by: NamedBy = "configuration" if is_configured else "document"
            yield Missing(workload=name, side=_both_or(unlisted), named_by=named_by)
            return
        shapes = self._shapes()
        for shape in shapes:
            unlisted = [side for side, run in self._runs.items() if shape not in _declared_shapes(run, name)]
            if unlisted:
                named_by = "store" if shape in _declared_shapes(self._stored, name) else "document"
                yield Missing(workload=name, shape=shape, side=_both_or(unlisted), named_by=named_by)
        if timed and not self._recorded:
            yield from self._missing_pairs(shapes)
            yield from self._missing_columns()
            yield from self._missing_settings()
            for shape in shapes if judges_subroutines(self._policy.tolerances) else ():
                yield from self._missing_subroutines(shape)
        yield from self._missing_steps()
        yield from self._missing_harness()
        yield from self._missing_sla()
        for shape in shapes:
            for bound in bounds_with_lost_values(self._evidence, self._policy, ShapePlace(name, shape)):
                yield Missing(workload=name, shape=shape, metric=bound, side="head")
            yield from self._missing_counters(shape)
            yield from self._missing_checks(shape)

    def _shapes(self) -> list[str]:
        """Every shape that is declared, or has any measurement."""
        shapes: list[str] = []
        for document in (*self._runs.values(), self._stored):
            shapes += _declared_shapes(document, self._name)
        for side, run in self._runs.items():
            shapes += [shape for replicate in self._replicates[side] for shape, _ in replicate.lanes]
            shapes += [entry.shape for entry in run.counters if entry.workload == self._name]
            shapes += [entry.shape for entry in run.correctness if entry.workload == self._name]
        return list(dict.fromkeys(shapes))

    def _lacking(
        self, sides: Sequence[Side], *, shape: str = "", metric: str = "", is_stored: bool = False
    ) -> Iterator[Missing]:
        """Yield the evidence that some sides lack; if both do and main's stored run has it, the stored run names it."""
        if sides:
            named_by: NamedBy = "store" if is_stored and len(sides) == len(_SIDES) else "document"
            yield Missing(workload=self._name, shape=shape, metric=metric, side=_both_or(sides), named_by=named_by)

    # --- pairs

    def _missing_pairs(self, shapes: Sequence[str]) -> Iterator[Missing]:
        """Yield the pairs that lack a member, and those with a member that lacks the blocks of a shape.

        Pairs are numbered as they run, base against base among them; each number is a pair that was measured or that failed.
        """
        firsts = {r.pair: r for r in self._replicates["base"] if r.member == "first"}
        twins = {r.pair: r for r in self._replicates["base"] if r.member != "first"}
        heads = {r.pair: r for r in self._replicates["head"] if (r.arm, r.member) == ("ab", "second")}
        measured = {*firsts, *twins, *heads}
        failed = {pair.pair for pair in self._runs["head"].failed_pairs if pair.workload == self._name}
        absent: dict[MissingSide, list[int]] = {}
        compared: dict[int, dict[Side, Replicate]] = {}
        for number in _pair_numbers(measured | failed):
            first, head = firsts.get(number), heads.get(number)
            if first and head and first.arm == "ab":
                compared[number] = {"base": first, "head": head}
            elif number in failed - measured:
                continue
            elif not (first and number in twins and first.arm == "aa"):
                side: MissingSide = "head" if first and first.arm == "ab" else "base"
                absent.setdefault(side if number in measured else "both", []).append(number)
        for absent_side, numbers in absent.items():
            yield Missing(workload=self._name, metric=LATENCY, side=absent_side, pairs=numbers)
        yield from self._missing_lanes(shapes, compared)
        if sum(twin.arm == "aa" for twin in twins.values()) < self._required.aa_pairs:
            yield Missing(workload=self._name, metric="replicates.aa", side="base", named_by="configuration")

    def _missing_lanes(self, shapes: Sequence[str], pairs: Mapping[int, Mapping[Side, Replicate]]) -> Iterator[Missing]:
        members = [member for pair in pairs.values() for member in pair.values()]
        preprocessed = {shape for member in members for shape in member.preprocess}
        stored_lanes = self._stored_lanes()
        if PREPROCESSING in stored_lanes:
            # The checklist times the preprocessing of one shape, the pairs that of all shapes.
            preprocessed |= set(shapes)
        lanes = [(LATENCY, shape) for shape in shapes]
        lanes += [(PREPROCESSING, shape) for shape in shapes if shape in preprocessed]
        for metric, shape in lanes:
            lacking: dict[Side, list[int]] = {"base": [], "head": []}
            for number, pair in pairs.items():
                for side, member in pair.items():
                    if shape not in (member.shapes if metric == LATENCY else member.preprocess):
                        lacking[side].append(number)
            if all(len(numbers) == len(pairs) for numbers in lacking.values()):
                yield from self._lacking(_SIDES, shape=shape, metric=metric, is_stored=metric in stored_lanes)
                continue
            for side, numbers in lacking.items():
                if numbers:
                    # If every pair lacks it, their numbers are no help.
                    some = numbers if len(numbers) < len(pairs) else []
                    yield Missing(workload=self._name, shape=shape, metric=metric, side=side, pairs=some)

    def _stored_lanes(self) -> set[str]:
        """The lanes that the checklist of the stored run timed: calls, and the preprocessing of workloads that have it."""
        steps = [step for step in self._stored.steps if step.workload == self._name] if self._stored else []
        timed = {value.metric for step in steps for value in step.values if value.value is not None}
        lanes = ((LATENCY, P50), (PREPROCESSING, PREPROCESSING_STAGES))
        return {lane for lane, metric in lanes if metric in timed}

    def _missing_columns(self) -> Iterator[Missing]:
        lanes = {side: [lane for r in replicates for lane in r.lanes] for side, replicates in self._replicates.items()}
        blocks = [columns for side in _SIDES for _, columns in lanes[side]]
        reported = [column for column in _REPORTED if any(getattr(columns, column) for columns in blocks)]
        for column in (*_ALWAYS_SEEN, *reported):
            for side in _SIDES:
                shapes = [shape for shape, columns in lanes[side] if not getattr(columns, column)]
                for shape in dict.fromkeys(shapes):
                    yield Missing(workload=self._name, shape=shape, metric=column, side=side)

    def _missing_settings(self) -> Iterator[Missing]:
        """Yield the settings that one member of a pair reports and another does not: they must be equal on both sides."""
        settings = {key for side in _SIDES for replicate in self._replicates[side] for key in replicate.settings}
        if self._required.sealed:
            settings.add(STOPPED)
        for key in sorted(settings):
            for side in _SIDES:
                if any(key not in replicate.settings for replicate in self._replicates[side]):
                    yield Missing(workload=self._name, metric=f"settings.{key}", side=side)

    def _missing_subroutines(self, shape: str) -> Iterator[Missing]:
        """Yield the judged parts of a call that were not timed in a pair."""
        lacking: dict[str, list[Side]] = {}
        for metric, side in untimed_subroutines(self._evidence, self._policy, ShapePlace(self._name, shape)):
            lacking.setdefault(metric, []).append(side)
        for metric, sides in lacking.items():
            yield from self._lacking(sides, shape=shape, metric=metric)

    # --- counts and checks of the checklist

    def _missing_steps(self) -> Iterator[Missing]:
        for side, run in self._runs.items():
            required = {number for w in run.workloads if w.name == self._name for number in w.steps}
            for number in sorted(required - {step.number for step in run.steps if step.workload == self._name}):
                yield Missing(workload=self._name, metric=f"steps.{_slug(number)}", side=side)

    def _missing_harness(self) -> Iterator[Missing]:
        """Yield the missing parts of the sides' harnesses; a part of the head alone is new if its harness declares that."""
        before, after = (
            next((harness for harness in run.harness if harness.workload == self._name), None)
            for run in self._runs.values()
        )
        if before and not after:
            yield from self._lacking(["head"], metric="harness")
        if not after or self._name in after.added:
            return
        if not before:
            yield from self._lacking(["base"], metric="harness")
        elif before.error is None and after.error is None:
            new = {*(after.shapes.keys() - before.shapes.keys()), *(after.functions.keys() - before.functions.keys())}
            if before.sla_p99 is None and after.sla_p99 is not None:
                new.add("sla_p99")
            for entry in sorted(new - set(after.added)):
                yield from self._lacking(["base"], metric=f"harness.{entry}")

    def _missing_sla(self) -> Iterator[Missing]:
        """Yield the sides without the workload's SLA: its file declares it, and both sides are measured by one file."""
        records = {side: record for side, record in self._records.items() if record}
        stored = _record(self._stored, self._name)
        lacking: dict[Side, None] = {}
        for promise in ("sla_p99", "sla_rate"):
            if any(getattr(record, promise) for record in (*records.values(), stored) if record):
                lacking.update({side: None for side, record in records.items() if getattr(record, promise) is None})
            promises = {getattr(record, promise) for record in (*records.values(), stored) if record}
            if len(promises - {None}) > 1:
                lacking.update(dict.fromkeys(records))
        yield from self._lacking(sorted(lacking), metric=SLA, is_stored=True)

    def _missing_counters(self, shape: str) -> Iterator[Missing]:
        sets = {side: _at(run.counters, self._name, shape) for side, run in self._runs.items()}
        stored = _at(self._stored.counters if self._stored else (), self._name, shape)
        counted = {side: counters for side, counters in sets.items() if counters}
        lacking = [side for side in _SIDES if side not in counted]
        # Recordings of a host alone, or of a device alone, count only their own part.
        if lacking and not (self._recorded and len(lacking) == len(_SIDES)):
            yield from self._lacking(lacking, shape=shape, metric=FRAMEWORK_OPS, is_stored=stored is not None)
        if lacking:
            return
        in_documents = {name for c in counted.values() for name in (*c.values, *c.steady, *c.unstable)}
        # A metric counted by an older perfgate only is not in the catalogue.
        in_store = stored.values.keys() & METRICS.keys() if stored else set()
        says_steady = any(c.steady for run in self._runs.values() for c in run.counters)
        says_steady = says_steady or bool(stored and stored.steady)
        for metric in sorted(in_documents | in_store):
            if metric.startswith("ops."):  # a single operator, of those that are unstable
                continue
            lacking = _sides_without_count(counted, metric, says_steady=says_steady)
            yield from self._lacking(lacking, shape=shape, metric=metric, is_stored=metric in in_store)
        for side, counters in counted.items():
            for metric in sorted(set(counters.unstable) - counters.ranges.keys()):
                yield Missing(workload=self._name, shape=shape, metric=f"ranges.{metric}", side=side)
        # A loss of precision is judged place by place.
        if any(counters.sites or counters.values.get(LOW_PRECISION_OPS) for counters in counted.values()):
            for side, counters in counted.items():
                for part in _incomplete_sites(counters):
                    yield Missing(workload=self._name, shape=shape, metric=part, side=side)

    def _missing_checks(self, shape: str) -> Iterator[Missing]:
        checks = {side: _at(run.correctness, self._name, shape) for side, run in self._runs.items()}
        stored = _at(self._stored.correctness if self._stored else (), self._name, shape)
        results = [check for check in (*checks.values(), stored) if check]
        # Only a workload that has a check passes one, and both sides are measured by one file.
        passed = any(check.status == "passed" for check in results)
        unchecked = [
            side for side, check in checks.items() if check is None or (passed and check.status == "not_checked")
        ]
        if unchecked:
            if not (self._recorded and len(unchecked) == len(_SIDES)):
                yield from self._lacking(unchecked, shape=shape, metric=CORRECTNESS, is_stored=stored is not None)
            return
        # Every returned value has a signature; if none could be made, there is an error.
        unsigned = [side for side, check in checks.items() if check and check.signature is None]
        if not any(check and check.status == "error" for check in checks.values()):
            is_stored = stored is not None and stored.signature is not None
            yield from self._lacking(unsigned, shape=shape, metric=SIGNATURE, is_stored=is_stored)


def _slug(step: int) -> str:
    return CARDS[step].slug if step in CARDS else str(step)


def _both_or(sides: Sequence[Side]) -> MissingSide:
    return "both" if len(sides) > 1 else sides[0]


def _record(run: RunDocument | None, name: str) -> WorkloadRecord | None:
    return next((workload for workload in run.workloads if workload.name == name), None) if run else None


def _declared_shapes(run: RunDocument | None, name: str) -> list[str]:
    record = _record(run, name)
    return record.shapes if record else []


def _at(entries: Iterable[_Entry], name: str, shape: str) -> _Entry | None:
    return next((entry for entry in entries if (entry.workload, entry.shape) == (name, shape)), None)


def _pair_numbers(traces: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of every round from its first pair to the last that left a trace."""
    for number, pairs in groupby(sorted(traces), key=lambda pair: pair // PAIRS_PER_ROUND):
        yield from range(number * PAIRS_PER_ROUND, max(pairs) + 1)


def _sides_without_count(counted: Mapping[Side, CounterSet], metric: str, *, says_steady: bool) -> list[Side]:
    """The sides that lack a count. An uncountable metric is excused if the base could not be counted either."""
    base = counted["base"]
    if metric in base.uncounted and metric not in base.values:
        counted = {side: counters for side, counters in counted.items() if metric not in counters.uncounted}
    return [side for side, counters in counted.items() if _lacks_count(counters, metric, says_steady=says_steady)]


def _lacks_count(counters: CounterSet, metric: str, *, says_steady: bool) -> bool:
    if metric in counters.not_applicable:
        return False
    is_judged = metric in counters.steady or metric in counters.unstable
    return metric not in counters.values or (says_steady and not is_judged)


def _incomplete_sites(counted: CounterSet) -> Iterator[str]:
    """Yield the places and operators that do not add up to their counter, of those that the gate judges by."""
    counts: dict[str, Counter[str]] = {FRAMEWORK_OPS: Counter(), LOW_PRECISION_OPS: Counter()}
    for site in counted.sites:
        if site.metric in counts:
            counts[site.metric][site.name] += site.count
    for metric, by_op in counts.items():
        if sum(by_op.values()) != counted.values.get(metric, 0):
            yield f"sites.{metric}"
    ops = {op.op: op.count for op in counted.ops}
    of_ops = sorted(counts[FRAMEWORK_OPS].items())
    yield from (f"ops.count:{name}" for name, count in of_ops if ops.get(name) != count)
    # No operator can have run in low precision more often than it ran.
    of_low = sorted(counts[LOW_PRECISION_OPS].items())
    yield from (f"sites.{LOW_PRECISION_OPS}:{name}" for name, count in of_low if count > ops.get(name, 0))
