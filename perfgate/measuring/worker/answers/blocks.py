"""Timed blocks: warming up, moving between blocks, the blocks themselves, and their
samples.
"""

from __future__ import annotations

import sys
from functools import partial

# The function itself, taken before user code may replace it.
from gc import get_objects

import msgspec

from perfgate.errors import MeasuringError
from perfgate.measuring.timing.hardware import HardwareCounters
from perfgate.measuring.timing.recorder import BlockRecorder
from perfgate.measuring.timing.warm_up import warm_up
from perfgate.measuring.worker.loaded import AnswersByRequest, LoadedWorkload
from perfgate.measuring.worker.spawn import is_forkable, open_files
from perfgate.measuring.workload.layout import Layout
from perfgate.protocol import (
    BlockDone,
    BlockRequest,
    Collected,
    CollectRequest,
    KernelsDone,
    KernelsRequest,
    LayoutMoved,
    MoveRequest,
    Parked,
    ParkRequest,
    WakeRequest,
    WarmedUp,
    WarmUpRequest,
    Woken,
)
from perfgate.system.garbage import collector_off


class BlockAnswers:
    """Runs timed blocks of a workload, with the ``counters`` of this process."""

    def __init__(self, loaded: LoadedWorkload, counters: HardwareCounters) -> None:
        self._loaded = loaded
        self._workload = loaded.workload
        self._device = loaded.workload.device
        self._counters = counters
        self._recorder: BlockRecorder | None = None
        self._layout: Layout | None = None
        # Made behind the last time that we freeze: the collector lists it until user
        # code freezes it with everything else. Looking for it costs less than counting
        # all frozen objects, which include every import of torch.
        self._unfrozen: list[object] = []
        self.answers: AnswersByRequest = {
            WarmUpRequest: self._warm_up,
            ParkRequest: self._park,
            MoveRequest: self._move,
            BlockRequest: self._block,
            WakeRequest: self._wake,
            KernelsRequest: self._record_kernels,
            CollectRequest: self._collect,
        }

    def count_by(self, counters: HardwareCounters) -> None:
        """Record from here on by other counters: a forked process has none of its
        parent's.
        """
        self._counters = counters
        self._recorder = BlockRecorder(self._workload, counters=counters)

    @property
    def recorder(self) -> BlockRecorder:
        if self._recorder is None:
            raise MeasuringError("the worker is not warmed up yet")
        return self._recorder

    def _warm_up(self, request: WarmUpRequest) -> WarmedUp:
        self._recorder = BlockRecorder(self._workload, counters=self._counters)
        files = open_files()
        warm = warm_up(
            self._workload,
            block_seconds=request.block_seconds,
            cap_seconds=request.cap_seconds,
            least_seconds=request.least_seconds,
            preprocessing=self._recorder.preprocessing,
        )
        self._unfrozen = []
        before = self._loaded.before
        # Tensors that do not move would have the same address in all processes forked
        # from this one.
        if (
            is_forkable(self._device, began=before, loaded=files)
            and Layout(self._workload).movable
        ):
            return msgspec.structs.replace(
                warm, forkable=True, parts=before.imported_since()
            )
        return warm

    def _park(self, request: ParkRequest) -> Parked:
        if request.away:
            self._device.park(self._workload.model)
        else:
            self._device.unpark(self._workload.model)
        return Parked()

    def _move(self, request: MoveRequest) -> LayoutMoved:
        if self._layout is None:
            self._layout = Layout(self._workload)
        self._layout.move(request.seed)
        return LayoutMoved(movable=self._layout.movable)

    def _block(self, request: BlockRequest) -> BlockDone:
        record = self.recorder.record_preprocessing
        if request.lane == "call":
            record = partial(self.recorder.record, as_served=request.as_served)
        record(
            request.shape,
            calls=request.calls,
            quad=request.quad,
            sequence=request.sequence,
        )
        return BlockDone()

    def _wake(self, request: WakeRequest) -> Woken:
        with collector_off():
            self.recorder.wake(request.shape, seconds=request.seconds)
        return Woken()

    def _record_kernels(self, request: KernelsRequest) -> KernelsDone:
        with collector_off():
            self.recorder.record_kernels(
                request.shape, calls=request.calls, quad=request.quad
            )
        return KernelsDone()

    def _collect(self, _: CollectRequest) -> Collected:
        # Settings that a workload may have changed although they were set for both
        # sides alike.
        # Garbage frozen by user code (``gc.freeze``) is never collected, so its cost
        # stays hidden.
        settings = {"frozen objects": "more than set aside"}
        if any(entry is self._unfrozen for entry in get_objects()):
            settings["frozen objects"] = "as set aside"
        if torch := sys.modules.get("torch"):
            settings["torch threads"] = str(torch.get_num_threads())
            settings["torch interop threads"] = str(torch.get_num_interop_threads())
        collected = Collected(
            shapes=self.recorder.columns(),
            preprocess=self.recorder.preprocess_columns(),
            kernels=self.recorder.kernel_columns(),
            settings=settings,
            uncounted=self.recorder.uncounted,
        )
        # A resident worker goes on to the blocks of another pair.
        self.recorder.clear()
        return collected
