"""Step 16: how fast the devices of a machine exchange data, how much of it hides behind computing, and who comes last."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.document.samples import SampleSet, pack
from perfgate.measuring.checklist.collectives.job import OPERATIONS, Operation, Plan, RankReport, run_job, sizes_up_to
from perfgate.measuring.checklist.collectives.packets import judge_packets, judge_retransmissions, rdma_times
from perfgate.measuring.checklist.collectives.recorded_ranks import judge_ranks
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, above, below, finding, limit
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, not_applicable, unavailable
from perfgate.measuring.checklist.values import median, missing, several
from perfgate.measuring.counting.collect import record_calls
from perfgate.stats.robust import TransferLine, transfer_line
from perfgate.system.garbage import quiet
from perfgate.trace.ascend.kinds import type_by_name
from perfgate.trace.recording import Collective
from perfgate.trace.summary import DeviceSummary, summarize

_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}
_MIB = 1 << 20
_TRACED_CALLS = 5
# Of fewer of one kind nothing says which is unusual.
_FEWEST_OF_A_KIND = 3
# A rank that is last in so many of the meetings is so by more than chance: of 20 and two ranks 18 or more have 0.04 %.
_MOSTLY = 0.9
_FEWEST_SIZES = 3

Ints = npt.NDArray[np.int64]


class CommunicationStep:
    """Time collectives in a job of the workload's ranks; trace the workload where it communicates itself."""

    card = card(16)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure; not applicable where there is one rank and the workload itself does not communicate."""
        ranks = context.workload.workload.ranks or context.device.visible_devices()
        if reason := _impossible(context, ranks):
            return unavailable(reason)
        outcome = _trace_overlap(context)
        if ranks > 1:
            context.progress(f"collectives between {ranks} processes")
            reports = experiment(context, partial(_run, context, ranks), failing="system.collectives-fail")
            if isinstance(reports, FailedExperiment):
                outcome.values += missing("communication.bus_bandwidth", reports.reason)
                return outcome if len(outcome.values) > 1 else unavailable(reports.reason)
            outcome.add(_judge_job(context, operation_times(reports), skew(reports), reports))
        return (
            outcome if outcome.values else not_applicable(Message("system.one-device", {"kind": context.device.kind}))
        )

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the collectives of every rank; not applicable where there is none."""
        outcome = _judge_recorded(context.summaries, context.limits)
        return outcome if outcome.values else not_applicable(Message("system.no-collectives"))


STEP = CommunicationStep()


def _impossible(context: StepContext, ranks: int) -> Message | None:
    """Why so many ranks cannot run here, None where they can; CPUs are shared, other devices are not."""
    device, visible = context.device, context.device.visible_devices()
    if ranks > 1 and device.kind not in _BACKENDS:
        return Message("system.no-backend", {"kind": device.kind})
    if ranks > visible and "own_memory" in device.capabilities:
        return Message("system.too-few-devices", {"ranks": ranks, "seen": visible, "kind": device.kind})
    return None


def _run(context: StepContext, ranks: int) -> list[RankReport]:
    quick = context.quick
    plan = Plan(
        kind=context.device.kind,
        backend=_BACKENDS[context.device.kind],
        # The ranks agree on what fits into their memory.
        sizes=sizes_up_to(4 * _MIB if quick else 1024 * _MIB),
        repetitions=20 if quick else 50,
        seconds=0.1 if quick else 1.0,
        rounds=20 if quick else 50,
        timeout_seconds=60.0,
    )
    return run_job(plan, ranks=ranks, folder=context.artifacts, limit_seconds=60.0 if quick else 600.0)


def _trace_overlap(context: StepContext) -> StepOutcome:
    """Trace some calls of a workload that is in a group of processes, on a device that shows its kernels."""
    if not context.shows_kernels:
        return StepOutcome()
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return StepOutcome()
    shape = context.workload.shapes[0]
    context.progress(f"tracing the communication of shape {shape}")
    with quiet(), tempfile.TemporaryDirectory(dir=context.artifacts, prefix=".communication-") as folder:
        call = context.workload.caller(shape)
        trace = record_calls(context.device, call, calls=_TRACED_CALLS, folder=Path(folder), name="trace")
    return _judge_recorded(summarize([trace.timeline]), context.limits)


def _judge_job(
    context: StepContext, operations: Sequence[OperationTimes], meetings: Skew, reports: Sequence[RankReport]
) -> StepOutcome:
    outcome, limits = StepOutcome(), context.limits
    for operation in operations:
        best = operation.best()
        bandwidth, count = operation.bus_bandwidth(best), best.nanoseconds.size
        labels = {"op": operation.operation, "size": str(best.size)}
        outcome.values += several({"communication.bus_bandwidth": bandwidth}, labels, count=count)
        if operation.wrong:
            wrong: MaybeEvidence = {"operation": operation.operation, "first size [B]": operation.wrong[0]}
            outcome.findings.append(finding("communication.wrong_result", "severe", wrong))
    backend = _BACKENDS[context.device.kind]
    for name, why in reports[0].refused.items():
        evidence = {"operation": name, "backend": backend, "why": why}
        outcome.findings.append(finding("communication.refused", "info", evidence))
    peak = limit("communication.peak", limits)
    if peak > 0 and operations:
        # The first operation is the all-reduce.
        share = operations[0].bus_bandwidth(operations[0].best()) / peak
        outcome.values += several({"communication.peak_share": share}, {"op": operations[0].operation})
        outcome.findings += below("communication.peak_share", share, limits, {"ranks": len(reports)})
    outcome.values.append(Value(metric="communication.skew", value=meetings.seconds, count=meetings.rounds))
    outcome.findings += judge_skew(meetings, context)
    for operation in operations:
        outcome.values += _line_values(operation)
    for operation in operations:
        for size in operation.sizes:
            labels = {"op": operation.operation, "size": str(size.size)}
            outcome.values.append(median("communication.time", size.nanoseconds / 1e9, labels))
            samples = pack(size.nanoseconds.astype(np.int64))
            outcome.samples.append(SampleSet(metric="communication.time", samples=samples, labels=labels))
    return outcome


def _line_values(operation: OperationTimes) -> list[Value]:
    """What a message costs by its size: a start-up, and a bandwidth."""
    labels: dict[str, str] = {"op": operation.operation}
    line = operation.line()
    if line is None:
        reason = Message("system.too-few-sizes", {"count": len(operation.sizes)})
        return missing("communication.start_up", reason, labels)
    values = several({"communication.start_up": line.start_up}, labels)
    if math.isfinite(line.bandwidth):
        values += several({"communication.bandwidth": line.bandwidth}, labels)
    else:
        values += missing("communication.bandwidth", Message("system.no-rise"), labels)
    # Below 0 the line is worse than a constant: it describes nothing.
    fit = {"communication.fit": max(line.r2, 0.0), "communication.residual": line.residual}
    return values + several(fit, labels)


def judge_skew(meetings: Skew, context: StepContext) -> list[Finding]:
    """Name the rank that nearly always comes last; ranks on CPUs share them with others, so there it only informs."""
    share = meetings.seconds / meetings.work_seconds if meetings.work_seconds else 0.0
    evidence: MaybeEvidence = {
        "rank": meetings.last,
        "skew [s]": meetings.seconds,
        "work [s]": meetings.work_seconds,
    }
    if meetings.last is None or not above("communication.slow_rank", share, context.limits, evidence):
        return []
    alone_on_device = "own_memory" in context.device.capabilities
    return [finding("communication.slow_rank", "warning" if alone_on_device else "info", evidence)]


def _judge_recorded(summaries: Sequence[DeviceSummary], limits: Limits) -> StepOutcome:
    """What a recording says of every rank that communicated, and which rank comes last."""
    outcome = StepOutcome()
    for summary in summaries:
        for kind, ns in sorted(summary.collectives.items()):
            seconds, labels = ns / summary.spans / 1e9, {"shape": summary.shape, "collective": kind}
            outcome.values += several({"communication.time": seconds}, labels, count=summary.spans)
        outcome.values += [*_waiting(summary), *_links(summary), *rdma_times(summary)]
        outcome.add(judge_packets(summary, limits))
        outcome.add(_judge_overlap(summary, limits))
        outcome.findings += _judge_first_collectives(summary, limits)
    outcome.add(judge_ranks(summaries, limits))
    outcome.findings += [*judge_retransmissions(summaries, limits), *_slowest_ranks(summaries)]
    return outcome


def _waiting(summary: DeviceSummary) -> Iterator[Value]:
    """Yield the shares of all the time of collectives in which this rank waited, sent or received, and idled.

    Idle is what is neither, mostly time before the last rank came (sample msinsight-910B-alexnet-2501: 96.4 of 106.0 ms).
    """
    timed = [collective for collective in summary.timeline.collectives or () if collective.elapsed_ns]
    elapsed = sum(collective.elapsed_ns or 0 for collective in timed)
    for metric, column in (
        ("communication.waiting", [collective.wait_ns for collective in timed]),
        ("communication.transit", [collective.transit_ns for collective in timed]),
        ("communication.idle", [collective.idle_ns for collective in timed]),
    ):
        times = [time for time in column if time is not None]
        if elapsed and len(times) == len(timed):
            labels = {"shape": summary.shape}
            yield Value(metric=metric, value=sum(times) / elapsed, count=len(timed), labels=labels)


def _links(summary: DeviceSummary) -> Iterator[Value]:
    sizes: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for collective in summary.timeline.collectives or ():
        for link in collective.links:
            sizes[link.link] += int(link.size_bytes)
            times[link.link] += link.transit_ns
    for name, time_ns in sorted(times.items()):
        if time_ns > 0:
            labels = {"shape": summary.shape, "link": name}
            yield Value(metric="communication.link_bandwidth", value=sizes[name] / time_ns * 1e9, labels=labels)


def _judge_overlap(summary: DeviceSummary, limits: Limits) -> StepOutcome:
    """How much of the communication computing hides, and how much of the steps the rest takes."""
    parts = summary.parts()
    if parts is None:
        return StepOutcome()
    fused = several({"communication.fused": parts.fused_ns / parts.length_ns}, profiled(summary), count=summary.spans)
    if not parts.communication_ns:
        return StepOutcome(fused if parts.fused_ns else [])
    exposed = parts.exposed_communication_ns / parts.length_ns
    numbers = {
        "communication.hidden": 1.0 - parts.exposed_communication_ns / parts.communication_ns,
        "communication.exposed": exposed,
    }
    values = [*several(numbers, profiled(summary), count=summary.spans), *(fused if parts.fused_ns else [])]
    return StepOutcome(values, above("communication.exposed", exposed, limits, {"shape": summary.shape}))


def _judge_first_collectives(summary: DeviceSummary, limits: Limits) -> Iterator[Finding]:
    """Yield a word on a first collective that took many times as long as the others: the ranks did not begin together."""
    kinds: dict[str, list[Collective]] = {}
    for collective in summary.timeline.collectives or ():
        if collective.kind == "collective" and collective.elapsed_ns:
            kinds.setdefault(type_by_name(collective.name), []).append(collective)
    for kind, members in sorted(kinds.items()):
        if len(members) < _FEWEST_OF_A_KIND:
            continue
        first, *later = [collective.elapsed_ns or 0 for collective in members]
        middle = statistics.median(later)
        if first > limit("communication.first.info", limits) * middle:
            evidence: MaybeEvidence = {
                "collective": kind,
                "shape": summary.shape,
                "first [s]": first / 1e9,
                "median of the others [s]": middle / 1e9,
                **{f"{link.link} [B/s]": link.bandwidth for link in members[0].links},
            }
            yield finding("communication.first", "info", evidence)


def _slowest_ranks(summaries: Sequence[DeviceSummary]) -> list[Finding]:
    """Say of each kind of collective which rank spends most time in it; who spends least came last, and was waited for."""
    times: dict[str, dict[str, float]] = {}
    for summary in summaries:
        for kind, ns in summary.collectives.items():
            times.setdefault(kind, {})[summary.shape] = ns / summary.spans / 1e9
    findings = []
    for kind, by_rank in sorted(times.items()):
        if len(by_rank) > 1:
            evidence: MaybeEvidence = {
                "collective": kind,
                "longest": max(by_rank, key=by_rank.__getitem__),
                "shortest": min(by_rank, key=by_rank.__getitem__),
                **{f"{rank} [s]": seconds for rank, seconds in by_rank.items()},
            }
            findings.append(finding("collectives.slowest_rank", "info", evidence))
    return findings


@dataclass(frozen=True)
class SizeTimes:
    """One size in bytes: nanoseconds of each repetition on the rank that took longest."""

    size: int
    nanoseconds: Ints

    @property
    def seconds(self) -> float:
        """The median time."""
        return float(np.median(self.nanoseconds)) / 1e9


@dataclass(frozen=True)
class OperationTimes:
    """One operation over ``ranks`` ranks, by rising size; ``wrong`` are the sizes at which a rank got wrong numbers."""

    operation: Operation
    ranks: int
    sizes: tuple[SizeTimes, ...]
    wrong: tuple[int, ...]

    def bus_bandwidth(self, size: SizeTimes) -> float:
        """Bytes a second over the busiest link, comparable between operations and numbers of ranks."""
        return size.size / size.seconds * bus_factor(self.operation, self.ranks)

    def best(self) -> SizeTimes:
        """The size with the highest bandwidth."""
        return max(self.sizes, key=self.bus_bandwidth)

    def line(self) -> TransferLine | None:
        """What a size costs; None for fewer than three sizes."""
        if len(self.sizes) < _FEWEST_SIZES:
            return None
        bytes_sent = np.array([float(times.size) for times in self.sizes])
        return transfer_line(bytes_sent, np.array([times.seconds for times in self.sizes]))


@dataclass(frozen=True)
class Skew:
    """How far apart ranks come that did the same work: median seconds from the first to the last, and of the work itself.

    ``last`` is the rank that comes last nearly always, None where none does.
    """

    seconds: float
    work_seconds: float
    rounds: int
    last: int | None


def bus_factor(operation: Operation, ranks: int) -> float:
    """What turns bytes over time into the load of a link (nccl-tests, doc/PERFORMANCE.md).

    The size is that of the whole: of an all-gather what comes out, of a reduce-scatter what goes in.
    """
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def operation_times(reports: Sequence[RankReport]) -> list[OperationTimes]:
    """The operations that the backend has; the ranks' repetitions are matched by their order."""
    operations = []
    for operation in OPERATIONS:
        by_rank = [[sample for sample in report.timed if sample.operation == operation] for report in reports]
        by_size = list(zip(*by_rank))
        if by_size:
            sizes = (
                SizeTimes(ranks[0].size, np.max([rank.nanoseconds for rank in ranks], axis=0)) for ranks in by_size
            )
            wrong = (ranks[0].size for ranks in by_size if not all(rank.right for rank in ranks))
            operations.append(OperationTimes(operation, len(reports), tuple(sizes), tuple(wrong)))
    return operations


def skew(reports: Sequence[RankReport]) -> Skew:
    """How far apart the ranks come, round by round."""
    arrived = np.array([[meeting.arrived_ns for meeting in report.meetings] for report in reports])
    worked = np.array([[meeting.worked_ns for meeting in report.meetings] for report in reports])
    rounds = arrived.shape[1]
    times_last = np.bincount(arrived.argmax(axis=0), minlength=len(reports))
    last = int(times_last.argmax())
    return Skew(
        seconds=float(np.median(np.ptp(arrived, axis=0))) / 1e9,
        work_seconds=float(np.median(worked)) / 1e9,
        rounds=rounds,
        last=reports[last].rank if times_last[last] >= _MOSTLY * rounds else None,
    )
