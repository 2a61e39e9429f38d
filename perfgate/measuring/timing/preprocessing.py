"""Preprocessing, timed stage by stage, and how long a model waits for a thread that
preprocesses its next batch.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any

import numpy as np

from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.timing.calls import (
    Versus,
    summarize_turns,
    time_in_rounds,
)
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload, Stage, copied
from perfgate.stats.arrays import Ints


class Preprocessing:
    """Calling it preprocesses the next raw batch of a pool; the times of each stage are
    kept, in nanoseconds of the host.

    Stages that change the raw batch they are given get a fresh copy every time, and the
    copying is not timed. They are the workload's unless others are given.
    """

    def __init__(
        self,
        workload: BoundWorkload,
        shape: str,
        stages: tuple[Stage, ...] | None = None,
    ) -> None:
        self.stages = workload.stages if stages is None else stages
        self._runs: list[Callable[[Any], Any]] = [stage.run for stage in self.stages]
        self._raws = [
            workload.raw_inputs(shape, index=index) for index in range(POOL_SIZE)
        ]
        self._device = workload.device
        self._cursor = 0
        self._marks: list[list[int]] = []
        # Whether the stages change the raw batch they are given.
        passed = batch = copied(self._raws[0])
        before = _content(passed)
        for run in self._runs:
            batch = run(batch)
        self._copies = before != _content(passed)

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
        """The nanoseconds of the last ``calls`` calls, an array of shape (calls,
        stages), and forget all of them.
        """
        marks = np.asarray(self._marks[-calls:], dtype=np.int64)
        self._marks.clear()
        return np.diff(marks, axis=1)


def _content(batch: Any) -> bytes | None:
    try:
        return pickle.dumps(batch, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - whatever an object of the user's raises: it has no content that can be compared
        return None


_ROUND_SECONDS = 0.15
_FEWEST_BATCHES = 4


def compare_pipeline(
    preprocess: Call,
    feed: Callable[[Any], Any],
    device: Device,
    *,
    seconds: float,
    seed: int,
) -> Versus:
    """How much faster the model is on ready batches than behind a thread that
    preprocesses the next one, a batch.

    Both take turns in rounds of a few batches, for about ``seconds`` and at least
    ``FEWEST_QUADS`` rounds. ``preprocess`` makes the next batch, ``feed`` brings one to
    the device and calls the model.
    """
    ready = [preprocess() for _ in range(_FEWEST_BATCHES)]
    started = device.clock_ns()
    preprocess()
    feed(ready[0])
    device.synchronize()
    batch_seconds = (device.clock_ns() - started) / 1e9
    batches = max(_FEWEST_BATCHES, int(_ROUND_SECONDS / max(batch_seconds, 1e-9)))
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="preprocess") as thread:
        ways = {
            "pipeline": lambda: _ns_a_batch(
                _ahead(preprocess, thread, batches), feed, device
            ),
            "ready": lambda: _ns_a_batch(islice(cycle(ready), batches), feed, device),
        }
        times = time_in_rounds(ways, device, seconds=seconds, seed=seed)
    return summarize_turns(np.column_stack(list(times.values())))


def exposed_share(pipeline: Versus) -> tuple[float, float, float]:
    """The share of the pipeline's time in which the model waits, 1 - T_model /
    T_pipeline, with its interval.

    It is never below 0: a pipeline is not faster than its model but by noise.
    """
    share, low, high = (
        max(0.0, 1 - 1 / times)
        for times in (pipeline.speedup, pipeline.low, pipeline.high)
    )
    return share, low, high


def _ahead(preprocess: Call, thread: ThreadPoolExecutor, batches: int) -> Iterator[Any]:
    """Yield batches; while one is used the thread makes the next."""
    coming = thread.submit(preprocess)
    for _ in range(batches - 1):
        batch = coming.result()
        coming = thread.submit(preprocess)
        yield batch
    yield coming.result()


def _ns_a_batch(
    batches: Iterator[Any], feed: Callable[[Any], Any], device: Device
) -> float:
    ends = []
    for batch in batches:
        feed(batch)
        device.synchronize()
        ends.append(device.timer_ns())
    return max(1, ends[-1] - ends[0]) / (len(ends) - 1)
