"""Where the tables of a recording contradict each other or its timeline: then none of them can be counted on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perfgate.trace.recording import Kernel, Timeline

# What torch_npu writes of steps went through a float: 0.25 us a kernel.
_TOLERANCE = 0.01
_EXAMPLES = 3


def contradictions(timeline: Timeline) -> list[str]:
    return [*_of_types(timeline), *_of_events(timeline), *_of_steps(timeline)]


def _computing(timeline: Timeline) -> list[Kernel]:
    return [kernel for kernel in timeline.kernels or () if not kernel.is_collective]


def _of_types(timeline: Timeline) -> Iterator[str]:
    """Compare op_statistic.csv, which adds up the same kernels, with their table."""
    if not timeline.types or not timeline.kernels:
        return
    counted = Counter(kernel.type for kernel in _computing(timeline))
    totals: Counter[str] = Counter()
    for total in timeline.types:
        totals[total.type] += total.count
    differing = sorted(kind for kind in totals if totals[kind] != counted[kind])
    if differing:
        examples = ", ".join(f"{kind} {totals[kind]} and {counted[kind]}" for kind in differing[:_EXAMPLES])
        counts = f"op_statistic counts {sum(totals.values())} kernels, the table of kernels has {sum(counted.values())}"
        yield f"{counts} ({examples})"


def _of_events(timeline: Timeline) -> Iterator[str]:
    """Compare the kernels on the device's timeline with their table."""
    events = len(timeline.events.of_kind("compute"))
    tabled = len(_computing(timeline))
    if timeline.kernels and events and events != tabled:
        yield f"the timeline shows {events} kernels, the table of kernels has {tabled}"


def _of_steps(timeline: Timeline) -> Iterator[str]:
    """Compare the table of steps with what the kernels of each step add up to."""
    steps = {step.number: step for step in timeline.steps or ()}
    for row in timeline.step_table or ():
        step = steps.get(row.number)
        if step is None or step.computing_ns is None or row.computing_ns is None:
            continue
        if abs(step.computing_ns - row.computing_ns) > _TOLERANCE * row.computing_ns:
            yield (
                f"the table of steps has {row.computing_ns / 1e6:.3f} ms of computing in step {row.number}, its kernels "
                f"{step.computing_ns / 1e6:.3f} ms"
            )
