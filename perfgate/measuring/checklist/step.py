"""A step of the checklist: a card with its number, and one method that measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from perfgate.catalogue.records import StepCard
from perfgate.document.budget import Budget
from perfgate.document.message import Message
from perfgate.document.run import Artifact
from perfgate.locale import Activity
from perfgate.measuring.checklist.outcome import Limits, StepOutcome, limit
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import SteadyState, call_again, find_steady_state
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.protocol import LoadRequest, StepExtent, StepSettings
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.recording import Recording

# The share of a quick step's time that a further turn takes.
BRIEF = 0.25


class Judging:
    """What a live run and a recording have in common for a step."""

    limits: Limits

    def outcome(self) -> StepOutcome:
        """An empty outcome, judged against the run's limits."""
        return StepOutcome(limits=self.limits)

    def limit(self, name: str) -> float:
        return limit(name, self.limits)


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

    # When it started, in seconds since the epoch: older files in its folder were made by others.
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
    # The checkout of the measured code.
    root: Path
    # The folder a step may write files into.
    artifacts: Path
    # Reports the current activity.
    progress: Callable[[Activity], None]
    extent: StepExtent = field(default_factory=StepExtent)
    settings: StepSettings = field(default_factory=StepSettings)
    process: StepProcess = field(default_factory=StepProcess)
    experiments: Experiments = field(default_factory=Experiments)
    # The files in ``artifacts`` that stay with the run: a step adds the files it wrote or used, however it ends.
    kept: list[Artifact] = field(default_factory=list)

    @property
    def device(self) -> Device:
        return self.workload.device

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
        """Call a shape until its speed is steady, for at most ``quick`` or ``full`` seconds.

        Once it was steady in this process, a quick step makes one window of calls, which bring back what other work displaced.
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
    """The inputs of a step that judges a recording made elsewhere: the recording, and a summary of each device."""

    recording: Recording
    summaries: Sequence[DeviceSummary]
    workload: str
    limits: Limits
    settings: StepSettings = field(default_factory=StepSettings)


class Step(Protocol):
    """One numbered check. A module or package in ``steps/`` exposes one as ``STEP``."""

    card: StepCard

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure and return the outcome; something that the device cannot do is a reason, not an exception."""


@runtime_checkable
class RecordedStep(Protocol):
    """A step that can also judge a recording."""

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the recording and return the outcome; unavailable, with a reason, if it lacks the data."""
