"""Preprocessing, timed stage by stage, and how long a model waits for a thread that preprocesses its next batch."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfgate.document.run import Value
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import Ints
from perfgate.measuring.timing.versus import FEWEST_QUADS, log_ratio
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload, Stage, copied
from perfgate.stats.summary import CONFIDENCE


class Preprocessing:
    """Calling it preprocesses the next raw batch of a pool; the times of each stage are kept, in nanoseconds of the host.

    Stages that change the raw batch they are given get a fresh copy every time, and the copying is not timed. They are the
    workload's unless others are given.
    """

    def __init__(
        self, workload: BoundWorkload, device: Device, shape: str, stages: tuple[Stage, ...] | None = None
    ) -> None:
        self.stages = workload.stages if stages is None else stages
        self._runs: list[Callable[[Any], Any]] = [stage.run for stage in self.stages]
        self._raws = [workload.raw_inputs(shape, index=index) for index in range(POOL_SIZE)]
        self._device = device
        self._cursor = 0
        self._marks: list[list[int]] = []
        self._copies = _is_changed_by(self._runs, self._raws[0])

    def __call__(self) -> Any:
        self._cursor += 1
        batch = self._raws[self._cursor % POOL_SIZE]
        if self._copies:
            batch = copied(batch)
        clock, marks = self._device.timer_ns, []
        marks.append(clock())
        for run in self._runs:
            batch = run(batch)
            marks.append(clock())
        self._marks.append(marks)
        return batch

    def taken(self, calls: int) -> Ints:
        """The nanoseconds of the last ``calls`` calls, an array of shape (calls, stages), and forget all of them."""
        marks = np.asarray(self._marks[-calls:], dtype=np.int64)
        self._marks.clear()
        return np.diff(marks, axis=1)


def _is_changed_by(runs: Sequence[Callable[[Any], Any]], raw: Any) -> bool:
    passed = batch = copied(raw)
    before = _content(passed)
    for run in runs:
        batch = run(batch)
    return before != _content(passed)


def _content(batch: Any) -> bytes | None:
    try:
        return pickle.dumps(batch, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - whatever an object of the user's raises: it has no content that can be compared
        return None


_ROUND_SECONDS = 0.15
_FEWEST_BATCHES = 4


@dataclass(frozen=True)
class Exposed:
    """The share of the pipeline's time in which the model waits, with its interval, and seconds a batch of both ways."""

    share: float
    low: float
    high: float
    pipeline: float
    model: float
    rounds: int

    def value(self, metric: str, labels: Mapping[str, str]) -> Value:
        return Value(
            metric=metric,
            value=self.share,
            interval=(self.low, self.high),
            confidence=CONFIDENCE,
            count=self.rounds,
            labels=dict(labels),
        )


def measure_exposed(
    preprocess: Callable[[], Any], feed: Callable[[Any], Any], device: Device, *, seconds: float, seed: int
) -> Exposed:
    """Compare both ways over rounds of a few batches, for about ``seconds`` and at least ``FEWEST_QUADS`` rounds.

    ``preprocess`` makes the next batch, ``feed`` brings one to the device and calls the model. The share is
    1 - T_model / T_pipeline.
    """
    ready = [preprocess() for _ in range(_FEWEST_BATCHES)]
    started = device.clock_ns()
    preprocess()
    feed(ready[0])
    device.synchronize()
    batch_seconds = (device.clock_ns() - started) / 1e9
    batches = max(_FEWEST_BATCHES, int(_ROUND_SECONDS / max(batch_seconds, 1e-9)))
    lot = random.Random(seed)
    rounds: list[tuple[float, float]] = []
    until = device.clock_ns() + int(seconds * 1e9)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="preprocess") as thread:
        ways = (
            lambda: _seconds_a_batch(_ahead(preprocess, thread, batches), feed, device),
            lambda: _seconds_a_batch((ready[number % len(ready)] for number in range(batches)), feed, device),
        )
        while len(rounds) < FEWEST_QUADS or device.clock_ns() < until:
            times = {way: ways[way]() for way in lot.sample((0, 1), 2)}
            rounds.append((times[0], times[1]))
    return summarize_rounds(rounds)


def _ahead(preprocess: Callable[[], Any], thread: ThreadPoolExecutor, batches: int) -> Iterator[Any]:
    """Yield batches; while one is used the thread makes the next."""
    coming = thread.submit(preprocess)
    for _ in range(batches - 1):
        batch = coming.result()
        coming = thread.submit(preprocess)
        yield batch
    yield coming.result()


def _seconds_a_batch(batches: Iterator[Any], feed: Callable[[Any], Any], device: Device) -> float:
    ends = []
    for batch in batches:
        feed(batch)
        device.synchronize()
        ends.append(device.timer_ns())
    return max(1, ends[-1] - ends[0]) / 1e9 / (len(ends) - 1)


def summarize_rounds(rounds: list[tuple[float, float]]) -> Exposed:
    """From the seconds a batch of the pipeline and of the model alone, round by round."""
    table = np.asarray(rounds)
    # Never below 0, for a pipeline is not faster than its model but by noise.
    share, low, high = (max(0.0, -math.expm1(-difference)) for difference in log_ratio(table))
    pipeline, model = np.median(table, axis=0).tolist()
    return Exposed(share, low, high, pipeline, model, rounds=len(rounds))
