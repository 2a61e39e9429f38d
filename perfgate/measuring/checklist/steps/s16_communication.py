"""Step 16: how fast the devices of a machine exchange data, how much of it hides behind computing, and who comes last."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, SampleSet, Severity, Value
from perfgate.document.samples import pack
from perfgate.measuring.checklist.collectives.job import run_job
from perfgate.measuring.checklist.collectives.plan import Plan, RankReport, sizes_up_to
from perfgate.measuring.checklist.collectives.results import OperationTimes, SizeTimes, Skew, operation_times, skew
from perfgate.measuring.checklist.limits import above, below, limit, noticed
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._recorded_collectives import recorded_communication
from perfgate.measuring.counting.collect import record_calls
from perfgate.measuring.timing.quiet import quiet
from perfgate.stats.summary import CONFIDENCE, quantile
from perfgate.trace.read import read_recording
from perfgate.trace.summary import summarize

_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}
_MIB = 1 << 20
_TRACED_CALLS = 5
_ALONE = (
    "one process has nobody to talk to, and this one sees one device of kind {kind}; where the workload is spread over "
    "several, write e.g. ranks=2 in its Workload"
)
_NO_COLLECTIVES = "the recording holds no collective"


class CommunicationStep:
    """Time collectives in a job of the workload's ranks; trace the workload where it communicates itself."""

    card = card(16)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure; not applicable where there is one rank and the workload itself does not communicate."""
        ranks = context.workload.workload.ranks or context.device.visible_devices()
        if why := _impossible(context, ranks):
            return StepOutcome(status="unavailable", reason=why)
        values, findings = _overlap(context)
        samples: list[SampleSet] = []
        if ranks > 1:
            context.progress(f"collectives between {ranks} processes")
            reports = _run(context, ranks)
            operations = operation_times(reports)
            met = skew(reports)
            values += [*_job_values(operations, met, context.limits)]
            findings += [*_judge_job(context, operations, reports, met)]
            samples += [_samples(operation, size) for operation in operations for size in operation.sizes]
        if not values:
            return StepOutcome(status="not_applicable", reason=_ALONE.format(kind=context.device.kind))
        return StepOutcome(status=status_of(findings), values=values, findings=findings, samples=samples)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the collectives of every rank; not applicable where there is none."""
        values, findings = recorded_communication(context.summaries, context.limits)
        if not values:
            return StepOutcome(status="not_applicable", reason=_NO_COLLECTIVES)
        return StepOutcome(status=status_of(findings), values=values, findings=findings)


STEP = CommunicationStep()


def _impossible(context: StepContext, ranks: int) -> str | None:
    """Return why so many ranks cannot run here, None where they can; CPUs are shared, other devices are not."""
    device, seen = context.device, context.device.visible_devices()
    if ranks > 1 and device.kind not in _BACKENDS:
        return f"torch.distributed has no backend for devices of kind {device.kind}"
    if ranks > seen and "own_memory" in device.capabilities:
        return f"the workload has ranks={ranks}, and this process sees {seen} devices of kind {device.kind}"
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


def _overlap(context: StepContext) -> tuple[list[Value], list[Finding]]:
    """Trace some calls of a workload that is in a group of processes, on a device that shows its kernels."""
    if "kernel_timeline" not in context.device.capabilities or not _in_a_group():
        return [], []
    shape = context.workload.shapes[0]
    context.progress(f"tracing the communication of shape {shape}")
    with quiet(), tempfile.TemporaryDirectory(dir=context.artifacts, prefix=".communication-") as folder:
        call = context.workload.caller(shape)
        trace = record_calls(context.device, call, calls=_TRACED_CALLS, folder=Path(folder), name="trace")
        timelines = read_recording(trace.path).timelines
    return recorded_communication(summarize(timelines), context.limits)


def _in_a_group() -> bool:
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def _job_values(operations: Sequence[OperationTimes], met: Skew, limits: dict[str, float]) -> Iterator[Value]:
    for operation in operations:
        best = operation.best()
        yield Value(
            metric="communication.bus_bandwidth",
            value=operation.bus_bandwidth(best),
            count=best.nanoseconds.size,
            labels={"op": operation.operation, "size": str(best.size)},
        )
    if (share := _peak_share(operations, limits)) is not None:
        yield Value(metric="communication.peak_share", value=share, labels={"op": operations[0].operation})
    yield Value(metric="communication.skew", value=met.seconds, count=met.rounds)
    for operation in operations:
        yield from _line_values(operation)
    for operation in operations:
        yield from (_time(operation, size) for size in operation.sizes)


def _line_values(operation: OperationTimes) -> Iterator[Value]:
    labels: dict[str, str] = {"op": operation.operation}
    line = operation.line()
    if line is None:
        why = f"{len(operation.sizes)} sizes fit into memory and time, a line takes three"
        yield Value(metric="communication.start_up", value=None, labels=labels, reason=why)
        return
    yield Value(metric="communication.start_up", value=line.start_up, labels=labels)
    if math.isfinite(line.bandwidth):
        yield Value(metric="communication.bandwidth", value=line.bandwidth, labels=labels)
    else:
        why = "a larger message took no longer than a small one"
        yield Value(metric="communication.bandwidth", value=None, labels=labels, reason=why)
    # Below 0 the line is worse than a constant: it describes nothing.
    yield Value(metric="communication.fit", value=max(line.r2, 0.0), labels=labels)
    yield Value(metric="communication.residual", value=line.residual, labels=labels)


def _time(operation: OperationTimes, size: SizeTimes) -> Value:
    found = quantile(size.nanoseconds / 1e9, 0.5)
    return Value(
        metric="communication.time",
        value=size.seconds,
        interval=found.interval,
        confidence=CONFIDENCE,
        count=found.size,
        labels={"op": operation.operation, "size": str(size.size)},
    )


def _samples(operation: OperationTimes, size: SizeTimes) -> SampleSet:
    labels = {"op": operation.operation, "size": str(size.size)}
    return SampleSet(metric="communication.time", samples=pack(size.nanoseconds.astype(np.int64)), labels=labels)


def _peak_share(operations: Sequence[OperationTimes], limits: dict[str, float]) -> float | None:
    """Return the bus bandwidth of the first operation, the all-reduce, over the peak; None where no peak is known."""
    peak = limit("communication.peak", limits)
    return operations[0].bus_bandwidth(operations[0].best()) / peak if peak > 0 and operations else None


def _judge_job(
    context: StepContext, operations: Sequence[OperationTimes], reports: Sequence[RankReport], met: Skew
) -> Iterator[Finding]:
    for operation in operations:
        if operation.wrong:
            evidence: dict[str, Evidence] = {"operation": operation.operation, "first size [B]": operation.wrong[0]}
            yield noticed("communication.wrong_result", "severe", evidence)
    for name, why in reports[0].refused.items():
        backend = _BACKENDS[context.device.kind]
        yield noticed("communication.refused", "info", {"operation": name, "backend": backend, "why": why})
    if (share := _peak_share(operations, context.limits)) is not None:
        yield from below("communication.peak_share", share, given=context.limits, evidence={"ranks": len(reports)})
    yield from judge_skew(met, context)


def judge_skew(met: Skew, context: StepContext) -> list[Finding]:
    """Name the rank that nearly always comes last; ranks on CPUs share them with others, so there it only informs."""
    share = met.seconds / met.work_seconds if met.work_seconds else 0.0
    if met.last is None or not above(
        "communication.slow_rank", share, given=context.limits, evidence={"rank": met.last}
    ):
        return []
    evidence: dict[str, Evidence] = {"rank": met.last, "skew [s]": met.seconds, "work [s]": met.work_seconds}
    severity: Severity = "warning" if "own_memory" in context.device.capabilities else "info"
    return [noticed("communication.slow_rank", severity, evidence)]
