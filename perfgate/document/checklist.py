"""The twenty steps of the checklist by number: slug and title, for those who measure and those who word."""

from __future__ import annotations

from typing import NamedTuple


class StepTitle(NamedTuple):
    """How a step is called: ``slug`` in files, documents and options, ``title`` in what people read."""

    slug: str
    title: str


_STEPS: dict[int, StepTitle] = {
    1: StepTitle("latency", "Latency and throughput"),
    2: StepTitle("utilization", "Device utilization"),
    3: StepTitle("transfer", "Transfer between host and device"),
    4: StepTitle("top_ops", "Operators that take the most time"),
    5: StepTitle("batch", "Batch size"),
    6: StepTitle("fusion", "Operator fusion"),
    7: StepTitle("format", "Format conversions"),
    8: StepTitle("precision", "Mixed precision"),
    9: StepTitle("graph", "Graph mode"),
    10: StepTitle("batching", "Continuous batching"),
    11: StepTitle("preprocess", "Preprocessing"),
    12: StepTitle("small_ops", "Small operators"),
    13: StepTitle("tiling", "Tiling and shape alignment"),
    14: StepTitle("contiguity", "Memory layout of tensors"),
    15: StepTitle("cache", "Cache sensitivity"),
    16: StepTitle("communication", "Communication between devices"),
    17: StepTitle("memory", "Memory"),
    18: StepTitle("profile", "Deep profile"),
    19: StepTitle("thermal", "Temperature, clock and power"),
    20: StepTitle("regression", "Regression gate"),
}


def step_titles() -> dict[int, StepTitle]:
    """Return slug and title of all twenty steps by number, in order."""
    return dict(_STEPS)


def step_title(number: int) -> StepTitle:
    """Return slug and title of one step. Raises KeyError for a number that is not on the checklist."""
    return _STEPS[number]
