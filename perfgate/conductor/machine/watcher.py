"""The watcher: reads the device's state while pairs run, and marks the blocks that it
spoils.

A separate process asks the vendor's tool, outside of all workers and without torch. Its
readings and the blocks lie on one clock, so that a reading spoils the blocks it
overlaps in time, on either side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from perfgate.config import device_kind
from perfgate.document.samples import BlockColumns, DeviceColumns, Replicate
from perfgate.document.telemetry import DeviceState, TelemetryReading
from perfgate.sampling import Sampler, sampling
from perfgate.trace.model.arithmetic import TimeSpan

replace = msgspec.structs.replace

# The CPU reports its throttling to each worker for free; a watcher would take CPU time
# from the measurement.
UNWATCHED_KINDS = frozenset({"cpu"})
# Two questions to a tool on a busy host; a gate takes minutes, so this is worth the
# while.
PATIENCE_SECONDS = 60.0
# linux/proc_ns.h, PROC_PID_INIT_INO: the number of the namespace that no container is
# in.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


def _in_first_pid_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE  # noqa: PTH116 - a link that leads nowhere
    except OSError:
        return False


@dataclass
class Watcher:
    """The readings during some pairs, and their meaning for the blocks.

    ``own`` are the process ids that workers had, and grows as they are started.
    ``host_ids`` is whether the ids that a driver lists can only be those that we see:
    in a container they may be the host's.
    """

    sampler: Sampler | None
    own: Collection[int]
    host_ids: bool = field(default_factory=_in_first_pid_namespace)

    def end(self) -> None:
        """Wait for the pending answer; the tool is not asked again."""
        if self.sampler is not None:
            self.sampler.end()

    def put_into(self, *lists: list[Replicate]) -> None:
        """Give every replicate the readings during its blocks, and every block its own
        disturbances.
        """
        if self.sampler is None:
            return
        readings = [self._without_own(reading) for reading in self.sampler.readings()]
        if not readings:
            return
        for replicates in lists:
            replicates[:] = [_watched(replicate, readings) for replicate in replicates]

    def _without_own(self, reading: TelemetryReading) -> TelemetryReading:
        """A reading with foreign processes only; None in their place if ours cannot be
        distinguished.
        """
        foreign = reading.telemetry.foreign_processes
        if foreign:
            # Names of other jobs do not belong in a document.
            others = [
                replace(process, name="")
                for process in foreign
                if process.pid not in self.own
            ]
            if len(others) == len(foreign) and not self.host_ids:
                foreign = None  # ids of the host, among which ours may be
            else:
                foreign = others
        return replace(
            reading, telemetry=replace(reading.telemetry, foreign_processes=foreign)
        )


@contextmanager
def watching(
    device: str,
    identity: str,
    *,
    own: Collection[int],
    environment: Mapping[str, str],
    folder: Path,
) -> Iterator[Watcher]:
    """Watch a device such as ``npu:1`` until the context ends.

    Raises MeasuringError if its state cannot be read.
    """
    if device_kind(device) in UNWATCHED_KINDS:
        yield Watcher(None, own=own)
        return
    options = ["--watch", identity]
    with sampling(
        device,
        options,
        folder=folder,
        environment=environment,
        patience=PATIENCE_SECONDS,
    ) as sampler:
        yield Watcher(sampler, own=own)


def namespace_ids(pid: int) -> set[int]:
    """The numbers that a process has, from our namespace inward (proc(5), NSpid of
    /proc/PID/status).
    """
    with suppress(OSError):  # it has ended
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return {pid, *map(int, line.split()[1:])}
    return {pid}


def _watched(replicate: Replicate, readings: Sequence[TelemetryReading]) -> Replicate:
    spans = []
    for _, columns in replicate.lanes:
        spans += _spans(columns)
    if not spans:
        return replicate
    whole = TimeSpan(min(span.start for span in spans), max(span.end for span in spans))

    def with_conditions(lane: Mapping[str, BlockColumns]) -> dict[str, BlockColumns]:
        return {
            shape: _with_condition(columns, whole, readings)
            for shape, columns in lane.items()
        }

    return replace(
        replicate,
        readings=_overlapping(whole, readings),
        shapes=with_conditions(replicate.shapes),
        preprocess=with_conditions(replicate.preprocess),
    )


def _spans(columns: BlockColumns) -> list[TimeSpan]:
    observed = columns.conductor
    return [
        TimeSpan(began, began + duration)
        for began, duration in zip(observed.asked_ns, observed.seen_ns)
    ]


def _overlapping(
    span: TimeSpan, readings: Sequence[TelemetryReading]
) -> list[TelemetryReading]:
    return [
        reading
        for reading in readings
        if reading.began_ns < span.end and reading.ended_ns > span.start
    ]


def _with_condition(
    columns: BlockColumns, whole: TimeSpan, readings: Sequence[TelemetryReading]
) -> BlockColumns:
    spans = _spans(columns)
    with_processes = [
        reading
        for reading in readings
        if reading.telemetry.foreign_processes is not None
    ]
    within = [
        reading
        for reading in readings
        if whole.start <= reading.began_ns and reading.ended_ns <= whole.end
    ]
    device = DeviceColumns(
        throttled=_states(spans, readings, lambda state: state.throttled),
        power_capped=_states(spans, readings, lambda state: state.power_capped),
        clock_share=[_clock_share(span, within) for span in spans],
        foreign_processes=[_foreign_count(span, with_processes) for span in spans],
    )
    return replace(columns, device=device)


def _states(
    spans: Sequence[TimeSpan],
    readings: Sequence[TelemetryReading],
    state_of: Callable[[DeviceState], bool | None],
) -> list[bool | None]:
    """For each block the state of any overlapping reading, or else of the two readings
    around it if they agree.
    """
    reported = [
        reading for reading in readings if state_of(reading.telemetry) is not None
    ]
    states = []
    for span in spans:
        state: bool | None = None
        if overlapping := _overlapping(span, reported):
            state = any(state_of(reading.telemetry) for reading in overlapping)
        elif around := _around(span, reported):
            before, after = around
            if state_of(before.telemetry) == state_of(after.telemetry):
                state = state_of(before.telemetry)
        states.append(state)
    return states


def _clock_share(span: TimeSpan, readings: Sequence[TelemetryReading]) -> float | None:
    """The lowest clock that the device worked at, over its rated one, by readings taken
    while blocks ran.

    Between pairs a device rests, and its clock with it (800 of 1800 MHz on a 910B), so
    no other reading counts.
    """
    shares = []
    for reading in _overlapping(span, readings):
        share = reading.telemetry.clock_share()
        if share is not None and reading.telemetry.at_work is not False:
            shares.append(share)
    return min(shares, default=None)


def _foreign_count(span: TimeSpan, readings: Sequence[TelemetryReading]) -> int | None:
    """The most foreign processes in overlapping readings; without any, those in both
    readings around the block.
    """
    overlapping = _overlapping(span, readings)
    if overlapping:
        return max(len(_pids(reading)) for reading in overlapping)
    around = _around(span, readings)
    if around is None:
        return None
    before, after = around
    return len(_pids(before) & _pids(after))


def _around(
    span: TimeSpan, readings: Sequence[TelemetryReading]
) -> tuple[TelemetryReading, TelemetryReading] | None:
    """The last reading before a block and the first after it."""
    before = [reading for reading in readings if reading.ended_ns <= span.start]
    after = [reading for reading in readings if reading.began_ns >= span.end]
    return (before[-1], after[0]) if before and after else None


def _pids(reading: TelemetryReading) -> frozenset[int]:
    return frozenset(
        process.pid for process in reading.telemetry.foreign_processes or ()
    )
