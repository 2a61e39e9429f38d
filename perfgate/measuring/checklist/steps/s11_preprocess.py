"""Step 11: the time of preprocessing, the part of it that the model waits for, and
whether the device is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.measuring.checklist.experiment import (
    FailedExperiment,
    agreement,
    experiment,
)
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
    unavailable,
)
from perfgate.measuring.timing.calls import CallBudget, compare, time_calls
from perfgate.measuring.timing.preprocessing import (
    Preprocessing,
    compare_pipeline,
    exposed_share,
)
from perfgate.measuring.workload.bound import POOL_SIZE, Stage, line_of
from perfgate.stats.arrays import Floats, Ints
from perfgate.stats.summary import quantile
from perfgate.system.garbage import quiet
from perfgate.trace.model.arithmetic import Intervals, overlap_length, union_length
from perfgate.trace.model.recording import ProfilerStep, Timeline

# torch.utils.data.dataloader wraps each batch in a record function of this name:
# "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" (torch 2.13,
# _BaseDataLoaderIter._profile_name).
_LOADING = "enumerate(DataLoader)#"


class _Effort(NamedTuple):
    """Seconds per shape for the stages, the model alone, the pipeline, and
    preprocessing on the device.
    """

    stages: float
    model: float
    pipeline: float
    device: float


_QUICK = _Effort(stages=0.4, model=0.3, pipeline=1.5, device=0.8)
_FULL = _Effort(stages=3.0, model=2.0, pipeline=10.0, device=5.0)


class PreprocessStep:
    """Stages one by one, then a pipeline against a model with ready inputs, then the
    device against the host.
    """

    card = card(11)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; not applicable to a workload without preprocessing."""
        if not context.workload.stages:
            return not_applicable(Message("times.no-preprocess"))
        effort = _QUICK if context.extent.quick else _FULL
        shape, outcome = context.workload.shapes[0], context.outcome()
        with quiet():
            of_shape = outcome.under(shape=shape)
            _measure_host(of_shape, context, shape, effort)
            if (
                on_device := context.workload.workload.preprocess_on_device
            ) is not None:
                _measure_device(of_shape, context, shape, effort, on_device)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the recorded loading: spans of the DataLoader, Preparing, nodes on the
        AI CPU.
        """
        outcome, reason = context.outcome(), Message("times.no-loading-recorded")
        for summary in context.summaries:
            rank = outcome.under(**profiled(summary))
            # When the host waited for a batch.
            events = summary.timeline.events.of_kind("host_op", "annotation")
            spans = events.select(
                events.is_named(lambda name: name.startswith(_LOADING))
            )
            windows = _windows(summary.timeline.steps or ())
            if len(spans) and windows is not None:
                waited_ns = overlap_length(spans.intervals, windows)
                steps = int(windows.start.size)
                waited = waited_ns / union_length(windows)
                rank.number("preprocess.loading_share", waited, count=steps)
                rank.above(
                    "preprocess.loading_share",
                    waited,
                    {
                        "op": spans.names[int(spans.name.min())],
                        "a step [s]": waited_ns / steps / 1e9,
                    },
                )
            elif len(spans):
                reason = Message("times.steps-without-share")
            if (share := preparing_share(summary.timeline)) is not None:
                rank.number("preprocess.preparing_share", share)
        return outcome.or_else(unavailable(reason))


STEP = PreprocessStep()


def _measure_host(
    outcome: StepOutcome, context: StepContext, shape: str, effort: _Effort
) -> None:
    device = context.device
    context.doing("timing the stages of preprocessing")
    preprocessing = Preprocessing(context.workload, shape)
    times_ns = _time_stages(preprocessing, context, effort.stages)
    for stage, column in zip(preprocessing.stages, times_ns.T):
        of_stage = outcome.under(stage=stage.name)
        of_stage.raw_samples("preprocess.time", column)
        of_stage.estimate("preprocess.time", quantile(column / 1e9, 0.5))
    medians: Floats = np.median(times_ns, axis=0) / 1e9
    slowest = preprocessing.stages[int(medians.argmax())]
    total = float(np.median(times_ns.sum(axis=1))) / 1e9
    calls = time_calls(
        context.workload.caller(shape),
        device,
        CallBudget(calls=3, seconds=effort.model),
    )
    share = total / (total + float(np.median(calls.wall)) / 1e9)
    context.doing("a pipeline that preprocesses one batch ahead")

    def feed(batch: Any) -> Any:
        return context.workload.invoke(device.to_device(batch))

    outcome.number("preprocess.share", share)
    measure = partial(
        compare_pipeline,
        preprocessing,
        feed,
        device,
        seconds=effort.pipeline,
        seed=context.seed,
    )
    pipeline = experiment(context, measure, failing="times.pipeline-fails")
    if isinstance(pipeline, FailedExperiment):
        outcome.missing("preprocess.exposed_share", pipeline.reason)
        return
    exposed, low, high = exposed_share(pipeline)
    outcome.number(
        "preprocess.exposed_share", exposed, count=pipeline.quads, interval=(low, high)
    )
    # The lower bound is judged, so that noise alone does not give a finding. The model
    # cannot wait longer than preprocessing takes; any further loss is contention with a
    # thread on its own cores.
    evidence: MaybeEvidence = {
        "stage": slowest.name,
        "stage [s]": float(medians.max()),
        "preprocessing [s]": total,
        "model [s]": pipeline.second_ns / 1e9,
        "pipeline [s]": pipeline.first_ns / 1e9,
        "preprocess.share": share,
        "exposed share": exposed,
        "line": line_of(slowest.run, context.root),
    }
    waited = min(low, total * 1e9 / pipeline.first_ns)
    is_exposed = outcome.above("preprocess.exposed_share", waited, evidence)
    if not is_exposed and low > outcome.limit("preprocess.exposed_share.warning"):
        outcome.note("preprocess.contention", "info", evidence)


def _time_stages(
    preprocessing: Preprocessing, context: StepContext, seconds: float
) -> Ints:
    """Preprocess each raw batch of the pool at least once, after an untimed one; an
    array (batches, stages).
    """
    clock = context.device.clock_ns
    preprocessing()
    preprocessing.taken(1)
    until, batches = clock() + int(seconds * 1e9), 0
    while batches < POOL_SIZE or clock() < until:
        preprocessing()
        batches += 1
    return preprocessing.taken(batches)


def _measure_device(
    outcome: StepOutcome,
    context: StepContext,
    shape: str,
    effort: _Effort,
    on_device: Callable[[Any], Any],
) -> None:
    """Compare from raw batch to output, without overlap."""
    workload, device = context.workload, context.device
    context.doing("preprocessing on the device")
    by_device = Preprocessing(
        workload,
        shape,
        (Stage("device", lambda raw: on_device(device.to_device(raw))),),
    )
    by_host = Preprocessing(workload, shape)
    batches = (device.to_device(by_host()), by_device())
    if workload.workload.train_step is not None:
        # A call trains the model, so inputs are compared instead of outputs.
        agreed = agreement(*batches)
    else:
        answers = [device.to_host(workload.invoke(batch)) for batch in batches]
        device.synchronize()
        agreed = agreement(*answers)
    versus = compare(
        lambda: workload.invoke(device.to_device(by_host())),
        lambda: workload.invoke(by_device()),
        device,
        seconds=effort.device,
        seed=context.seed,
    )
    evidence: MaybeEvidence = {
        "preprocess.device_speedup": versus.speedup,
        "speedup.low": versus.low,
        "speedup.high": versus.high,
    }
    if agreed.comparable:
        evidence = {
            **evidence,
            "difference": agreed.absolute,
            "relative difference": agreed.relative,
        }
    outcome.speedup("preprocess.device_speedup", versus)
    # Recommended only if certainly faster and with the same output.
    if not agreed.within(context.limit("preprocess.agreement")):
        outcome.note("preprocess.device_differs", "warning", evidence)
    elif versus.faster:
        outcome.note("preprocess.on_device", "info", evidence)


def _windows(steps: Sequence[ProfilerStep]) -> Intervals | None:
    """The host time of the steps; None if unknown for all of them."""
    starts, ends = [], []
    for step in steps:
        if step.start_ns is not None and step.end_ns is not None:
            starts.append(step.start_ns)
            ends.append(step.end_ns)
    if not starts:
        return None
    return Intervals(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))


def preparing_share(timeline: Timeline) -> float | None:
    """The share of the steps before the device's first kernel; None if no step has it."""
    preparing_ns = length_ns = 0
    for step in timeline.steps or ():
        if step.preparing_ns is not None and step.length_ns is not None:
            preparing_ns += step.preparing_ns
            length_ns += step.length_ns
    if length_ns > 0:
        return preparing_ns / length_ns
    return None
