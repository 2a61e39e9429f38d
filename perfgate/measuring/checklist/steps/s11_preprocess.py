"""Step 11: what preprocessing takes, how much of it the model waits for, and whether the device does it faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, SampleSet, Value
from perfgate.document.samples import pack
from perfgate.measuring.checklist.agreement import Agreement, agreement
from perfgate.measuring.checklist.limits import above, limit, noticed
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._loading import judge_loading
from perfgate.measuring.timing.calls import CallBudget, time_calls
from perfgate.measuring.timing.pipeline import Exposed, measure_exposed
from perfgate.measuring.timing.preprocessing import Ints, Preprocessing
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.versus import Versus, compare
from perfgate.measuring.workload.bound import POOL_SIZE
from perfgate.measuring.workload.stages import Stage, line_of
from perfgate.stats.summary import CONFIDENCE, quantile

Run = Callable[[Any], Any]

_NOTHING_GIVEN = (
    "the workload gives no preprocess, so its inputs are taken as ready; give it preprocess=function, or a mapping of "
    "names to functions, to have it measured"
)


@dataclass(frozen=True)
class _Effort:
    """Seconds for the stages, the model alone, the pipeline and the device's way, of each shape."""

    stages: float
    model: float
    pipeline: float
    device: float


_QUICK = _Effort(stages=0.4, model=0.3, pipeline=1.5, device=0.8)
_FULL = _Effort(stages=3.0, model=2.0, pipeline=10.0, device=5.0)


class _Stages(NamedTuple):
    """The medians of the stages and of the whole, in seconds, and which stage takes most."""

    medians: dict[str, float]
    whole: float

    @property
    def slowest(self) -> str:
        return max(self.medians, key=lambda name: self.medians[name])


@dataclass
class _Gathered:
    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    samples: list[SampleSet] = field(default_factory=list)


class PreprocessStep:
    """Stages one by one, then a pipeline against a model that is fed, then the device's way against the host's."""

    card = card(11)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; not applicable where the workload gives no preprocessing."""
        if not context.workload.stages:
            return StepOutcome(status="not_applicable", reason=_NOTHING_GIVEN)
        effort = _QUICK if context.quick else _FULL
        gathered = _Gathered()
        shape = context.workload.shapes[0]
        with quiet():
            _measure_host(context, shape, effort, gathered)
            if (on_device := context.workload.workload.preprocess_on_device) is not None:
                _measure_device(context, shape, effort, gathered, on_device)
        return StepOutcome(
            status=status_of(gathered.findings),
            values=gathered.values,
            findings=gathered.findings,
            samples=gathered.samples,
        )

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge what a recording tells of loading: spans of the DataLoader, Preparing, nodes on the AI CPU."""
        return judge_loading(context)


def _measure_host(context: StepContext, shape: str, effort: _Effort, gathered: _Gathered) -> None:
    device, labels = context.device, {"shape": shape}
    context.progress("timing the stages of preprocessing")
    preprocessing = Preprocessing(context.workload, device, shape)
    taken = _time_stages(preprocessing, context, effort.stages)
    stages = _summarised(preprocessing, taken)
    gathered.samples += [
        SampleSet(metric="preprocess.time", samples=pack(times), labels={**labels, "stage": stage.name})
        for stage, times in zip(preprocessing.stages, taken.T)
    ]
    gathered.values += [
        _median("preprocess.time", times / 1e9, {**labels, "stage": stage.name})
        for stage, times in zip(preprocessing.stages, taken.T)
    ]
    times = time_calls(context.workload.caller(shape), device, CallBudget(calls=3, seconds=effort.model))
    model = float(np.median(times.wall)) / 1e9
    share = Value(metric="preprocess.share", value=stages.whole / (stages.whole + model), labels=labels)
    context.progress("a pipeline that preprocesses one batch ahead")

    def feed(batch: Any) -> Any:
        return context.workload.invoke(device.to_device(batch))

    exposed = measure_exposed(preprocessing, feed, device, seconds=effort.pipeline, seed=context.seed)
    gathered.values += [share, exposed.value("preprocess.exposed_share", labels)]
    gathered.findings += _judge(context, shape, stages, share, exposed)


def _time_stages(preprocessing: Preprocessing, context: StepContext, seconds: float) -> Ints:
    """Preprocess each raw batch of the pool at least once, after one that is not counted; an array (batches, stages)."""
    clock = context.device.clock_ns
    preprocessing()
    preprocessing.taken(1)
    until, batches = clock() + int(seconds * 1e9), 0
    while batches < POOL_SIZE or clock() < until:
        preprocessing()
        batches += 1
    return preprocessing.taken(batches)


def _summarised(preprocessing: Preprocessing, taken: Ints) -> _Stages:
    medians = [float(np.median(times)) / 1e9 for times in taken.T]
    names = [stage.name for stage in preprocessing.stages]
    return _Stages(dict(zip(names, medians)), float(np.median(taken.sum(axis=1))) / 1e9)


def _median(metric: str, seconds: Any, labels: dict[str, str]) -> Value:
    found = quantile(seconds, 0.5)
    return Value(
        metric=metric,
        value=found.value,
        interval=found.interval,
        confidence=CONFIDENCE,
        count=found.size,
        labels=labels,
    )


def _judge(context: StepContext, shape: str, stages: _Stages, share: Value, exposed: Exposed) -> list[Finding]:
    """Hold the lower end of the exposed share against its limits: what noise alone may show is no finding.

    The model cannot wait longer than preprocessing takes. What it loses beyond that it loses to a thread on its own cores.
    """
    slowest = next(stage for stage in context.workload.stages if stage.name == stages.slowest)
    evidence: dict[str, Evidence] = {
        "shape": shape,
        "stage": slowest.name,
        "stage [s]": stages.medians[slowest.name],
        "preprocessing [s]": stages.whole,
        "model [s]": exposed.model,
        "pipeline [s]": exposed.pipeline,
        "preprocess.share": share.value or 0.0,
        "exposed share": exposed.share,
    }
    if (line := line_of(slowest.run, context.root)) is not None:
        evidence["line"] = line
    waited = min(exposed.low, stages.whole / exposed.pipeline)
    found = above("preprocess.exposed_share", waited, given=context.limits, evidence=evidence)
    if not found and exposed.low > limit("preprocess.exposed_share.warning", context.limits):
        found = [noticed("preprocess.contention", "info", evidence)]
    return found


def _measure_device(context: StepContext, shape: str, effort: _Effort, gathered: _Gathered, on_device: Run) -> None:
    """Compare from raw batch to output, without overlap."""
    workload, device = context.workload, context.device
    context.progress("preprocessing on the device")
    by_device = Preprocessing(workload, device, shape, (Stage("device", lambda raw: on_device(device.to_device(raw))),))
    by_host = Preprocessing(workload, device, shape)
    agreed = _answers_alike(context, by_host, by_device)
    versus = compare(
        lambda: workload.invoke(device.to_device(by_host())),
        lambda: workload.invoke(by_device()),
        device,
        seconds=effort.device,
        seed=context.seed,
    )
    gathered.values.append(versus.value("preprocess.device_speedup", {"shape": shape}))
    gathered.findings += _judge_device(context, shape, versus, agreed)


def _answers_alike(context: StepContext, by_host: Preprocessing, by_device: Preprocessing) -> Agreement:
    """Compare what the model says of the same raw batch both ways; what it is given, where a call trains it."""
    workload, device = context.workload, context.device
    given = device.to_device(by_host()), by_device()
    if workload.workload.train_step is not None:
        return agreement(*given)
    answers = [device.to_host(workload.invoke(batch)) for batch in given]
    device.synchronize()
    return agreement(*answers)


def _judge_device(context: StepContext, shape: str, versus: Versus, agreed: Agreement) -> list[Finding]:
    """Recommend the device's way where it is faster beyond doubt and leads to the same output: another is no gain."""
    evidence: dict[str, Evidence] = {
        "shape": shape,
        "preprocess.device_speedup": versus.speedup,
        "speedup.low": versus.low,
        "speedup.high": versus.high,
    }
    if agreed.comparable:
        evidence.update({"difference": agreed.absolute, "relative difference": agreed.relative})
    if not agreed.within(limit("preprocess.agreement", context.limits)):
        return [noticed("preprocess.device_differs", "warning", evidence)]
    return [noticed("preprocess.on_device", "info", evidence)] if versus.faster else []


STEP = PreprocessStep()
