"""Preprocessing, timed stage by stage on raw batches that were made beforehand."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload, Stage, copied

Ints = npt.NDArray[np.int64]


class Preprocessing:
    """Calling it preprocesses the next raw batch of a pool; what each stage took is kept, in nanoseconds of the host.

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
        """Preprocess one batch and return it."""
        self._cursor += 1
        batch = self._raws[self._cursor % POOL_SIZE]
        if self._copies:
            batch = copied(batch)
        clock, marks = self._device.clock_ns, []
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
