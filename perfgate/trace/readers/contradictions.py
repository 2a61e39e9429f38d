"""Find tables of a recording that contradict each other or its timeline; none of them is reliable then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from perfgate.document.message import Message
from perfgate.trace.model.arithmetic import counts_by_name
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import Timeline

# The step times of torch_npu went through a float, which costs 0.25 us per kernel.
_TOLERANCE = 0.01
_EXAMPLES = 3


def contradictions(timeline: Timeline) -> list[Message]:
    """Contradictions between two tables, or a table and the timeline, of one device."""
    return [*_of_types(timeline), *_of_events(timeline), *_of_steps(timeline)]


def contradictions_of(timelines: Sequence[tuple[str, Timeline]]) -> list[Message]:
    """Those of all devices; if there are several, each is about the label of its device."""
    return [
        Message("verdict.about", {"place": label, "what": text}) if len(timelines) > 1 else text
        for label, timeline in timelines
        for text in contradictions(timeline)
    ]


def _of_types(timeline: Timeline) -> Iterator[Message]:
    """Compare op_statistic.csv, which sums the same kernels, with their table."""
    if not timeline.types or not timeline.kernels:
        return
    table = KernelTable.of(timeline.kernels)
    numbers = counts_by_name(table.codes["type"][~table.is_collective] + 1, len(table.texts) + 1).tolist()
    counted: Counter[str | None] = Counter(
        {kind: number for kind, number in zip((None, *table.texts), numbers) if number}
    )
    totals: Counter[str] = Counter()
    for total in timeline.types:
        totals[total.name] += total.count
    differing = sorted(kind for kind in totals if totals[kind] != counted[kind])
    if differing:
        examples = ", ".join(f"{kind} {totals[kind]} and {counted[kind]}" for kind in differing[:_EXAMPLES])
        said, found = sum(totals.values()), sum(counted.values())
        yield Message("notes.kernel-counts-differ", {"said": said, "counted": found, "named": examples})


def _of_events(timeline: Timeline) -> Iterator[Message]:
    """Compare the kernels on the device's timeline with their table."""
    events = int(timeline.events.is_kind("compute").sum())
    tabled = int((~KernelTable.of(timeline.kernels or ()).is_collective).sum())
    if timeline.kernels and events and events != tabled:
        yield Message("notes.timeline-differs", {"seen": events, "tabled": tabled})


def _of_steps(timeline: Timeline) -> Iterator[Message]:
    """Compare the table of steps with the sum of the kernels of each step."""
    if not timeline.step_table:
        return
    steps = {step.number: step for step in timeline.steps or ()}
    for row in timeline.step_table:
        step = steps.get(row.number)
        computing_ns = row.computing_ns
        if step is None or step.computing_ns is None or computing_ns is None:
            continue
        if abs(step.computing_ns - computing_ns) > _TOLERANCE * computing_ns:
            values = {"said": computing_ns / 1e6, "number": row.number or 0, "seen": step.computing_ns / 1e6}
            yield Message("notes.computing-differs", values)
