"""The evidence that a verdict needs, and any of it that the documents lack: omitted evidence must never improve a verdict.

The trusted side (the base's configuration, main's stored run), the declarations of each document and the other document define
the required evidence: both sides of a check are measured alike, so each must have all that the other has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from perfgate.catalogue.lookup import CARDS, METRICS
from perfgate.catalogue.names import (
    FRAMEWORK_OPS,
    LATENCY,
    LOW_PRECISION_OPS,
    MEAN,
    P50,
    PREPROCESSING,
    PREPROCESSING_STAGES,
    SIGNATURE,
    SLA,
)
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import HarnessChange, Missing, NamedBy, Policy
from perfgate.document.run import (
    CORRECTNESS,
    PAIRS_PER_ROUND,
    CounterSet,
    Harness,
    RunDocument,
    Side,
    WorkloadRecord,
)
from perfgate.document.samples import STOPPED, BlockColumns, Replicate, unpack
from perfgate.judging.gate.compare.head_rules import bounds_with_lost_values
from perfgate.judging.gate.compare.stretches import LOOKS as STRETCH_LOOKS
from perfgate.judging.gate.compare.stretches import stretches_of
from perfgate.judging.gate.evidence.index import Evidence, RunIndex
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.undisturbed import LEAST_CLEAN
from perfgate.judging.gate.evidence.untimed_parts import untimed_subroutines
from perfgate.judging.gate.plan.jobs import RequiredJob
from perfgate.judging.gate.plan.missing import SIDES, one_a_piece
from perfgate.protocol import SLOW_CALL_SECONDS
from perfgate.stats.summary import median

# The conductor sees these of every block, on any device.
_ALWAYS_SEEN = ("seen_ns", "used_ns", "out_of_turn_ns", "waited_ns")
# Warming up may time a call as slower than the pairs do.
CERTAINLY_FAST = 0.8
# Reported by the device or the kernel: a block must have it if another block has it.
_REPORTED = ("run_delay_ns", "instructions", "throttled", "clock_share", "foreign_processes")


@dataclass(frozen=True)
class Required:
    """The measurements that the trusted side requires; empty without a trusted side.

    ``workloads`` and ``jobs`` are those of the base's configuration, and ``aa_pairs`` its pairs of base against base.
    ``stored`` are the newest stored runs of main that measured a workload file of the base; a workload uses the one that
    measured the same file. ``sealed`` is whether both sides must prove that their code and environment stayed unchanged.
    ``changed`` are the files of the change, None if only the documents name them.
    """

    workloads: tuple[str, ...] = ()
    jobs: Mapping[str, RequiredJob] = field(default_factory=dict)
    aa_pairs: int = 0
    stored: tuple[RunDocument, ...] = ()
    sealed: bool = False
    stretches: bool = False
    changed: frozenset[str] | None = None


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
    names = [*required.workloads]
    jobs = [*required.jobs]
    for run in evidence.runs:
        names += [workload.name for workload in run.workloads]
        for entries in (run.replicates, run.counters, run.correctness, run.steps):
            names += [entry.workload for entry in entries]
        jobs += [job.name for job in run.jobs]
    explained = _reported_elsewhere(evidence, changes)
    # The verdict gives the reason why these have no times.
    untimed = {pair.workload for pair in evidence.head.run.failed_pairs if pair.error.is_of_slow_calls}
    missing = _missing_seals(evidence, [*names, *jobs], required)
    for name in dict.fromkeys(names):
        if name not in explained:
            workload = _WorkloadEvidence(name, evidence, required, policy)
            missing += workload.missing(timed=timed and name not in untimed)
    return missing


def _reported_elsewhere(evidence: Evidence, changes: Sequence[HarnessChange]) -> set[str]:
    """The workloads that fail to load, that the change removed, or that the base cannot run."""
    base, head = evidence.runs
    workloads = [*base.workloads, *head.workloads]
    failed = {workload.name for workload in workloads if workload.error}
    not_comparable = {change.workload for change in changes if change.kind == "not_comparable"}
    removed = {change.workload for change in changes if change.kind == "removed"}
    return failed | not_comparable | (removed - {workload.name for workload in workloads})


def _missing_seals(evidence: Evidence, names: Sequence[str], required: Required) -> list[Missing]:
    """The seals that a side lacks, if it must prove that the code it ran stayed unchanged or the other side does."""
    lacking = [side for side, run in zip(SIDES, evidence.runs) if run.seal is None]
    if not lacking or evidence.recorded or not (required.sealed or len(lacking) < len(SIDES)):
        return []
    places = dict.fromkeys(names)
    return one_a_piece(Missing(workload=name, metric="seal", side=side) for name in places for side in lacking)


class _StretchBlock(NamedTuple):
    """That a side has blocks of a shape in a quad of a start."""

    start: int
    shape: str
    quad: int


class _WorkloadEvidence:
    """The data of both documents on one workload, and main's stored run that measured it by the same file."""

    def __init__(self, name: str, evidence: Evidence, required: Required, policy: Policy) -> None:
        self._name = name
        self._evidence = evidence
        self._indexes: dict[Side, RunIndex] = {"base": evidence.base, "head": evidence.head}
        self._runs: dict[Side, RunDocument] = dict(zip(SIDES, evidence.runs))
        self._required = required
        self._policy = policy
        self._recorded = evidence.recorded
        self._records = {side: _record(run, name) for side, run in self._runs.items()}
        self._replicates: dict[Side, list[Replicate]] = {}
        for side, run in self._runs.items():
            self._replicates[side] = [replicate for replicate in run.replicates if replicate.workload == name]
        self._stored = self._stored_run()
        self._stored_record = _record(self._stored.run, name) if self._stored else None

    def _stored_run(self) -> RunIndex | None:
        """Main's newest stored run that measured this workload by the file that both sides were measured by."""
        files = {record.sha256 for record in self._records.values() if record}
        for run in self._required.stored:
            record = _record(run, self._name)
            if record and not record.error and {record.sha256} == files and not self._recorded:
                return RunIndex(run)
        return None

    def missing(self, *, timed: bool) -> list[Missing]:
        name = self._name
        unlisted = [side for side, record in self._records.items() if record is None]
        if unlisted:
            is_configured = name in self._required.workloads and len(unlisted) == len(SIDES)
            named_by: NamedBy = "configuration" if is_configured else "document"
            return one_a_piece(Missing(workload=name, side=side, named_by=named_by) for side in unlisted)
        shapes = self._shapes()
        return one_a_piece(self._lacking(shapes, timed=timed), self._stored_keys(shapes))

    def _shapes(self) -> list[str]:
        """Every shape that is declared, or has any measurement."""
        shapes: list[str] = []
        for record in (*self._records.values(), self._stored_record):
            shapes += record.shapes if record else []
        for side, index in self._indexes.items():
            shapes += [shape for shape, _ in self._lanes_of(side)]
            shapes += [place.shape for place in (*index.counters, *index.checks) if place.workload == self._name]
        return list(dict.fromkeys(shapes))

    def _lanes_of(self, side: Side) -> list[tuple[str, BlockColumns]]:
        """The blocks of all processes of a side, each with its shape."""
        lanes: list[tuple[str, BlockColumns]] = []
        for replicate in self._replicates[side]:
            lanes += replicate.lanes
        return lanes

    def _stored_keys(self, shapes: Sequence[str]) -> set[tuple[str, str]]:
        """Shape and metric of everything that main's stored run has."""
        if self._stored is None or self._stored_record is None:
            return set()
        keys = {(shape, "") for shape in self._stored_record.shapes}
        keys |= {("", SLA) for _ in _promises(self._stored_record)}
        for shape in shapes:
            place = ShapePlace(self._name, shape)
            metrics = set(self._stored_lanes())
            counters, check = self._stored.counters.get(place), self._stored.checks.get(place)
            if counters:
                metrics |= {FRAMEWORK_OPS, *counters.values}
            if check:
                metrics.add(CORRECTNESS)
            if check and check.signature:
                metrics.add(SIGNATURE)
            keys |= {(shape, metric) for metric in metrics}
        return keys

    def _lacking(self, shapes: Sequence[str], *, timed: bool) -> Iterator[Missing]:
        """Yield all that a side lacks, each side for itself."""
        for shape in shapes:
            for side, record in self._records.items():
                if record and shape not in record.shapes:
                    yield self._piece(side, "", shape)
        if timed and not self._recorded:
            yield from self._pairs()
            yield from self._lanes(shapes)
            yield from self._stretches(shapes)
            yield from self._quads()
            yield from self._columns()
            yield from self._settings()
            yield from self._subroutines(shapes)
        yield from self._steps()
        yield from self._harness()
        yield from self._sla()
        for shape in shapes:
            for bound in bounds_with_lost_values(self._evidence, self._policy, ShapePlace(self._name, shape)):
                yield self._piece("head", bound, shape)
            yield from self._counters(shape)
            yield from self._checks(shape)

    def _piece(self, side: Side, metric: str, shape: str = "", *, pairs: Iterable[int] = ()) -> Missing:
        return Missing(workload=self._name, shape=shape, metric=metric, side=side, pairs=sorted(pairs))

    def _subroutines(self, shapes: Iterable[str]) -> Iterator[Missing]:
        """Yield the times of operators, modules and functions that a tolerance names and a side lacks."""
        if not judges_subroutines(self._policy.tolerances):
            return
        for shape in shapes:
            place = ShapePlace(self._name, shape)
            for metric, side in untimed_subroutines(self._evidence, self._policy, place):
                yield self._piece(side, metric, shape)

    # --- pairs

    def _pairs(self) -> Iterator[Missing]:
        """Yield the numbers of pairs that lack a member.

        Pairs are numbered as they run, base against base among them; each number is a pair that was measured or that failed.
        """
        of_pairs = [r for r in self._replicates["base"] if r.arm != "stretch"]
        firsts = {r.pair: r.arm for r in of_pairs if r.member == "first"}
        twins = {r.pair: r.arm for r in of_pairs if r.member != "first"}
        heads = {r.pair for r in self._replicates["head"] if (r.arm, r.member) == ("ab", "second")}
        measured = {*firsts, *twins, *heads}
        of_workload = [pair for pair in self._runs["head"].failed_pairs if pair.workload == self._name]
        failed = {pair.pair for pair in of_workload if pair.arm != "stretch"}
        compared = {pair for pair, arm in firsts.items() if arm == "ab"}
        expected = set(_pair_numbers(measured | failed)) - (failed - measured)
        of_base = compared | ((firsts.keys() - compared) & twins.keys())
        # Pairs of base against base have no member of the head.
        of_head = heads | (measured - compared)
        without_base, without_head = expected - of_base, expected - of_head
        without_both = without_base & without_head
        lacking: list[tuple[Side, set[int]]] = [
            ("base", without_base - without_both),
            ("head", without_head - without_both),
            ("base", without_both),
            ("head", without_both),
        ]
        for side, numbers in lacking:
            if numbers:
                yield self._piece(side, LATENCY, pairs=numbers)
        if sum(arm == "aa" for arm in twins.values()) < self._required.aa_pairs:
            yield Missing(workload=self._name, metric="replicates.aa", side="base", named_by="configuration")

    def _lanes(self, shapes: Sequence[str]) -> Iterator[Missing]:
        """Yield the lanes without blocks in a member of a pair, with the numbers of those pairs unless all lack them."""
        pairs = self._evidence.pairs.get(self._name, [])
        members = {"base": [first for first, _ in pairs], "head": [second for _, second in pairs]}
        # The checklist times the preprocessing of one shape, the pairs that of all shapes.
        preprocessed = set(shapes) if PREPROCESSING in self._stored_lanes() else set()
        for member in (*members["base"], *members["head"]):
            preprocessed |= member.preprocess.keys()
        lanes = [(LATENCY, shape) for shape in shapes]
        lanes += [(PREPROCESSING, shape) for shape in shapes if shape in preprocessed]
        for metric, shape in lanes:
            for side in SIDES:
                lacking = [member.pair for member in members[side] if not _has_lane(member, metric, shape)]
                if lacking or not pairs:
                    yield self._piece(side, metric, shape, pairs=lacking if len(lacking) < len(pairs) else ())

    def _stretches(self, shapes: Sequence[str]) -> Iterator[Missing]:
        """Yield the shapes whose stretches a side lacks, or with fewer quads than the first look takes, or too few usable ones.

        A stretch that failed is reported as that.
        """
        failed_pairs = [failed for failed in self._runs["head"].failed_pairs if failed.workload == self._name]
        if any(failed.arm == "stretch" for failed in failed_pairs):
            return
        blocks = {side: self._stretch_blocks(side) for side in SIDES}
        every_block = blocks["base"] | blocks["head"]
        is_expected = self._required.stretches and self._has_fast_calls()
        if not (is_expected or every_block):
            return
        for shape in shapes:
            expected = {block for block in every_block if block.shape == shape}
            quads = {(block.start, block.quad) for block in expected}
            sample = stretches_of(self._evidence, ShapePlace(self._name, shape))
            usable = 0 if sample is None else sample.quads
            is_too_little = len(quads) < STRETCH_LOOKS[0] or usable < LEAST_CLEAN * len(quads)
            lacking = [side for side in SIDES if expected - blocks[side]]
            for side in lacking or (SIDES if is_too_little else ()):
                yield self._piece(side, MEAN, shape)

    def _stretch_blocks(self, side: Side) -> set[_StretchBlock]:
        blocks: set[_StretchBlock] = set()
        for replicate in self._replicates[side]:
            if replicate.arm != "stretch":
                continue
            for shape, columns in replicate.shapes.items():
                blocks |= {_StretchBlock(replicate.pair, shape, quad) for quad in columns.quad}
        return blocks

    def _has_fast_calls(self) -> bool:
        """Whether calls of the base are certainly fast enough for stretches, by its pairs: it is the trusted side."""
        seconds: dict[str, list[float]] = {}
        for first, _ in self._evidence.pairs.get(self._name, ()):
            for shape, columns in first.shapes.items():
                seconds.setdefault(shape, []).append(median(unpack(columns.wall)) / 1e9)
        return bool(seconds) and sum(map(median, seconds.values())) < CERTAINLY_FAST * SLOW_CALL_SECONDS

    def _quads(self) -> Iterator[Missing]:
        """Yield the shapes in which a member of a pair lacks blocks of a quad that the other has: both run the same."""
        lacking: dict[tuple[Side, str], list[int]] = {}
        for first, second in self._evidence.pairs.get(self._name, []):
            for shape in first.shapes.keys() & second.shapes.keys():
                before, after = Counter(first.shapes[shape].quad), Counter(second.shapes[shape].quad)
                for side, blocks in zip(SIDES, (after - before, before - after)):
                    if blocks:
                        lacking.setdefault((side, shape), []).append(first.pair)
        for (side, shape), pairs in sorted(lacking.items()):
            yield self._piece(side, "quad", shape, pairs=pairs)

    def _stored_lanes(self) -> set[str]:
        """The lanes that the checklist of the stored run timed: calls, and the preprocessing of workloads that have it."""
        lanes: set[str] = set()
        for step in self._stored.steps.get(self._name, []) if self._stored else []:
            timed = {value.metric for value in step.values if value.value is not None}
            if P50 in timed:
                lanes.add(LATENCY)
            if PREPROCESSING_STAGES in timed:
                lanes.add(PREPROCESSING)
        return lanes

    def _columns(self) -> Iterator[Missing]:
        lanes = {side: self._lanes_of(side) for side in SIDES}
        blocks = [columns for _, columns in (*lanes["base"], *lanes["head"])]
        reported = [column for column in _REPORTED if any(getattr(columns, column) for columns in blocks)]
        for column in (*_ALWAYS_SEEN, *reported):
            for side in SIDES:
                lacking = [shape for shape, columns in lanes[side] if not getattr(columns, column)]
                for shape in dict.fromkeys(lacking):
                    yield self._piece(side, column, shape)

    def _settings(self) -> Iterator[Missing]:
        """Yield the settings that one member of a pair reports and another does not: they must be equal on both sides."""
        expected = {STOPPED} if self._required.sealed else set()
        for replicate in (*self._replicates["base"], *self._replicates["head"]):
            expected |= replicate.settings.keys()
        for side, replicates in self._replicates.items():
            lacking: set[str] = set()
            for replicate in replicates:
                lacking |= expected - replicate.settings.keys()
            for key in sorted(lacking):
                yield self._piece(side, f"settings.{key}")

    # --- counts and checks of the checklist

    def _steps(self) -> Iterator[Missing]:
        for side, run in self._runs.items():
            expected: set[int] = set()
            for workload in run.workloads:
                if workload.name == self._name:
                    expected.update(workload.steps)
            present = {step.number for step in run.steps if step.workload == self._name}
            for number in sorted(expected - present):
                yield self._piece(side, f"steps.{CARDS[number].slug if number in CARDS else number}")

    def _harness(self) -> Iterator[Missing]:
        """Yield the missing parts of the sides' harnesses; a part of the head alone is new if its harness declares that."""
        before, after = self._harness_of("base"), self._harness_of("head")
        if before and not after:
            yield self._piece("head", "harness")
        if not after or self._name in after.added:
            return
        if not before:
            yield self._piece("base", "harness")
        elif before.error is None and after.error is None:
            for part in sorted(_parts(after) - _parts(before) - set(after.added)):
                yield self._piece("base", f"harness.{part}")

    def _harness_of(self, side: Side) -> Harness | None:
        return next((harness for harness in self._runs[side].harness if harness.workload == self._name), None)

    def _sla(self) -> Iterator[Missing]:
        """Yield the sides without the workload's SLA: its file declares it, and both sides are measured by one file."""
        promises = {side: _promises(record) for side, record in self._records.items()}
        expected = _promises(self._stored_record).union(*promises.values())
        for side, own in promises.items():
            if expected - own:
                yield self._piece(side, SLA)

    def _counters(self, shape: str) -> Iterator[Missing]:
        place = ShapePlace(self._name, shape)
        counted = {side: index.counters[place] for side, index in self._indexes.items() if place in index.counters}
        stored = self._stored.counters.get(place) if self._stored else None
        # Recordings of a host alone, or of a device alone, count only their own part.
        if len(counted) < len(SIDES):
            for side in SIDES:
                if side not in counted and (counted or not self._recorded):
                    yield self._piece(side, FRAMEWORK_OPS, shape)
            return
        expected = _expected_counts(counted.values(), stored)
        says_steady = self._says_steady(stored)
        for side, counters in counted.items():
            lacking = expected - _present(counters, counted["base"], says_steady=says_steady)
            for name in sorted(lacking):
                # A single operator is among those that are unstable.
                if not name.startswith("ops."):
                    yield self._piece(side, name, shape)
        yield from self._sites(shape, counted)

    def _sites(self, shape: str, counted: Mapping[Side, CounterSet]) -> Iterator[Missing]:
        """Yield the ranges of varying counts, and the places of counts, that a side lacks."""
        # A loss of precision is judged place by place.
        judges_sites = any(counters.sites or counters.values.get(LOW_PRECISION_OPS) for counters in counted.values())
        for side, counters in counted.items():
            for metric in sorted(set(counters.unstable) - counters.ranges.keys()):
                yield self._piece(side, f"ranges.{metric}", shape)
            if judges_sites:
                for part in _incomplete_sites(counters):
                    yield self._piece(side, part, shape)

    def _says_steady(self, stored: CounterSet | None) -> bool:
        """Whether any counter of the runs says which of its counts are steady, as older perfgates do not."""
        base, head = self._evidence.runs
        every_count = [*base.counters, *head.counters, *([stored] if stored else [])]
        return any(counters.steady for counters in every_count)

    def _checks(self, shape: str) -> Iterator[Missing]:
        place = ShapePlace(self._name, shape)
        checks = {side: index.checks.get(place) for side, index in self._indexes.items()}
        stored = self._stored.checks.get(place) if self._stored else None
        results = [check for check in (*checks.values(), stored) if check]
        # Only a workload that has a check passes one, and both sides are measured by one file.
        passed = any(check.status == "passed" for check in results)
        unchecked = [
            side for side, check in checks.items() if check is None or (passed and check.status == "not_checked")
        ]
        if unchecked:
            for side in unchecked:
                if not self._recorded or len(unchecked) < len(SIDES):
                    yield self._piece(side, CORRECTNESS, shape)
        # Every returned value has a signature; if none could be made, there is an error.
        elif not any(check and check.status == "error" for check in checks.values()):
            for side, check in checks.items():
                if check and check.signature is None:
                    yield self._piece(side, SIGNATURE, shape)


def _record(run: RunDocument, name: str) -> WorkloadRecord | None:
    return next((workload for workload in run.workloads if workload.name == name), None)


def _has_lane(member: Replicate, metric: str, shape: str) -> bool:
    return shape in (member.shapes if metric == LATENCY else member.preprocess)


def _pair_numbers(traces: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of every round from its first pair to the last that left a trace."""
    for number, pairs in groupby(sorted(traces), key=lambda pair: pair // PAIRS_PER_ROUND):
        yield from range(number * PAIRS_PER_ROUND, max(pairs) + 1)


def _expected_counts(counted: Iterable[CounterSet], stored: CounterSet | None) -> set[str]:
    """The metrics that a side, or main's stored run, has counted."""
    expected: set[str] = set()
    for counters in counted:
        expected.update(counters.values, counters.steady, counters.unstable)
    if stored:
        # A metric counted by an older perfgate only is not in the catalogue.
        expected |= stored.values.keys() & METRICS.keys()
    return expected


def _present(counters: CounterSet, base: CounterSet, *, says_steady: bool) -> set[str]:
    """The metrics that a side counted, or need not. An uncountable one is excused if the base could not be counted either."""
    judged = counters.values.keys() & {*counters.steady, *counters.unstable} if says_steady else counters.values.keys()
    excused = {*counters.uncounted} & {*base.uncounted} - base.values.keys()
    return {*counters.not_applicable, *judged, *excused}


def _parts(harness: Harness) -> set[str]:
    return {*harness.shapes, *harness.functions, *(["sla_p99"] if harness.sla_p99 is not None else [])}


def _promises(record: WorkloadRecord | None) -> set[tuple[str, float]]:
    """The parts of a workload's SLA, each with its value: different values are different promises."""
    if record is None:
        return set()
    values = {"sla_p99": record.sla_p99, "sla_rate": record.sla_rate}
    return {(name, value) for name, value in values.items() if value is not None}


def _incomplete_sites(counted: CounterSet) -> Iterator[str]:
    """Yield the places and operators that do not add up to their counter, of those that the gate judges by."""
    counts: dict[str, Counter[str]] = {FRAMEWORK_OPS: Counter(), LOW_PRECISION_OPS: Counter()}
    for site in counted.sites:
        if site.metric in counts:
            counts[site.metric][site.name] += site.count
    for metric, by_op in counts.items():
        if sum(by_op.values()) != counted.values.get(metric, 0):
            yield f"sites.{metric}"
    # A count that varies does so at places: those where it does not are compared exactly.
    if FRAMEWORK_OPS in counted.unstable and not any(site.between for site in counted.sites):
        yield f"sites.between:{FRAMEWORK_OPS}"
    ops = Counter({op.op: op.count for op in counted.ops})
    for name, count in sorted(counts[FRAMEWORK_OPS].items()):
        if ops[name] != count:
            yield f"ops.count:{name}"
    for name, count in sorted(counts[LOW_PRECISION_OPS].items()):
        # No operator can have run in low precision more often than it ran.
        if count > ops[name]:
            yield f"sites.{LOW_PRECISION_OPS}:{name}"
