"""What a step of the checklist is: a number, a slug, and one method that measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Protocol

from perfgate.document.run import Artifact, CounterSet, Finding, OperatorRow, SampleSet, StepStatus, Value
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload


@dataclass(frozen=True)
class StepContext:
    """What a step works with.

    ``root`` is the checkout whose code is measured, ``artifacts`` the folder a step may write files into; ``progress`` says
    what goes on.
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


@dataclass(frozen=True)
class StepOutcome:
    """What a step measured. ``reason`` is required unless the status is ok or attention."""

    status: StepStatus
    reason: Optional[str] = None
    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    samples: list[SampleSet] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)
    counters: list[CounterSet] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)


class Step(Protocol):
    """One numbered check. A module in ``steps/`` exposes one as ``STEP``."""

    number: int
    slug: str
    title: str

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure and return the outcome; raise nothing for what the device merely cannot do."""


def status_of(findings: list[Finding]) -> StepStatus:
    """Return ``attention`` when a finding is more than information, else ``ok``."""
    return "attention" if any(finding.severity != "info" for finding in findings) else "ok"
