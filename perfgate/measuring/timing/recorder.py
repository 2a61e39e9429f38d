"""The blocks of one worker, kept until the conductor asks for them, and their columns
in a document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from perfgate.document.samples import (
    BlockColumns,
    DeviceColumns,
    KernelBlocks,
    PackedTimes,
    StageTimes,
    WorkerColumns,
    pack,
)
from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.kernels import KernelRecorder
from perfgate.measuring.timing.blocks import BlockTimes, run_block
from perfgate.measuring.timing.hardware import HardwareCounters, shared_counters
from perfgate.measuring.timing.preprocessing import Preprocessing
from perfgate.measuring.workload.bound import BoundWorkload, line_of
from perfgate.system.garbage import thaw

CpuSource = Literal["thread_cpu", "device"]


class RecordedBlock(NamedTuple):
    """A block, its quad and its place in the sequence."""

    quad: int
    sequence: int
    times: BlockTimes


class BlockRecorder:
    """Runs blocks of a workload and keeps them until they are asked for.

    ``preprocessing`` maps each shape to its preprocessing; it is empty for a workload
    without any.
    """

    def __init__(
        self,
        workload: BoundWorkload,
        *,
        counters: HardwareCounters | None,
    ) -> None:
        self._device = workload.device
        self._root = workload.root
        self._counters = counters
        self._kernels = KernelRecorder(workload.device)
        self._callers = {shape: workload.caller(shape) for shape in workload.shapes}
        self._blocks: dict[str, list[RecordedBlock]] = {
            shape: [] for shape in workload.shapes
        }
        self.preprocessing: dict[str, Preprocessing] = {}
        self._preprocess_blocks: dict[str, list[RecordedBlock]] = {}
        if workload.stages:
            for shape in workload.shapes:
                self.preprocessing[shape] = Preprocessing(workload, shape)
                self._preprocess_blocks[shape] = []

    def record(
        self,
        shape: str,
        *,
        calls: int,
        quad: int,
        sequence: int,
        as_served: bool = False,
    ) -> BlockTimes:
        if as_served:
            thaw()
        block = run_block(
            self._callers[shape],
            self._device,
            calls=calls,
            as_served=as_served,
            counters=self._counters,
        )
        if as_served:
            # A wait that the kernel booked between the readings of the two clocks may
            # exceed a short call.
            calls_of_block = block.calls._replace(wall=np.maximum(block.calls.wall, 1))
            if calls_of_block.host is not None:
                calls_of_block = calls_of_block._replace(
                    host=np.maximum(calls_of_block.host, 1)
                )
            block = block._replace(calls=calls_of_block)
        self._blocks[shape].append(RecordedBlock(quad, sequence, block))
        return block

    def wake(self, shape: str, *, seconds: float) -> None:
        """Bring a device that idled back to its temperature and clock, by calls that
        are not recorded.
        """
        until = self._device.clock_ns() + int(seconds * 1e9)
        while self._device.clock_ns() < until:
            self._callers[shape]()
            self._device.synchronize()

    def record_kernels(self, shape: str, *, calls: int, quad: int) -> None:
        self._kernels.record(shape, self._callers[shape], calls=calls, quad=quad)

    def record_preprocessing(
        self, shape: str, *, calls: int, quad: int, sequence: int
    ) -> BlockTimes:
        preprocessing = self.preprocessing[shape]
        block = run_block(
            preprocessing,
            self._device,
            calls=calls,
            on_host=True,
            counters=self._counters,
        )
        stages = preprocessing.taken(calls)
        block = block._replace(
            calls=block.calls._replace(wall=stages.sum(axis=1), stages=stages)
        )
        self._preprocess_blocks[shape].append(RecordedBlock(quad, sequence, block))
        return block

    def clear(self) -> None:
        """Forget the recorded blocks."""
        for blocks in (*self._blocks.values(), *self._preprocess_blocks.values()):
            blocks.clear()
        self._kernels.clear()

    @property
    def uncounted(self) -> str | None:
        """The hardware counters missing from the blocks, and why; None if none is
        missing or counting is off.
        """
        if self._counters is None or self._counters.absent:
            return self._counters.absent if self._counters else None
        counts = []
        for blocks in (*self._blocks.values(), *self._preprocess_blocks.values()):
            counts += [block.times.counts for block in blocks]
        return shared_counters(counts)

    def columns(self) -> dict[str, BlockColumns]:
        """The blocks of every shape in the order they ran; shapes without a block are
        left out.
        """
        source: CpuSource = (
            "device" if "queue" in self._device.capabilities else "thread_cpu"
        )
        return {
            shape: _as_columns(blocks, source)
            for shape, blocks in self._blocks.items()
            if blocks
        }

    def kernel_columns(self) -> dict[str, KernelBlocks]:
        """The profiled blocks of every shape, in the order they ran."""
        return self._kernels.columns()

    def preprocess_columns(self) -> dict[str, BlockColumns]:
        """The blocks of preprocessing of every shape; lines of stages are those of the
        project.
        """
        columns = {}
        for shape, blocks in self._preprocess_blocks.items():
            if not blocks:
                continue
            stage_rows = [
                block.times.calls.stages
                for block in blocks
                if block.times.calls.stages is not None
            ]
            times = []
            for stage, wall in zip(
                self.preprocessing[shape].stages, np.concatenate(stage_rows).T
            ):
                times.append(
                    StageTimes(
                        name=stage.name,
                        wall=pack(wall),
                        line=line_of(stage.run, self._root),
                    )
                )
            columns[shape] = _as_columns(blocks, "thread_cpu", times)
        return columns


def _as_columns(
    blocks: Sequence[RecordedBlock],
    source: CpuSource,
    stages: Sequence[StageTimes] = (),
) -> BlockColumns:
    calls = [block.times.calls for block in blocks]
    host = [block.host for block in calls if block.host is not None]
    times = PackedTimes(
        wall=pack(np.concatenate([block.wall for block in calls])),
        cpu=pack(np.concatenate([block.cpu for block in calls])),
        host=pack(np.concatenate(host)) if host else None,
        cpu_source=source,
        stages=list(stages),
    )
    worker = WorkerColumns(
        start_ns=[], end_ns=[], involuntary_switches=[], minor_faults=[]
    )
    device = DeviceColumns()
    columns = BlockColumns(
        quad=[], sequence=[], calls=[], times=times, worker=worker, device=device
    )
    for quad, sequence, block in blocks:
        columns.quad.append(quad)
        columns.sequence.append(sequence)
        columns.calls.append(block.calls.wall.size)
        worker.start_ns.append(block.calls.start_ns)
        worker.end_ns.append(block.calls.end_ns)
        worker.involuntary_switches.append(block.involuntary_switches)
        worker.minor_faults.append(block.minor_faults)
        worker.took_ns.append(block.took_ns)
        if block.took_delay_ns is not None:
            worker.took_delay_ns.append(block.took_delay_ns)
        for column, count in zip(worker.counts, block.counts):
            if count is not None:
                column.append(count)
        _add_state(device, block.condition)
    for column in (worker.took_delay_ns, *worker.counts):
        if len(column) < len(blocks):  # some block lacks the number
            column.clear()
    return columns


def _add_state(columns: DeviceColumns, state: DeviceState) -> None:
    columns.throttled.append(state.throttled)
    columns.power_capped.append(state.power_capped)
    columns.clock_share.append(state.clock_share())
    processes = state.foreign_processes
    columns.foreign_processes.append(None if processes is None else len(processes))
