"""Run several copies at once, in threads of this process or in separate processes, time
them all, and judge their gain.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from perfgate import protocol
from perfgate.document.message import Message
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.copies.process import (
    Go,
    Level,
    Stands,
    TimeLevel,
    Times,
    time_copy,
)
from perfgate.measuring.checklist.experiment import (
    ExperimentError,
    FailedExperiment,
    experiment,
    own_call,
)
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from perfgate.measuring.devices.host import available_memory
from perfgate.measuring.timing.calls import FEWEST_QUADS, Versus, summarize_turns
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.stats.arrays import Floats
from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE, dependent_quantile

_PROCESS = "perfgate.measuring.checklist.copies.process"
# From telling the copies to begin until they do.
_LEAD_NS = 50_000_000
_START_SECONDS, _END_SECONDS = 120.0, 5.0
# As for the sides of a check on an accelerator, whose clock and temperature settle
# first.
_WARM_UP_SECONDS, _LEVEL_SECONDS = 1.5, 0.5
# Over the levels; fewer visits give no interval.
_PASSES = FEWEST_QUADS


class CopiesLevel(NamedTuple):
    """How many copies ran at once, and of every visit to it the seconds of each copy's
    calls.
    """

    copies: int
    visits: list[list[Floats]]

    @property
    def calls_per_second(self) -> float:
        """Each copy's calls over the time they took, all copies together; the estimate
        over the visits.
        """
        return math.exp(estimate(self._log_rates))

    @property
    def rate_interval(self) -> tuple[float, float]:
        """The interval of ``calls_per_second`` at ``CONFIDENCE``, by signed ranks over
        the visits.
        """
        alpha = (1 - CONFIDENCE) / 2
        return math.exp(lower_bound(self._log_rates, alpha)), math.exp(
            upper_bound(self._log_rates, alpha)
        )

    @property
    def pooled(self) -> Floats:
        return np.concatenate(list(chain.from_iterable(self.visits)))

    def gain_over(self, alone: CopiesLevel) -> Versus:
        """How many times the throughput of another level it has, over the visits to
        both, pass by pass.
        """
        return summarize_turns(
            np.stack([1e9 / alone._rates, 1e9 / self._rates], axis=1)
        )

    @property
    def _log_rates(self) -> Floats:
        return np.log(self._rates)

    @property
    def _rates(self) -> Floats:
        rates = np.zeros(len(self.visits))
        for number, visit in enumerate(self.visits):
            for walls in visit:
                rates[number] += walls.size / walls.sum()
        return rates


def time_threads(
    workload: BoundWorkload, levels: Sequence[int], *, seconds: float
) -> list[CopiesLevel]:
    """Copies that share the model, each in a thread; on a device with queues each
    thread has its own stream.

    Each level takes ``seconds`` in all.
    """
    shape, device = workload.shapes[0], workload.device

    def run_copy(go: Go) -> list[int]:
        call = workload.caller(shape)
        if "queue" not in device.capabilities:
            return time_copy(call, device.synchronize, go)
        import torch

        stream = torch.get_device_module(device.handle()).Stream()
        with torch.get_device_module(device.handle()).stream(stream):
            return time_copy(call, stream.synchronize, go)

    def run(copies: int) -> list[Floats]:
        with ThreadPoolExecutor(copies) as threads:
            go = _go(seconds / _PASSES)
            return _in_seconds(threads.map(run_copy, [go] * copies))

    return _up_and_down(run, levels)


def time_processes(
    request: protocol.LoadRequest,
    levels: Sequence[int],
    *,
    seconds: float,
    folder: Path,
) -> list[CopiesLevel]:
    """Copies with a process, a model and inputs each.

    Raises MeasuringError if one does not get ready.
    """
    with ExitStack() as stack:
        started = [
            stack.enter_context(_process(request, folder)) for _ in range(max(levels))
        ]
        for connection in started:
            _stands(connection)

        def run(copies: int) -> list[Floats]:
            go = _go(seconds / _PASSES)
            for connection in started[:copies]:
                protocol.send(connection, go)
            return _in_seconds(
                _receive(connection, Times).walls_ns for connection in started[:copies]
            )

        return _up_and_down(run, levels)


def start_cold(request: protocol.LoadRequest, *, folder: Path) -> Stands:
    """Start one process, have it make its first call, and end it."""
    with _process(request, folder) as connection:
        return _stands(connection)


def level_of_new_process(request: protocol.LoadRequest, *, folder: Path) -> float:
    """The seconds of a call in a new process that is warm, by the device's clock.

    Raises MeasuringError.
    """
    with _process(request, folder) as connection:
        _stands(connection)
        protocol.send(
            connection,
            TimeLevel(warm_up_seconds=_WARM_UP_SECONDS, seconds=_LEVEL_SECONDS),
        )
        level: Level = _receive(connection, Level)
        return level.seconds


def _up_and_down(
    run: Callable[[int], list[Floats]], levels: Sequence[int]
) -> list[CopiesLevel]:
    """Visit every level in each pass, in rising and in falling order by turns: a drift
    of the machine then meets all alike.
    """
    measured = [CopiesLevel(copies, []) for copies in levels]
    for number in range(_PASSES):
        for level in measured if number % 2 == 0 else reversed(measured):
            level.visits.append(run(level.copies))
    return measured


def _go(seconds: float) -> Go:
    begin = time.monotonic_ns() + _LEAD_NS
    return Go(begin_ns=begin, end_ns=begin + int(seconds * 1e9))


def _in_seconds(walls_ns: Iterable[list[int]]) -> list[Floats]:
    return [
        np.maximum(np.asarray(walls, dtype=np.float64), 1.0) / 1e9 for walls in walls_ns
    ]


@contextmanager
def _process(request: protocol.LoadRequest, folder: Path) -> Iterator[socket.socket]:
    """A process that loads the workload; it is ended, and waited for, when the block is
    left.
    """
    ours, theirs = socket.socketpair()
    with ours:
        descriptor = theirs.fileno()
        arguments = [str(descriptor), str(time.monotonic_ns()), str(os.getpid())]
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", _PROCESS, *arguments],
                pass_fds=[descriptor],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        try:
            protocol.send(ours, request)
            ours.settimeout(_START_SECONDS)
            yield ours
        finally:
            ours.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _stands(connection: socket.socket) -> Stands:
    stands: Stands = _receive(connection, Stands)
    if stands.error:
        raise MeasuringError(
            f"a copy of the workload in a process of its own fails: {stands.error}"
        )
    return stands


def _receive(connection: socket.socket, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(protocol.receive(connection), type=kind)
    except (protocol.ConnectionClosed, TimeoutError) as error:
        raise MeasuringError(
            "a copy of the workload in a separate process ended or hangs; see its log"
        ) from error


_METRICS = ("copies.throughput", "copies.p50", "copies.p99")
# Factor on the number of copies: half of all estimates of a perfect gain lie slightly
# above that number.
_IMPOSSIBLE = 1.1


def measure_copies(outcome: StepOutcome, context: StepContext) -> None:
    """Time the copies on the first shape, in threads and in processes."""
    shape = context.workload.shapes[0]
    own_call(context, shape)
    gains = {}
    for way in ("threads", "processes"):
        context.doing(
            "up to {copies} {way} at the same time, on shape {shape}",
            copies=max(context.settings.copies),
            way=way,
            shape=shape,
        )
        of_way = outcome.under(**{"in": way})
        if way == "processes" and context.process.load is None:
            continue
        if way == "threads" and context.workload.workload.train_step is not None:
            of_way.missing(_METRICS, Message("times.copies-train-one-model"))
            continue
        run = partial(_time_copies, context, way, 1.4 if context.extent.quick else 6.0)
        measured = experiment(context, run, failing="times.copies-failed")
        if isinstance(measured, FailedExperiment):
            of_way.missing(_METRICS, measured.reason)
            continue
        for level in measured:
            _add_level(of_way.under(copies=str(level.copies)), level, context)
        gain = best_gain(measured)
        if isinstance(gain, Message):
            outcome.missing(f"copies.{way}_gain", gain)
            continue
        gains[way] = gain
        outcome.speedup(f"copies.{way}_gain", gain)
        _judge_growth(outcome, measured, way)
    if len(gains) > 1:
        threads, processes = gains["threads"], gains["processes"]
        # The intervals must not overlap.
        outcome.above(
            "copies.waiting",
            processes.low / threads.high,
            {"threads": threads.speedup, "processes": processes.speedup},
        )


def _time_copies(context: StepContext, way: str, seconds: float) -> list[CopiesLevel]:
    """Raises ExperimentError if the processes would not fit into memory."""
    if way == "threads" or context.process.load is None:
        return time_threads(context.workload, context.settings.copies, seconds=seconds)
    if refusal := too_large(context):
        raise ExperimentError(refusal)
    return time_processes(
        context.process.load,
        context.settings.copies,
        seconds=seconds,
        folder=context.artifacts,
    )


def too_large(context: StepContext) -> Message | None:
    """Why the processes do not fit into memory: the kernel would kill one of them, or
    another user's.
    """
    most = max(context.settings.copies)
    needed, free = most * context.device.host_memory().resident, available_memory()
    if free is None or needed <= free:
        return None
    return Message(
        "times.copies-too-large", {"copies": most, "needed": needed, "free": free}
    )


def _add_level(outcome: StepOutcome, level: CopiesLevel, context: StepContext) -> None:
    items, calls = context.workload.batch, int(level.pooled.size)
    low, high = level.rate_interval
    rate, interval = items * level.calls_per_second, (items * low, items * high)
    outcome.number("copies.throughput", rate, count=calls, interval=interval)
    outcome.estimate("copies.p50", dependent_quantile(level.pooled, 0.5))
    outcome.p99("copies.p99", dependent_quantile(level.pooled, 0.99))


def best_gain(levels: list[CopiesLevel]) -> Versus | Message:
    """The gain of the best number of copies over one, or why it is unknown.

    Copies cannot gain more than their number. If they do, other processes slowed the
    single copy down, and all gains are relative to it.
    """
    for level in levels[1:]:
        gain = level.gain_over(levels[0])
        if gain.low > level.copies or gain.speedup > _IMPOSSIBLE * level.copies:
            return Message(
                "times.copies-disturbed", {"copies": level.copies, "gain": gain.speedup}
            )
    return max(levels, key=lambda level: level.calls_per_second).gain_over(levels[0])


def _judge_growth(outcome: StepOutcome, levels: list[CopiesLevel], way: str) -> None:
    """Note the number of copies up to which each step gains, and the tail latency at
    the largest number.
    """
    gain, knee = outcome.limit("copies.knee.gain"), levels[0]
    for level in levels[1:]:
        if level.calls_per_second < gain * knee.calls_per_second:
            break
        knee = level
    versus = knee.gain_over(levels[0])
    gained = {
        "copies": knee.copies,
        "gain": versus.speedup,
        "low": versus.low,
        "high": versus.high,
    }
    outcome.note("copies.knee", "info", {"in": way, **gained})
