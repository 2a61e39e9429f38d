"""Step 16: the bandwidth between the devices of a machine, the exposed part of communication, and stragglers."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.samples import SampleSet, pack
from perfgate.locale import Activity
from perfgate.measuring.checklist.collectives.job import OPERATIONS, Operation, Plan, RankReport, run_job, sizes_up_to
from perfgate.measuring.checklist.collectives.packets import judge_packets, judge_retransmissions
from perfgate.measuring.checklist.collectives.recorded_ranks import judge_ranks
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment
from perfgate.measuring.checklist.limits import MaybeEvidence, above, limit
from perfgate.measuring.checklist.recorded import collective_shares, profiled, waiting_shares
from perfgate.measuring.checklist.recorded_counters import add_rate, busy_window
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, not_applicable, unavailable
from perfgate.measuring.checklist.values import median
from perfgate.measuring.counting.collect import record_calls
from perfgate.stats.robust import TransferLine, transfer_line
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary, summarize
from perfgate.trace.model.readings import DIRECTIONS, Link, link_traffic, lost_packets

_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}
_MIB = 1 << 20
_TRACED_CALLS = 5
# The share of rounds in which a straggler is last: by chance one of two ranks is last in 18 of 20 with 0.04 %.
_MOSTLY = 0.9
_FEWEST_SIZES = 3
# From this share on, exposed communication is a matter of late ranks rather than of transfers.
_MOSTLY_WAITING = 0.5
# The links between devices; PCIe leads to the host (step 3).
_LINKS: tuple[Link, ...] = ("NIC", "RoCE", "HCCS")

Ints = npt.NDArray[np.int64]


class CommunicationStep:
    """Time collectives in a job of the workload's ranks; trace a workload that communicates itself."""

    card = card(16)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure; not applicable to a single rank unless the workload itself communicates."""
        ranks = context.workload.workload.ranks or context.device.visible_devices()
        if reason := _impossible(context, ranks):
            return unavailable(reason)
        outcome = context.outcome()
        _trace_overlap(outcome, context)
        if ranks > 1:
            context.progress(Activity("collectives between {ranks} processes", ranks=ranks))
            reports = experiment(context, partial(_run, context, ranks), failing="system.collectives-fail")
            if isinstance(reports, FailedExperiment):
                outcome.missing("communication.bus_bandwidth", reports.reason)
                return outcome if len(outcome.values) > 1 else unavailable(reports.reason)
            _judge_job(outcome, context, operation_times(reports), reports)
        return (
            outcome if outcome.values else not_applicable(Message("system.one-device", {"kind": context.device.kind}))
        )

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the collectives of every rank; not applicable if there is none."""
        outcome = context.outcome()
        _judge_recorded(outcome, context.summaries)
        return outcome if outcome.values else not_applicable(Message("system.no-collectives"))


STEP = CommunicationStep()


def _impossible(context: StepContext, ranks: int) -> Message | None:
    """Why the ranks cannot run here, None if they can; CPUs are shared, other devices are not."""
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
        # The ranks agree on the sizes that fit into their memory.
        sizes=sizes_up_to(4 * _MIB if quick else 1024 * _MIB),
        repetitions=20 if quick else 50,
        seconds=0.1 if quick else 1.0,
        rounds=20 if quick else 50,
        timeout_seconds=60.0,
    )
    return run_job(plan, ranks=ranks, folder=context.artifacts, limit_seconds=60.0 if quick else 600.0)


def _trace_overlap(outcome: StepOutcome, context: StepContext) -> None:
    """Trace some calls of a workload in a process group, on a device with a kernel timeline."""
    if not context.shows_kernels:
        return
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return
    shape = context.workload.shapes[0]
    context.progress(Activity("tracing the communication of shape {shape}", shape=shape))
    with quiet(), tempfile.TemporaryDirectory(dir=context.artifacts, prefix=".communication-") as folder:
        call = context.workload.caller(shape)
        trace = record_calls(context.device, call, calls=_TRACED_CALLS, folder=Path(folder), name="trace")
    _judge_recorded(outcome, summarize([trace.timeline]))


def _judge_job(
    outcome: StepOutcome, context: StepContext, operations: Sequence[OperationTimes], reports: Sequence[RankReport]
) -> None:
    backend = _BACKENDS[context.device.kind]
    for operation in operations:
        best = operation.best()
        bandwidth, count = operation.bus_bandwidth(best), operation.nanoseconds[best].size
        of_size = outcome.under(op=operation.operation, size=str(best))
        of_size.number("communication.bus_bandwidth", bandwidth, count=count)
        if operation.wrong:
            wrong: MaybeEvidence = {"operation": operation.operation, "first size [B]": operation.wrong[0]}
            outcome.note("communication.wrong_result", "severe", wrong)
    for name, why in reports[0].refused.items():
        outcome.note("communication.refused", "info", {"operation": name, "backend": backend, "why": why})
    peak = limit("communication.peak", context.limits)
    if peak > 0 and operations:
        # The first operation is the all-reduce.
        share = operations[0].bus_bandwidth(operations[0].best()) / peak
        outcome.under(op=operations[0].operation).number("communication.peak_share", share)
        outcome.below("communication.peak_share", share, {"ranks": len(reports)})
    meetings = skew(reports)
    outcome.number("communication.skew", meetings.seconds, count=meetings.rounds)
    judge_skew(outcome, meetings, context)
    for operation in operations:
        _add_line(outcome.under(op=operation.operation), operation)
    for operation in operations:
        for size, nanoseconds in operation.nanoseconds.items():
            labels = {"op": operation.operation, "size": str(size)}
            outcome.values.append(median("communication.time", nanoseconds / 1e9, labels))
            samples = pack(nanoseconds.astype(np.int64))
            outcome.samples.append(SampleSet(metric="communication.time", samples=samples, labels=labels))


def _add_line(outcome: StepOutcome, operation: OperationTimes) -> None:
    """Add the cost of a message by its size: a start-up time and a bandwidth."""
    line = operation.line()
    if line is None:
        outcome.missing(
            "communication.start_up", Message("system.too-few-sizes", {"count": len(operation.nanoseconds)})
        )
        return
    outcome.number("communication.start_up", line.start_up)
    if math.isfinite(line.bandwidth):
        outcome.number("communication.bandwidth", line.bandwidth)
    else:
        outcome.missing("communication.bandwidth", Message("system.no-rise"))
    # A fit below 0 is worse than a constant.
    outcome.numbers({"communication.fit": max(line.r2, 0.0), "communication.residual": line.residual})


def judge_skew(outcome: StepOutcome, meetings: Skew, context: StepContext) -> None:
    """Name the rank that is nearly always last; only informative on CPUs, which ranks share with other processes."""
    share = meetings.seconds / meetings.work_seconds if meetings.work_seconds else 0.0
    evidence: MaybeEvidence = {
        "rank": meetings.last,
        "skew [s]": meetings.seconds,
        "work [s]": meetings.work_seconds,
    }
    if meetings.last is not None and above("communication.slow_rank", share, context.limits, evidence):
        alone_on_device = "own_memory" in context.device.capabilities
        outcome.note("communication.slow_rank", "warning" if alone_on_device else "info", evidence)


def _judge_recorded(outcome: StepOutcome, summaries: Sequence[DeviceSummary]) -> None:
    """Judge every rank that communicated in a recording, and name the one that is last."""
    for summary, waiting in zip(summaries, waiting_shares(summaries)):
        rank = outcome.under(shape=summary.shape)
        for kind, ns in sorted(summary.collectives.items()):
            rank.under(collective=kind).number("communication.time", ns / summary.spans / 1e9, count=summary.spans)
        shares = collective_shares(summary)
        for part in ("waiting", "transit", "idle"):
            share = getattr(shares, part)
            if share is not None:
                rank.number(f"communication.{part}", share, count=shares.timed)
        _add_links(rank, summary)
        _add_traffic(rank, summary)
        judge_packets(rank, summary)
        _judge_overlap(outcome.under(**profiled(summary)), summary, waiting)
    judge_ranks(outcome, summaries)
    judge_retransmissions(outcome, summaries)
    _note_slowest_ranks(outcome, summaries)


def _add_links(outcome: StepOutcome, summary: DeviceSummary) -> None:
    sizes: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for collective in summary.timeline.collectives or ():
        for link in collective.links:
            sizes[link.link] += int(link.size_bytes)
            times[link.link] += link.transit_ns
    for name, time_ns in sorted(times.items()):
        if time_ns > 0:
            outcome.under(link=name).number("communication.link_bandwidth", sizes[name] / time_ns * 1e9)


def _add_traffic(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Add what each kind of link carried in the steps by the device's own counters, and judge the packets that it lost."""
    window, readings = busy_window(summary), summary.timeline.readings
    if window is None:
        return
    for name in _LINKS:
        link = outcome.under(link=name)
        for direction in DIRECTIONS:
            if (rates := readings.get(link_traffic(name, direction))) is not None:
                add_rate(link.under(direction=direction), "communication.link_traffic", rates, window)
        lost = readings[lost_packets(name)].risen_within(*window) if lost_packets(name) in readings else None
        if lost is not None:
            link.number("communication.lost_packets", lost)
            link.above("communication.lost_packets", lost, {"link": name, "packets": round(lost)})


def _judge_overlap(outcome: StepOutcome, summary: DeviceSummary, waiting: float | None) -> None:
    """Judge the exposed communication, and add the share hidden behind computing.

    ``waiting`` is the share of the time in collectives that a rank only waits for others.
    """
    parts = summary.parts()
    if parts is None:
        return
    if parts.communication_ns:
        exposed = parts.exposed_communication_ns / parts.length_ns
        hidden = 1.0 - parts.exposed_communication_ns / parts.communication_ns
        outcome.numbers({"communication.hidden": hidden, "communication.exposed": exposed}, count=summary.spans)
        is_exposed = outcome.above("communication.exposed", exposed, {"waiting": waiting})
        if is_exposed and waiting is not None and waiting > _MOSTLY_WAITING:
            outcome.note("communication.waiting", "warning", {"share": exposed * waiting})
    if parts.fused_ns:
        outcome.number("communication.fused", parts.fused_ns / parts.length_ns, count=summary.spans)


def _note_slowest_ranks(outcome: StepOutcome, summaries: Sequence[DeviceSummary]) -> None:
    """Name the ranks with the longest and shortest time in each kind of collective; the shortest arrived last."""
    times: dict[str, dict[str, float]] = {}
    for summary in summaries:
        for kind, ns in summary.collectives.items():
            times.setdefault(kind, {})[summary.shape] = ns / summary.spans / 1e9
    for kind, by_rank in sorted(times.items()):
        if len(by_rank) > 1:
            evidence: MaybeEvidence = {
                "collective": kind,
                "longest": max(by_rank, key=by_rank.__getitem__),
                "shortest": min(by_rank, key=by_rank.__getitem__),
                **{f"{rank} [s]": seconds for rank, seconds in by_rank.items()},
            }
            outcome.note("collectives.slowest_rank", "info", evidence)


@dataclass(frozen=True)
class OperationTimes:
    """One operation over ``ranks`` ranks: by increasing size in bytes, the nanoseconds of each repetition on the slowest rank.

    ``wrong`` are the sizes with wrong results on a rank.
    """

    operation: Operation
    ranks: int
    nanoseconds: Mapping[int, Ints]
    wrong: tuple[int, ...]

    def seconds(self, size: int) -> float:
        """The median time."""
        return float(np.median(self.nanoseconds[size])) / 1e9

    def bus_bandwidth(self, size: int) -> float:
        """Bytes a second over the busiest link, comparable between operations and numbers of ranks."""
        return size / self.seconds(size) * bus_factor(self.operation, self.ranks)

    def best(self) -> int:
        """The size with the highest bandwidth."""
        return max(self.nanoseconds, key=self.bus_bandwidth)

    def line(self) -> TransferLine | None:
        """The fitted cost by size; None for fewer than three sizes."""
        sizes = list(self.nanoseconds)
        if len(sizes) < _FEWEST_SIZES:
            return None
        return transfer_line(np.array(sizes, dtype=np.float64), np.array([self.seconds(size) for size in sizes]))


@dataclass(frozen=True)
class Skew:
    """The arrival skew of ranks after the same work: median seconds from first to last, and of the work itself.

    ``last`` is the rank that is nearly always last, None if there is none.
    """

    seconds: float
    work_seconds: float
    rounds: int
    last: int | None


def bus_factor(operation: Operation, ranks: int) -> float:
    """The factor from bytes per second to the load of a link (nccl-tests, doc/PERFORMANCE.md).

    The size is the total: the output of an all-gather, the input of a reduce-scatter.
    """
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def operation_times(reports: Sequence[RankReport]) -> list[OperationTimes]:
    """The operations of the backend; repetitions are matched between ranks by their order."""
    operations = []
    for operation in OPERATIONS:
        by_rank = [report.timed_of(operation) for report in reports]
        slowest: dict[int, Ints] = {}
        wrong: list[int] = []
        for ranks in zip(*by_rank):
            size = ranks[0].size
            slowest[size] = np.max([rank.nanoseconds for rank in ranks], axis=0)
            if not all(rank.right for rank in ranks):
                wrong.append(size)
        if slowest:
            operations.append(OperationTimes(operation, len(reports), slowest, tuple(wrong)))
    return operations


def skew(reports: Sequence[RankReport]) -> Skew:
    """The skew over all rounds."""
    arrived = np.array([report.arrived_ns for report in reports])
    worked = np.array([report.worked_ns for report in reports])
    rounds = arrived.shape[1]
    times_last = np.bincount(arrived.argmax(axis=0), minlength=len(reports))
    last = int(times_last.argmax())
    return Skew(
        seconds=float(np.median(np.ptp(arrived, axis=0))) / 1e9,
        work_seconds=float(np.median(worked)) / 1e9,
        rounds=rounds,
        last=reports[last].rank if times_last[last] >= _MOSTLY * rounds else None,
    )
