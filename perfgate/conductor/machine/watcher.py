"""The watcher: reads the device's state while pairs run beside it, and marks the blocks that it spoils.

A process of its own asks the vendor's tool, outside of all workers and without torch. Its readings and the blocks lie on one
clock, so that a reading spoils the blocks it overlaps in time, whichever side they belong to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from perfgate.config import device_kind
from perfgate.document.samples import BlockColumns, Replicate
from perfgate.document.telemetry import DeviceState, TelemetryReading
from perfgate.sampling import Sampler, sampling
from perfgate.trace.model.arithmetic import TimeSpan

replace = msgspec.structs.replace

# The CPU reports its throttling to each worker for free; a watcher beside it would take CPU time from the measurement.
UNWATCHED_KINDS = frozenset({"cpu"})
# Two questions to a tool on a busy host; a gate takes minutes, so this is worth the while.
PATIENCE_SECONDS = 60.0
# linux/proc_ns.h, PROC_PID_INIT_INO: the number of the namespace that no container is in.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


class Watcher:
    """The readings beside some pairs, and their meaning for the blocks.

    ``own`` are the process ids that workers had, and grows as they are started. ``host_ids`` is whether the ids that a
    driver lists can only be those that we see: in a container they may be the host's.
    """

    def __init__(self, sampler: Sampler | None, *, own: Collection[int], host_ids: bool | None = None) -> None:
        self._sampler = sampler
        self._own = own
        self._host_ids = _in_first_pid_namespace() if host_ids is None else host_ids

    def end(self) -> None:
        """Let the answer that is under way come in; no other is asked for."""
        if self._sampler is not None:
            self._sampler.end()

    def put_into(self, *lists: list[Replicate]) -> None:
        """Give every replicate the readings beside its blocks, and every block its own disturbances."""
        readings = [self._without_own(reading) for reading in self._sampler.readings()] if self._sampler else []
        for replicates in lists if readings else ():
            replicates[:] = [_watched(replicate, readings) for replicate in replicates]

    def _without_own(self, reading: TelemetryReading) -> TelemetryReading:
        """A reading with foreign processes only; None in their place if ours cannot be distinguished."""
        foreign = reading.telemetry.foreign_processes
        if foreign and not self._host_ids and not any(process.pid in self._own for process in foreign):
            foreign = None  # ids of the host, among which ours may be
        elif foreign:
            # Names of other jobs do not belong in a document.
            foreign = [replace(process, name="") for process in foreign if process.pid not in self._own]
        return replace(reading, telemetry=replace(reading.telemetry, foreign_processes=foreign))


@contextmanager
def watching(
    device: str, identity: str, *, own: Collection[int], environment: Mapping[str, str], folder: Path
) -> Iterator[Watcher]:
    """Watch a device such as ``npu:1`` until the context ends. Raises MeasuringError if its state cannot be read."""
    if device_kind(device) in UNWATCHED_KINDS:
        yield Watcher(None, own=own)
        return
    options = ["--watch", identity]
    with sampling(device, options, folder=folder, environment=environment, patience=PATIENCE_SECONDS) as sampler:
        yield Watcher(sampler, own=own)


def namespace_ids(pid: int) -> set[int]:
    """The numbers that a process has, from our namespace inward (proc(5), NSpid of /proc/PID/status)."""
    with suppress(OSError):  # it has ended
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return {pid, *map(int, line.split()[1:])}
    return {pid}


def _in_first_pid_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE  # noqa: PTH116 - a link that leads nowhere
    except OSError:
        return False


def _watched(replicate: Replicate, readings: Sequence[TelemetryReading]) -> Replicate:
    spans: list[TimeSpan] = []
    for _, columns in replicate.lanes:
        spans += _spans(columns)
    if not spans:
        return replicate
    whole = TimeSpan(min(span.start for span in spans), max(span.end for span in spans))

    def with_conditions(lane: Mapping[str, BlockColumns]) -> dict[str, BlockColumns]:
        return {shape: _with_condition(columns, whole, readings) for shape, columns in lane.items()}

    return replace(
        replicate,
        readings=_overlapping(whole, readings),
        shapes=with_conditions(replicate.shapes),
        preprocess=with_conditions(replicate.preprocess),
    )


def _spans(columns: BlockColumns) -> list[TimeSpan]:
    return [TimeSpan(began, began + duration) for began, duration in zip(columns.asked_ns, columns.seen_ns)]


def _overlapping(span: TimeSpan, readings: Sequence[TelemetryReading]) -> list[TelemetryReading]:
    return [reading for reading in readings if reading.began_ns < span.end and reading.ended_ns > span.start]


def _with_condition(columns: BlockColumns, whole: TimeSpan, readings: Sequence[TelemetryReading]) -> BlockColumns:
    spans = _spans(columns)
    of_processes = [reading for reading in readings if reading.telemetry.foreign_processes is not None]
    of_clocks = [one for one in readings if whole.start <= one.began_ns and one.ended_ns <= whole.end]
    return replace(
        columns,
        throttled=_states(spans, readings, lambda state: state.throttled),
        power_capped=_states(spans, readings, lambda state: state.power_capped),
        clock_share=[_clock_share(span, of_clocks) for span in spans],
        foreign_processes=[_foreign_count(span, of_processes) for span in spans],
    )


def _states(
    spans: Sequence[TimeSpan],
    readings: Sequence[TelemetryReading],
    state_of: Callable[[DeviceState], bool | None],
) -> list[bool | None]:
    """For each block the state that any overlapping reading has, or else that of the two readings around it if they agree."""
    reported = [reading for reading in readings if state_of(reading.telemetry) is not None]
    states: list[bool | None] = []
    for span in spans:
        beside = [state_of(reading.telemetry) for reading in _overlapping(span, reported)]
        around = {state_of(reading.telemetry) for reading in _around(span, reported)}
        if beside:
            states.append(any(beside))
        else:
            states.append(around.pop() if len(around) == 1 else None)
    return states


def _clock_share(span: TimeSpan, readings: Sequence[TelemetryReading]) -> float | None:
    """The lowest clock that the device worked at, over its rated one, by readings taken while blocks ran.

    Between pairs a device rests, and its clock with it (800 of 1800 MHz on a 910B), so no other reading counts.
    """
    shares = [
        reading.telemetry.clock_share()
        for reading in _overlapping(span, readings)
        if reading.telemetry.at_work is not False
    ]
    return min((share for share in shares if share is not None), default=None)


def _foreign_count(span: TimeSpan, readings: Sequence[TelemetryReading]) -> int | None:
    """The most processes of others in overlapping readings; for a block that none overlaps, those of both around it."""
    beside = [len(_pids(reading)) for reading in _overlapping(span, readings)]
    if beside:
        return max(beside)
    around = [_pids(reading) for reading in _around(span, readings)]
    return len(frozenset.intersection(*around)) if around else None


def _around(span: TimeSpan, readings: Sequence[TelemetryReading]) -> list[TelemetryReading]:
    before = [reading for reading in readings if reading.ended_ns <= span.start][-1:]
    after = [reading for reading in readings if reading.began_ns >= span.end][:1]
    return [*before, *after] if before and after else []


def _pids(reading: TelemetryReading) -> frozenset[int]:
    return frozenset(process.pid for process in reading.telemetry.foreign_processes or ())
