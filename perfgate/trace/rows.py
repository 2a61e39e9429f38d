"""The work of a timeline as rows that can be aligned with another's: operators and kernels by name, shapes and line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfgate.document.alignment import TimedRow
from perfgate.document.flame import FlameUnit
from perfgate.trace.analysis import counts_by_name, totals_by_name
from perfgate.trace.events import DEVICE_KINDS, KINDS, NO_TEXT, EventKind, EventTable
from perfgate.trace.frames import frame, project_places
from perfgate.trace.gaps import device_gaps
from perfgate.trace.recording import Kernel, Timeline
from perfgate.trace.stacks import Stacks, stacks_of

_HOST_KINDS: tuple[tuple[EventKind, ...], ...] = (("host_op",), ("python",), ("runtime", "other"))


@dataclass(frozen=True)
class Work:
    """What a timeline did in an average unit: nanoseconds, and rows with nanoseconds and counts of one unit.

    Of what was not recorded the time is None.
    """

    unit: FlameUnit
    units: int
    kernel_ns: float | None
    copy_ns: float | None
    communication_ns: float | None
    gap_ns: float | None
    host_ns: float | None
    rows: tuple[TimedRow, ...]


def work_of(timeline: Timeline) -> Work:
    """Return the work of a timeline. Kernels come from the device's timeline, else from the profiler's table of them."""
    stacks = stacks_of(timeline.events)
    device = stacks.on_device.any()
    host = _host_kinds(stacks.events)
    rows = [*_rows(stacks, host), *_rows(stacks, DEVICE_KINDS)]
    if not device and timeline.kernels:
        steps = {kernel.step for kernel in timeline.kernels if kernel.step is not None}
        rows += _rows_of_kernels(timeline.kernels, max(len(steps), 1))
    known = device or bool(timeline.kernels)
    return Work(
        unit=stacks.unit,
        units=stacks.units,
        kernel_ns=_sum(rows, "compute") if known else None,
        copy_ns=_sum(rows, "copy") if device else None,
        communication_ns=_sum(rows, "comm") if known else None,
        gap_ns=_gap_ns(stacks) if device else None,
        host_ns=_sum(rows, "host") if host else None,
        rows=tuple(rows),
    )


def _host_kinds(events: EventTable) -> tuple[EventKind, ...]:
    """Return what stands for the host's work: operators, else functions, else whatever was recorded."""
    return next((kinds for kinds in _HOST_KINDS if len(events.of_kind(*kinds))), ())


def _rows(stacks: Stacks, kinds: tuple[EventKind, ...]) -> list[TimedRow]:
    """Return a row for each name, form of inputs and calling function among events of some kinds."""
    events = stacks.events
    nearest, places = project_places(events, stacks.called_by)
    chosen = np.flatnonzero(np.isin(events.kind, [KINDS.index(kind) for kind in kinds]))
    names, lines = len(events.names) + 1, len(places) + 1
    key = ((events.group[chosen] * len(KINDS) + events.kind[chosen]) * names + events.shape[chosen] + 1) * lines
    key += nearest[chosen] + 1
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    times, counts = totals_by_name(row, stacks.own[chosen], first.size), counts_by_name(row, first.size)
    found = []
    for at, time, count in zip(chosen[first].tolist(), times.tolist(), counts.tolist()):
        kind, shape, place = KINDS[events.kind[at]], int(events.shape[at]), int(nearest[at])
        found.append(
            TimedRow(
                op=frame(events.names[events.group[at]], kind).name,
                time=time / stacks.units,
                count=count / stacks.units,
                shape=None if shape == NO_TEXT else events.names[shape],
                line=places[place] if place >= 0 else None,
                kind=kind if kind in DEVICE_KINDS else "host",
            )
        )
    return found


def _rows_of_kernels(kernels: tuple[Kernel, ...], units: int) -> list[TimedRow]:
    sums: dict[tuple[str, str, str | None], list[int]] = {}
    for kernel in kernels:
        shape = ";".join(",".join(map(str, shape)) for shape in kernel.input_shapes) or None
        key = kernel.type or kernel.name, "comm" if kernel.is_collective else "compute", shape
        found = sums.setdefault(key, [0, 0])
        found[0] += kernel.duration_ns
        found[1] += 1
    return [
        TimedRow(op=op, time=time / units, count=count / units, shape=shape, kind=kind)
        for (op, kind, shape), (time, count) in sums.items()
    ]


def _gap_ns(stacks: Stacks) -> float | None:
    """Return the time in which nothing ran on the device, from its first event to the end of its last."""
    found = device_gaps(stacks.events, exposed=False)
    return None if found is None else (found.end_ns - found.start_ns - found.busy_ns) / stacks.units


def _sum(rows: list[TimedRow], kind: str) -> float:
    return sum(row.time for row in rows if row.kind == kind)
