"""The checklist on a recording that was made elsewhere: what it can say, and why it says no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import (
    CounterSet,
    Finding,
    KernelTimes,
    OperatorRow,
    ShapeKernels,
    StepResult,
    StepStatus,
    Value,
)
from perfgate.measuring.checklist.runner import find_steps
from perfgate.measuring.checklist.step import RecordedStep, RecordingContext, status_of
from perfgate.measuring.checklist.steps._kernel_runs import KernelRuns, judge_long_runs, judge_missing
from perfgate.measuring.checklist.steps._operators import judge_operators, judge_unstable
from perfgate.measuring.checklist.steps.s01_latency import QUANTILES, latency_quantile
from perfgate.measuring.checklist.steps.s02_utilization import judge_parts
from perfgate.measuring.counting.counters import with_steady
from perfgate.trace.kernel_times import kernel_times
from perfgate.trace.kernels import KERNEL_METRICS, with_kernels
from perfgate.trace.summary import DeviceSummary

# Says of a number that the profiler's own cost is in it.
PROFILED = {"under": "profiler"}

_NO_STEPS = (
    "the recording marks no steps; call prof.step() after every iteration, so that a step can be told from the next"
)
_NO_WINDOWS = "the recording does not say when its steps began and ended"
_NO_DEVICE = "the recording shows nothing that ran on a device"
_NO_DEVICE_TIMES = "the recording does not say what the device did in each of its steps"
_NO_BEGIN = (
    "nothing says when the first step began: there is no timeline, and the table of steps has no column Preparing"
)
_NO_COPIES = "the recording has no timeline of the device, and tables of kernels hold no copies"
_NO_OPERATORS = "the recording holds no operator of its steps"
_ONE_BATCH = "a recording has one batch size"
_TAKES_CALLS = "it takes calls made here, with settings of their own; a recording shows calls that were made"


@dataclass(frozen=True)
class RecordedChecklist:
    """What a recording gives a run document."""

    steps: list[StepResult]
    counters: list[CounterSet]
    operators: list[OperatorRow]
    kernel_times: list[KernelTimes]


@dataclass
class _Gathered:
    """Values and findings of one step; ``missing`` says for what there is no value."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    kernels: list[ShapeKernels] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def lacks(self, metrics: Iterable[str], summary: DeviceSummary, reason: str) -> None:
        """Note that metrics are not available, and why."""
        labels = {"shape": summary.shape}
        self.values += [Value(metric=name, value=None, labels=labels, reason=reason) for name in metrics]
        self.missing.append(reason)


def recorded_checklist(context: RecordingContext) -> RecordedChecklist:
    """Return the steps of a recording, its counters and its operators; a shape is a rank or device."""
    summaries, workload = context.summaries, context.workload
    operators: list[OperatorRow] = []
    counters = [_counters(summary, workload) for summary in summaries]
    gathered = {
        1: _latency(summaries),
        2: _utilization(summaries, context.limits),
        3: _transfer(summaries),
        4: _operators(context, counters, operators),
    }
    steps = [_result(number, workload, found) for number, found in gathered.items()]
    steps += [_left_out(5, workload, _ONE_BATCH), *_judged(context)]
    times = [found for summary in summaries if (found := kernel_times(summary, workload)) is not None]
    return RecordedChecklist(steps, [found for found in counters if found.values], operators, times)


def _judged(context: RecordingContext) -> list[StepResult]:
    """Return steps 6 to 19, of which some look for something that a recording may hold."""
    known = find_steps()
    found = []
    for number in range(6, 20):
        step: object = known.get(number)
        if isinstance(step, RecordedStep):
            outcome = step.judge_recording(context)
            found.append(
                StepResult(
                    number=number,
                    slug=card(number).slug,
                    workload=context.workload,
                    status=outcome.status,
                    reason=outcome.reason,
                    values=outcome.values,
                    findings=outcome.findings,
                )
            )
        else:
            found.append(_left_out(number, context.workload, _TAKES_CALLS))
    return found


def _left_out(number: int, workload: str, reason: str) -> StepResult:
    return StepResult(number=number, slug=card(number).slug, workload=workload, status="not_applicable", reason=reason)


def _result(number: int, workload: str, found: _Gathered) -> StepResult:
    """A step that lacks some of its values says why; one that lacks all of them is not there."""
    any_value = any(value.value is not None for value in found.values)
    status: StepStatus = status_of(found.findings) if any_value else "unavailable"
    if not any_value and set(found.missing) <= {_NO_DEVICE}:
        status = "not_applicable"
    return StepResult(
        number=number,
        slug=card(number).slug,
        workload=workload,
        status=status,
        reason=None if any_value else "; ".join(dict.fromkeys(found.missing)),
        values=found.values,
        findings=found.findings,
        kernels=found.kernels,
    )


def _latency(summaries: Sequence[DeviceSummary]) -> _Gathered:
    """Take the lengths of profiler steps for latencies of calls; the profiler's cost is in them, and the label says so."""
    found = _Gathered()
    metrics = (*QUANTILES, "latency.max")
    for summary in summaries:
        if summary.unit == "whole recording":
            found.lacks(metrics, summary, _NO_STEPS)
        elif (lengths := summary.lengths()) is None:
            found.lacks(metrics, summary, _NO_WINDOWS)
        else:
            labels = {"shape": summary.shape, **PROFILED}
            seconds = np.array(lengths) / 1e9
            found.values += [latency_quantile(name, seconds, labels) for name in QUANTILES]
            found.values.append(
                Value(metric="latency.max", value=float(seconds.max()), count=int(seconds.size), labels=labels)
            )
    return found


def _utilization(summaries: Sequence[DeviceSummary], limits: Mapping[str, float]) -> _Gathered:
    found = _Gathered()
    for summary in summaries:
        parts = summary.parts()
        if parts is None:
            reason = _NO_DEVICE if summary.on_host else _device_times_missing(summary)
            found.lacks(("utilization.busy", "utilization.gap"), summary, reason)
            continue
        labels = {"shape": summary.shape, **PROFILED}
        kernels = parts.computing_ns + parts.exposed_communication_ns
        shares = {
            "utilization.busy": kernels / parts.length_ns,
            "utilization.computing": parts.computing_ns / parts.length_ns,
            "utilization.free": parts.free_ns / parts.length_ns,
        }
        gap = (parts.length_ns - kernels) / summary.spans / 1e9
        found.values += [
            Value(metric=metric, value=value, count=summary.spans, labels=labels)
            for metric, value in {**shares, "utilization.gap": gap}.items()
        ]
        found.findings += judge_parts(parts, summary.shape, limits)
    return found


def _device_times_missing(summary: DeviceSummary) -> str:
    if summary.unit == "whole recording":
        return _NO_STEPS
    known = all(step.computing_ns is not None for step in summary.steps)
    return _NO_BEGIN if known else _NO_DEVICE_TIMES


def _transfer(summaries: Sequence[DeviceSummary]) -> _Gathered:
    """Only what no kernel hides is in a recording; what copying costs a call takes a call without it."""
    found = _Gathered()
    for summary in summaries:
        parts = summary.parts()
        if summary.on_host:
            found.lacks(("transfer.exposed_share",), summary, _NO_DEVICE)
        elif parts is None:
            found.lacks(("transfer.exposed_share",), summary, _device_times_missing(summary))
        elif parts.exposed_copies_ns is None:
            found.lacks(("transfer.exposed_share",), summary, _NO_COPIES)
        else:
            share = parts.exposed_copies_ns / parts.length_ns
            labels = {"shape": summary.shape, **PROFILED}
            found.values.append(Value(metric="transfer.exposed_share", value=share, count=summary.spans, labels=labels))
    return found


def _operators(context: RecordingContext, counters: Sequence[CounterSet], rows: list[OperatorRow]) -> _Gathered:
    """Judge the operators of every rank as those of a measured shape, and add their rows."""
    found = _Gathered()
    names: set[str] = set()
    for summary, counted in zip(context.summaries, counters):
        if not summary.totals:
            found.lacks(("ops.coverage", "ops.kernel_time"), summary, _NO_OPERATORS)
            continue
        judged = judge_operators(
            summary.totals,
            workload=context.workload,
            shape=summary.shape,
            calls=summary.spans,
            counted=summary.counted,
            limits=context.limits,
        )
        found.values += judged.values
        found.findings += [*judged.findings, *judge_unstable(counted)]
        rows += judged.operators
        runs = KernelRuns(summary.shape)
        for part in summary.work:
            runs.add(part.inside(), calls=summary.spans)
        names |= runs.names
        found.values.append(runs.value())
        found.kernels += runs.kept()
        found.findings += judge_long_runs(runs, lines={}, limits=context.limits)
    if names:
        found.findings += judge_missing(context.expected_kernels, names)
    return found


def _counters(summary: DeviceSummary, workload: str) -> CounterSet:
    """Count what one step runs; of a CPU its framework operators."""
    repeats = 0 if summary.unit == "whole recording" else summary.spans
    empty = CounterSet(workload=workload, shape=summary.shape, repeats=repeats, values={}, ops=[])
    if not summary.works or (summary.absent == frozenset(KERNEL_METRICS) and not summary.on_host):
        return empty
    return with_steady(with_kernels(empty, list(summary.works), absent=summary.absent))
