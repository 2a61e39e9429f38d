"""What a step of the checklist is: a number, a slug, and one method that measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from perfgate.catalogue.records import StepCard
from perfgate.document.budget import Budget
from perfgate.document.run import (
    Artifact,
    CallAccount,
    CounterSet,
    Finding,
    OperatorRow,
    SampleSet,
    ShapeKernels,
    StepStatus,
    Value,
)
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.trace.recording import Recording
from perfgate.trace.summary import DeviceSummary


@dataclass(frozen=True)
class StepContext:
    """What a step works with.

    ``root`` is the checkout whose code is measured, ``artifacts`` the folder a step may write files into; ``progress`` says
    what goes on. ``expected_kernels`` are glob patterns of kernels or operators that a call must run;
    ``graph_spans`` are parts of the names of the compiler's entry and of running a graph, empty for the device's usual ones.
    ``budgets`` are the bounds that the gate will hold what is measured to: a step measures what they take to be judged.
    ``kept`` are the files in ``artifacts`` that stay with the run: a step adds those it made or used, however it ends.
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
    kept: list[Artifact] = field(default_factory=list)

    def budgets_on(self, metric: str, shape: str) -> list[Budget]:
        """Return the budgets on one metric of a shape of the workload."""
        return [
            found for found in self.budgets if found.metric == metric and found.place.covers(self.workload.name, shape)
        ]


@dataclass(frozen=True)
class StepOutcome:
    """What a step measured. ``reason`` is required unless the status is ok or attention."""

    status: StepStatus
    reason: str | None = None
    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    samples: list[SampleSet] = field(default_factory=list)
    kernels: list[ShapeKernels] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)
    accounts: list[CallAccount] = field(default_factory=list)
    counters: list[CounterSet] = field(default_factory=list)


@dataclass
class Judged:
    """Values and findings of a part of a step, put together part by part."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Judged) -> None:
        """Take over what another part gave."""
        self.values += other.values
        self.findings += other.findings


class Step(Protocol):
    """One numbered check. A module in ``steps/`` exposes one as ``STEP``."""

    card: StepCard

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure and return the outcome; raise nothing for what the device merely cannot do."""


@dataclass(frozen=True)
class RecordingContext:
    """What a step works with that judges a recording made elsewhere: what was read, and a summary of each device."""

    recording: Recording
    summaries: Sequence[DeviceSummary]
    workload: str
    limits: Mapping[str, float]
    expected_kernels: Sequence[str] = ()
    graph_spans: Sequence[str] = ()


@runtime_checkable
class RecordedStep(Protocol):
    """A step that finds what it looks for in a recording too."""

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the recording and return the outcome; unavailable, with a reason, for what it does not hold."""


def status_of(findings: list[Finding]) -> StepStatus:
    """Return ``attention`` when a finding is more than information, else ``ok``."""
    return "attention" if any(finding.severity != "info" for finding in findings) else "ok"
