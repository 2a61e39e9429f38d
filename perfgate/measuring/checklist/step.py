"""A step of the checklist: its card, the method that measures, its inputs, and its
outcome.

An outcome has the step's values, and the findings of numbers beyond the limits of the
catalogue or the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Formatter
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from perfgate.catalogue.lookup import LIMITS, RULES
from perfgate.catalogue.records import StepCard
from perfgate.document.budget import Budget
from perfgate.document.message import Message, together
from perfgate.document.run import (
    Artifact,
    CallAccount,
    CounterSet,
    Evidence,
    Finding,
    OperatorRow,
    Severity,
    ShapeKernels,
    StepStatus,
    Value,
)
from perfgate.document.samples import SampleSet, pack
from perfgate.locale import Activity
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import (
    SteadyState,
    Versus,
    call_again,
    find_steady_state,
)
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.protocol import LoadRequest, StepExtent, StepSettings
from perfgate.stats.arrays import Floats, Ints
from perfgate.stats.summary import CONFIDENCE, P99_FLOOR, SampleEstimate, quantile
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.recording import Recording

LimitValues = Mapping[str, float]
# None is evidence that is not there, such as the line of an operator that no line of
# the project called.
MaybeEvidence = Mapping[str, Evidence | None]
OpenInterval = tuple[float | None, float | None]

_MOST_SEVERE_FIRST: tuple[Severity, ...] = ("severe", "warning", "info")


@dataclass
class StepOutcome:
    """The values and findings of a step, added one by one; a step that could not
    measure sets ``absent`` and ``reason``.

    Every value gets ``labels``; numbers are judged against ``limits``, and their
    findings name the shape among the labels.
    """

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    samples: list[SampleSet] = field(default_factory=list)
    kernels: list[ShapeKernels] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)
    accounts: list[CallAccount] = field(default_factory=list)
    counters: list[CounterSet] = field(default_factory=list)
    absent: Literal["not_applicable", "unavailable"] | None = None
    reason: Message | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: LimitValues = field(default_factory=dict)

    def under(self, **labels: str) -> StepOutcome:
        """The same outcome with more labels: both share their values and findings."""
        return replace(self, labels={**self.labels, **labels})

    # --- values

    def number(
        self,
        metric: str,
        value: float | None,
        *,
        count: int | None = None,
        interval: OpenInterval | None = None,
        reason: Message | None = None,
    ) -> None:
        """Add a number, or the reason why it is missing; an interval holds it at
        ``CONFIDENCE``.
        """
        added = Value(
            metric=metric,
            value=value,
            count=count,
            interval=interval,
            confidence=None if interval is None else CONFIDENCE,
            reason=reason,
            labels=dict(self.labels),
        )
        self.values.append(added)

    def numbers(
        self, numbers: Mapping[str, float], *, count: int | None = None
    ) -> None:
        for metric, value in numbers.items():
            self.number(metric, value, count=count)

    def estimate(self, metric: str, number: SampleEstimate) -> None:
        self.number(metric, number.value, count=number.size, interval=number.interval)

    def p99(
        self,
        metric: str,
        number: SampleEstimate,
        too_few: str = "times.p99-too-few-calls",
    ) -> None:
        """Add a P99, or its lower bound alone if there are too few samples for it."""
        if number.size < P99_FLOOR:
            self.lower_bound(
                metric,
                number,
                Message(too_few, {"needed": P99_FLOOR, "calls": number.size}),
            )
        else:
            self.estimate(metric, number)

    def lower_bound(self, metric: str, number: SampleEstimate, reason: Message) -> None:
        """Add a quantile that is not estimable: only its lower end is sure."""
        self.number(
            metric, None, count=number.size, interval=(number.low, None), reason=reason
        )

    def median(self, metric: str, samples: Floats) -> None:
        """Add the median: the mean of the two middle samples if their number is even."""
        number = quantile(samples, 0.5)
        self.number(
            metric,
            float(np.median(samples)),
            count=number.size,
            interval=number.interval,
        )

    def speedup(self, metric: str, versus: Versus) -> None:
        self.number(
            metric,
            versus.speedup,
            count=versus.quads,
            interval=(versus.low, versus.high),
        )

    def missing(self, metrics: str | Iterable[str], reason: Message) -> None:
        """Add a value without a number for each metric."""
        for metric in [metrics] if isinstance(metrics, str) else metrics:
            self.number(metric, None, reason=reason)

    def raw_samples(self, metric: str, nanoseconds: Ints) -> None:
        samples = SampleSet(
            metric=metric, samples=pack(nanoseconds), labels=dict(self.labels)
        )
        self.samples.append(samples)

    # --- findings

    def limit(self, name: str) -> float:
        """The project's own limit, or else the card's.

        Raises KeyError for an unknown name.
        """
        return self.limits.get(name, LIMITS[name].default)

    def above(
        self, rule: str, value: float, evidence: MaybeEvidence | None = None
    ) -> bool:
        """Whether ``value`` is above a limit of the rule, which adds a finding.

        Of several such limits the most severe counts. The evidence gets the value,
        under the rule's name, and that limit.
        """
        return self._beyond(rule, value, evidence, sign=1)

    def below(
        self, rule: str, value: float, evidence: MaybeEvidence | None = None
    ) -> bool:
        """Whether ``value`` is below a limit of the rule, which adds a finding."""
        return self._beyond(rule, value, evidence, sign=-1)

    def note(
        self, rule: str, severity: Severity, evidence: MaybeEvidence | None = None
    ) -> None:
        """Add a finding that no limit decides.

        Raises KeyError for evidence that the words of the rule lack.
        """
        self._find(rule, severity, {**self._subject, **(evidence or {})})

    def _find(self, rule: str, severity: Severity, evidence: MaybeEvidence) -> None:
        present = {name: value for name, value in evidence.items() if value is not None}
        for _, name, _, _ in Formatter().parse(RULES[rule].message):
            if name is not None and name not in present:
                raise KeyError(f"{rule} needs the evidence {name!r}")
        self.findings.append(Finding(rule=rule, severity=severity, evidence=present))

    def _beyond(
        self, rule: str, value: float, evidence: MaybeEvidence | None, *, sign: int
    ) -> bool:
        for severity in _MOST_SEVERE_FIRST:
            name = f"{rule}.{severity}"
            if name in LIMITS and sign * value > sign * self.limit(name):
                judged = {rule: value, "limit": self.limit(name)}
                self._find(
                    rule, severity, {**judged, **self._subject, **(evidence or {})}
                )
                return True
        return False

    @property
    def _subject(self) -> MaybeEvidence:
        if "shape" in self.labels:
            return {"shape": self.labels["shape"]}
        return {}

    # --- the end

    @property
    def status(self) -> StepStatus:
        """``attention`` if a finding is more than information."""
        if self.absent is not None:
            return self.absent
        if any(finding.severity != "info" for finding in self.findings):
            return "attention"
        return "ok"

    def or_else(self, instead: StepOutcome) -> StepOutcome:
        """The outcome, or ``instead`` if it has no values."""
        if self.values:
            return self
        return instead

    def or_unavailable(self, *reasons: Message) -> StepOutcome:
        """The outcome, or unavailable if none of its values has a number, for these
        reasons and the values' own.
        """
        if any(value.value is not None for value in self.values):
            return self
        own = [
            value.reason for value in self.values if isinstance(value.reason, Message)
        ]
        return unavailable(together([*reasons, *own]))

    def add(self, part: StepOutcome) -> None:
        """Append the lists of another part; its status and reason do not count."""
        self.values += part.values
        self.findings += part.findings
        self.samples += part.samples
        self.kernels += part.kernels
        self.operators += part.operators
        self.accounts += part.accounts
        self.counters += part.counters


def not_applicable(reason: Message) -> StepOutcome:
    return StepOutcome(absent="not_applicable", reason=reason)


def unavailable(reason: Message) -> StepOutcome:
    return StepOutcome(absent="unavailable", reason=reason)


# The share of a quick step's time that a further turn takes.
BRIEF = 0.25


class Judging:
    """What a live run and a recording have in common for a step."""

    limits: LimitValues

    def outcome(self) -> StepOutcome:
        """An empty outcome, judged against the run's limits."""
        return StepOutcome(limits=self.limits)

    def limit(self, name: str) -> float:
        return self.outcome().limit(name)


@dataclass(frozen=True)
class Experiments:
    """What trying other ways than the workload's own needs; for ``experiment`` alone."""

    # Announces an experiment to the conductor.
    announce: Callable[[], None] = lambda: None
    # Why no experiments may run.
    refusal: Message | None = None
    # The errors of experiments that raised.
    failures: list[Message] = field(default_factory=list)


@dataclass(frozen=True)
class StepProcess:
    """The process that runs the steps."""

    # When it started, in seconds since the epoch: older files in its folder were made
    # by others.
    began: float = 0.0
    # How further processes load the workload.
    load: LoadRequest | None = None
    # The shapes with calls that an earlier step was able to make steady.
    warm_shapes: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class StepContext(Judging):
    """The inputs of a step."""

    workload: BoundWorkload
    limits: dict[str, float]
    seed: int
    # The folder a step may write files into.
    artifacts: Path
    # Reports the current activity.
    progress: Callable[[Activity], None]
    extent: StepExtent = field(default_factory=StepExtent)
    settings: StepSettings = field(default_factory=StepSettings)
    process: StepProcess = field(default_factory=StepProcess)
    experiments: Experiments = field(default_factory=Experiments)
    # The files in ``artifacts`` that stay with the run: a step adds the files it wrote
    # or used, however it ends.
    kept: list[Artifact] = field(default_factory=list)

    @property
    def device(self) -> Device:
        return self.workload.device

    @property
    def root(self) -> Path:
        return self.workload.root

    def doing(self, english: str, **values: object) -> None:
        """Report the current activity."""
        self.progress(Activity(english, **values))

    def budgets_on(self, metric: str, shape: str) -> list[Budget]:
        name = self.workload.name
        return [
            budget
            for budget in self.settings.budgets
            if budget.metric == metric and budget.place.covers(name, shape)
        ]

    def seconds(self, *, quick: float, full: float) -> float:
        """How long to measure: one of several turns needs less than the first."""
        if not self.extent.quick:
            return full
        if self.extent.brief:
            return BRIEF * quick
        return quick

    def warm_up(self, shape: str, *, quick: float, full: float) -> SteadyState:
        """Call a shape until its speed is steady, for at most ``quick`` or ``full``
        seconds.

        Once it was steady in this process, a quick step makes one window of calls,
        which bring back what other work displaced.
        """
        call = self.workload.caller(shape)
        if self.extent.quick and shape in self.process.warm_shapes:
            return call_again(call, self.device)
        state = find_steady_state(
            call, self.device, cap_seconds=self.seconds(quick=quick, full=full)
        )
        if state.steady:
            self.process.warm_shapes.add(shape)
        return state

    @property
    def shows_kernels(self) -> bool:
        """Whether a trace of the device has kernels on a separate timeline."""
        return "kernel_timeline" in self.device.capabilities


@dataclass(frozen=True)
class RecordingContext(Judging):
    """The inputs of a step that judges a recording made elsewhere: the recording, and a
    summary of each device.
    """

    recording: Recording
    summaries: Sequence[DeviceSummary]
    workload: str
    limits: LimitValues
    settings: StepSettings = field(default_factory=StepSettings)


class Step(Protocol):
    """One numbered check. A module or package in ``steps/`` exposes one as ``STEP``."""

    card: StepCard

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure and return the outcome; something that the device cannot do is a
        reason, not an exception.
        """


@runtime_checkable
class RecordedStep(Protocol):
    """A step that can also judge a recording."""

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the recording and return the outcome; unavailable, with a reason, if it
        lacks the data.
        """
