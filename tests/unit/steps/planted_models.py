"""Small models with one thing wrong with their layout, format or precision each, and steps run over them on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from perfgate.document.run import Finding
from perfgate.measuring.checklist.step import Step, StepContext, StepOutcome
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload

ROOT = Path(__file__).parent


class Linears(nn.Module):
    """Two linear layers; ``between`` is what happens to the rows between them."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor] = torch.relu, width: int = 64) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)
        self.between = between

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of the same shape."""
        return self.last(self.between(self.first(rows)))


def turn(rows: torch.Tensor) -> torch.Tensor:
    """Copy the rows into another order and back."""
    return rows.t().contiguous().t().contiguous()


def images(channels_last: bool = False) -> Callable[..., nn.Module]:
    """Return what builds two convolutions, their weights in one order or the other."""

    def build(_device: Any) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
        return model.to(memory_format=torch.channels_last) if channels_last else model

    return build


def rows(batch: int, seed: int) -> torch.Tensor:
    """Make float32 inputs of 64 columns."""
    return torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed))


def pictures(batch: int, seed: int) -> torch.Tensor:
    """Make images of eight channels, in their plain order."""
    return torch.randn(batch, 8, 16, 16, generator=torch.Generator().manual_seed(seed))


def linears(between: Callable[[torch.Tensor], torch.Tensor] = torch.relu, **fields: Any) -> Workload:
    """Return a workload of two linear layers; ``fields`` are further ones of Workload."""

    def build(_device: Any) -> nn.Module:
        torch.manual_seed(0)
        return Linears(between).eval()

    return Workload(**{"build": build, "inputs": rows, "batch": 16, **fields})


def measure(step: Step, workload: Workload, folder: Path, **fields: Any) -> StepOutcome:
    """Run a step quickly on the CPU, with one thread: two wait for each other where the machine has other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return step.measure(context(workload, folder, **fields))
    finally:
        torch.set_num_threads(before)


def context(workload: Workload, folder: Path, **fields: Any) -> StepContext:
    """Return what a step works with on the CPU."""
    device = open_device("cpu")
    given = {"limits": {}, "seed": 1, "progress": lambda text: None}
    bound = BoundWorkload("model", workload, device, seed=1, root=ROOT)
    return StepContext(workload=bound, artifacts=folder, **{**given, **fields})


def numbers(outcome: StepOutcome, metric: str, label: str = "shape") -> dict[str, float | None]:
    """Return the values of a metric by one of their labels; those without it are left out."""
    return {
        value.labels[label]: value.value for value in outcome.values if value.metric == metric and label in value.labels
    }


def found(outcome: StepOutcome) -> dict[str, Finding]:
    """Return the findings by rule."""
    return {finding.rule: finding for finding in outcome.findings}


def line_of(text: str) -> str:
    """Return the place in this file of the line that holds a text."""
    lines = Path(__file__).read_text().splitlines()
    return f"planted_models.py:{next(number for number, line in enumerate(lines, start=1) if text in line)}"
