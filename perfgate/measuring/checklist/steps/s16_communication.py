"""Step 16: the bandwidth between the devices of a machine, the exposed part of
communication, and stragglers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec import structs

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Severity
from perfgate.measuring.checklist.collectives.job import (
    OPERATIONS,
    Operation,
    Plan,
    RankReport,
    run_job,
    sizes_up_to,
)
from perfgate.measuring.checklist.collectives.recorded import judge_recorded_ranks
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
    unavailable,
)
from perfgate.measuring.counting.collect import trace_calls
from perfgate.measuring.devices.torch_backends import TORCH_BACKENDS
from perfgate.stats.arrays import Ints
from perfgate.stats.robust import TransferLine, transfer_line
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import summarize

_MIB = 1 << 20
# The share of rounds in which a straggler is last: by chance one of two ranks is last
# in 18 of 20 with 0.04 %.
_MOSTLY = 0.9
_FEWEST_SIZES = 3


class CommunicationStep:
    """Time collectives in a job of the workload's ranks; trace a workload that
    communicates itself.
    """

    card = card(16)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure; not applicable to a single rank unless the workload itself
        communicates.
        """
        ranks = context.workload.workload.ranks or context.device.visible_devices()
        if reason := _impossible(context, ranks):
            return unavailable(reason)
        outcome = context.outcome()
        _trace_overlap(outcome, context)
        if ranks > 1:
            context.doing("collectives between {ranks} processes", ranks=ranks)
            reports = experiment(
                context,
                partial(_run, context, ranks),
                failing="system.collectives-fail",
            )
            if isinstance(reports, FailedExperiment):
                outcome.missing("communication.bus_bandwidth", reports.reason)
                if len(outcome.values) > 1:
                    return outcome
                return unavailable(reports.reason)
            _judge_job(outcome, context, operation_times(reports), reports)
        return outcome.or_else(
            not_applicable(Message("system.one-device", {"kind": context.device.kind}))
        )

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the collectives of every rank; not applicable if there is none."""
        outcome = context.outcome()
        judge_recorded_ranks(outcome, context.summaries)
        return outcome.or_else(not_applicable(Message("system.no-collectives")))


STEP = CommunicationStep()


def _impossible(context: StepContext, ranks: int) -> Message | None:
    """Why the ranks cannot run here, None if they can; CPUs are shared, other devices
    are not.
    """
    device, visible = context.device, context.device.visible_devices()
    if ranks > 1 and TORCH_BACKENDS.get(device.kind) is None:
        return Message("system.no-backend", {"kind": device.kind})
    if ranks > visible and "own_memory" in device.capabilities:
        return Message(
            "system.too-few-devices",
            {"ranks": ranks, "seen": visible, "kind": device.kind},
        )
    return None


def _run(context: StepContext, ranks: int) -> list[RankReport]:
    # The ranks agree on the sizes that fit into their memory.
    backend = TORCH_BACKENDS[context.device.kind]
    plan = Plan(
        kind=context.device.kind,
        backend=backend.collectives,
        extension=backend.extension,
        sizes=sizes_up_to(1024 * _MIB),
        repetitions=50,
        seconds=1.0,
        rounds=50,
        timeout_seconds=60.0,
    )
    limit_seconds = 600.0
    if context.extent.quick:
        plan = structs.replace(
            plan, sizes=sizes_up_to(4 * _MIB), repetitions=20, seconds=0.1, rounds=20
        )
        limit_seconds = 60.0
    return run_job(
        plan, ranks=ranks, folder=context.artifacts, limit_seconds=limit_seconds
    )


def _trace_overlap(outcome: StepOutcome, context: StepContext) -> None:
    """Trace some calls of a workload in a process group, on a device with a kernel
    timeline.
    """
    if not context.shows_kernels:
        return
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return
    shape = context.workload.shapes[0]
    context.doing("tracing the communication of shape {shape}", shape=shape)
    with quiet():
        call = context.workload.caller(shape)
        trace = trace_calls(context.device, call, calls=5, within=context.artifacts)
    judge_recorded_ranks(outcome, summarize([trace.timeline]))


def _judge_job(
    outcome: StepOutcome,
    context: StepContext,
    operations: Sequence[OperationTimes],
    reports: Sequence[RankReport],
) -> None:
    backend = TORCH_BACKENDS[context.device.kind].collectives
    for operation in operations:
        best = operation.best()
        bandwidth = operation.bus_bandwidth(best)
        count = operation.nanoseconds[best].size
        of_size = outcome.under(op=operation.operation, size=str(best))
        of_size.number("communication.bus_bandwidth", bandwidth, count=count)
        if operation.wrong:
            outcome.note(
                "communication.wrong_result",
                "severe",
                {
                    "operation": operation.operation,
                    "first size [B]": operation.wrong[0],
                },
            )
    for name, why in reports[0].refused.items():
        outcome.note(
            "communication.refused",
            "info",
            {"operation": name, "backend": backend, "why": why},
        )
    peak = context.limit("communication.peak")
    if peak > 0 and operations:
        # The first operation is the all-reduce.
        share = operations[0].bus_bandwidth(operations[0].best()) / peak
        outcome.under(op=operations[0].operation).number(
            "communication.peak_share", share
        )
        outcome.below("communication.peak_share", share, {"ranks": len(reports)})
    meetings = skew(reports)
    outcome.number("communication.skew", meetings.seconds, count=meetings.rounds)
    judge_skew(outcome, meetings, context)
    for operation in operations:
        _add_line(outcome.under(op=operation.operation), operation)
    for operation in operations:
        for size, nanoseconds in operation.nanoseconds.items():
            of_size = outcome.under(op=operation.operation, size=str(size))
            of_size.median("communication.time", nanoseconds / 1e9)
            of_size.raw_samples("communication.time", nanoseconds.astype(np.int64))


def _add_line(outcome: StepOutcome, operation: OperationTimes) -> None:
    """Add the cost of a message by its size: a start-up time and a bandwidth."""
    line = operation.line()
    if line is None:
        outcome.missing(
            "communication.start_up",
            Message("system.too-few-sizes", {"count": len(operation.nanoseconds)}),
        )
        return
    outcome.number("communication.start_up", line.start_up)
    if math.isfinite(line.bandwidth):
        outcome.number("communication.bandwidth", line.bandwidth)
    else:
        outcome.missing("communication.bandwidth", Message("system.no-rise"))
    # A fit below 0 is worse than a constant.
    outcome.numbers(
        {
            "communication.fit": max(line.r2, 0.0),
            "communication.residual": line.residual,
        }
    )


def judge_skew(outcome: StepOutcome, meetings: Skew, context: StepContext) -> None:
    """Name the rank that is nearly always last; only informative on CPUs, which ranks
    share with other processes.
    """
    share = 0.0
    if meetings.work_seconds:
        share = meetings.seconds / meetings.work_seconds
    if meetings.last is not None and share > outcome.limit(
        "communication.slow_rank.warning"
    ):
        severity: Severity = (
            "warning" if "own_memory" in context.device.capabilities else "info"
        )
        outcome.note(
            "communication.slow_rank",
            severity,
            {
                "rank": meetings.last,
                "skew [s]": meetings.seconds,
                "work [s]": meetings.work_seconds,
            },
        )


class OperationTimes(NamedTuple):
    """One operation over ``ranks`` ranks: by increasing size in bytes, the nanoseconds
    of each repetition on the slowest rank.

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
        """Bytes a second over the busiest link, comparable between operations and
        numbers of ranks.
        """
        return size / self.seconds(size) * bus_factor(self.operation, self.ranks)

    def best(self) -> int:
        """The size with the highest bandwidth."""
        return max(self.nanoseconds, key=self.bus_bandwidth)

    def line(self) -> TransferLine | None:
        """The fitted cost by size; None for fewer than three sizes."""
        if len(self.nanoseconds) < _FEWEST_SIZES:
            return None
        sizes = np.array(list(self.nanoseconds), dtype=np.float64)
        return transfer_line(sizes, np.array(list(map(self.seconds, self.nanoseconds))))


class Skew(NamedTuple):
    """The arrival skew of ranks after the same work: median seconds from first to last,
    and of the work itself.

    ``last`` is the rank that is nearly always last, None if there is none.
    """

    seconds: float
    work_seconds: float
    rounds: int
    last: int | None


def bus_factor(operation: Operation, ranks: int) -> float:
    """The factor from bytes per second to the load of a link (nccl-tests,
    doc/PERFORMANCE.md).

    The size is the total: the output of an all-gather, the input of a reduce-scatter.
    """
    rounds = 2 if operation == "all_reduce" else 1
    return rounds * (ranks - 1) / ranks


def operation_times(reports: Sequence[RankReport]) -> list[OperationTimes]:
    """The operations of the backend; repetitions are matched between ranks by their
    order.
    """
    operations = []
    for operation in OPERATIONS:
        by_rank = [report.timed_of(operation) for report in reports]
        slowest = {}
        wrong = []
        for samples in zip(*by_rank):
            size = samples[0].size
            slowest[size] = np.max([sample.nanoseconds for sample in samples], axis=0)
            if not all(sample.right for sample in samples):
                wrong.append(size)
        if slowest:
            operations.append(
                OperationTimes(operation, len(reports), slowest, tuple(wrong))
            )
    return operations


def skew(reports: Sequence[RankReport]) -> Skew:
    """The skew over all rounds."""
    arrived = np.array([report.arrived_ns for report in reports])
    worked = np.array([report.worked_ns for report in reports])
    rounds = arrived.shape[1]
    times_last = np.bincount(arrived.argmax(axis=0), minlength=len(reports))
    last: int | None = None
    if times_last.max() >= _MOSTLY * rounds:
        last = reports[int(times_last.argmax())].rank
    return Skew(
        seconds=float(np.median(np.ptp(arrived, axis=0))) / 1e9,
        work_seconds=float(np.median(worked)) / 1e9,
        rounds=rounds,
        last=last,
    )
