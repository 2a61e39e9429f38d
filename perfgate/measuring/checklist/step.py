"""What a step of the checklist is: a card with its number, and one method that measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from perfgate.catalogue.records import StepCard
from perfgate.document.budget import Budget
from perfgate.document.message import Message
from perfgate.document.run import (
    Artifact,
    CallAccount,
    CounterSet,
    Finding,
    OperatorRow,
    ShapeKernels,
    StepStatus,
    Value,
)
from perfgate.document.samples import SampleSet
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.protocol import LoadRequest
from perfgate.trace.recording import Recording
from perfgate.trace.summary import DeviceSummary

Limits = Mapping[str, float]
# Of a quick step's time: what a further turn takes.
BRIEF = 0.25


@dataclass(frozen=True)
class StepContext:
    """What a step works with.

    ``root`` is the checkout whose code is measured, ``artifacts`` the folder a step may write files into; ``progress`` says
    what goes on. ``expected_kernels`` are glob patterns of kernels or operators that a call must run;
    ``graph_spans`` are parts of the names of the compiler's entry and of running a graph, empty for the device's usual ones.
    ``budgets`` are the bounds of the gate: a step measures what is needed to judge them.
    ``began`` is when the process did, in seconds since the epoch: what is older in its folder was not written by it.
    ``steady_seconds`` are how long the calls of a shape are timed for a steady state, 0 where nobody asked.
    ``brief`` is whether a further turn is taken: what turns do not compare may be left out.
    ``copies`` are the numbers that run at the same time, from 1 up, none where nobody asked; ``cold_start`` is whether new
    processes are timed, which load the workload as ``load`` says; ``shape_space`` is whether shapes are tried that nobody
    configured.
    ``kept`` are the files in ``artifacts`` that stay with the run: a step adds those it made or used, however it ends.
    ``experimenting`` tells the conductor that an experiment begins, and ``no_experiments`` says why none may; both are for
    ``experiment`` alone.
    """

    workload: BoundWorkload
    device: Device
    quick: bool
    threads: int
    limits: dict[str, float]
    seed: int
    root: Path
    artifacts: Path
    progress: Callable[[str], None]
    expected_kernels: tuple[str, ...] = ()
    graph_spans: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = ()
    began: float = 0.0
    steady_seconds: float = 0.0
    copies: tuple[int, ...] = ()
    cold_start: bool = False
    shape_space: bool = False
    brief: bool = False
    load: LoadRequest | None = None
    kept: list[Artifact] = field(default_factory=list)
    experimenting: Callable[[], None] = lambda: None
    no_experiments: Message | None = None

    def budgets_on(self, metric: str, shape: str) -> list[Budget]:
        name = self.workload.name
        return [budget for budget in self.budgets if budget.metric == metric and budget.place.covers(name, shape)]

    def seconds(self, *, quick: float, full: float) -> float:
        """How long to measure: one of several turns needs less than the first."""
        return full if not self.quick else BRIEF * quick if self.brief else quick

    @property
    def shows_kernels(self) -> bool:
        """Whether a trace of the device has its kernels on a timeline of their own."""
        return "kernel_timeline" in self.device.capabilities


@dataclass(frozen=True)
class RecordingContext:
    """What a step works with that judges a recording made elsewhere: what was read, and a summary of each device."""

    recording: Recording
    summaries: Sequence[DeviceSummary]
    workload: str
    limits: Limits
    expected_kernels: Sequence[str] = ()
    graph_spans: Sequence[str] = ()


@dataclass
class StepOutcome:
    """What a step measured, put together part by part; where it could not, ``absent`` is its status and ``reason`` says why."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    samples: list[SampleSet] = field(default_factory=list)
    kernels: list[ShapeKernels] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)
    accounts: list[CallAccount] = field(default_factory=list)
    counters: list[CounterSet] = field(default_factory=list)
    absent: Literal["not_applicable", "unavailable"] | None = None
    reason: Message | None = None

    @property
    def status(self) -> StepStatus:
        """``attention`` where a finding is more than information."""
        if self.absent is not None:
            return self.absent
        return "attention" if any(finding.severity != "info" for finding in self.findings) else "ok"

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


class Step(Protocol):
    """One numbered check. A module or package in ``steps/`` exposes one as ``STEP``."""

    card: StepCard

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure and return the outcome; raise nothing for what the device merely cannot do."""


@runtime_checkable
class RecordedStep(Protocol):
    """A step that finds what it looks for in a recording too."""

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the recording and return the outcome; unavailable, with a reason, for what it does not hold."""
