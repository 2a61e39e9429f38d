"""Profiled blocks: the kernels that calls run, how long each takes, and whether two blocks ran the same ones."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from perfgate.document.samples import KernelBlocks, KernelRow
from perfgate.measuring.devices.device import Device, KernelRun

# Rows that a document keeps for one shape, and characters of a name: those of templates take hundreds.
MOST_ROWS = 64
MOST_CHARACTERS = 200
OTHER_KERNELS = "other kernels"
# A kernel's name and launch size.
_Kind = tuple[str, str]


class KernelBlock(NamedTuple):
    """A profiled block: its quad and its calls, and what its kernels were."""

    quad: int
    calls: int
    kernels: Sequence[KernelRun]


class KernelRecorder:
    """Profiles blocks of a workload and keeps them until they are asked for."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._blocks: dict[str, list[KernelBlock]] = {}

    def record(self, shape: str, call: Callable[[], Any], *, calls: int, quad: int) -> None:
        kernels = self._device.record_kernels(call, calls=calls)
        self._blocks.setdefault(shape, []).append(KernelBlock(quad, calls, kernels))

    def clear(self) -> None:
        self._blocks.clear()

    def columns(self) -> dict[str, KernelBlocks]:
        return {shape: kernel_columns(blocks) for shape, blocks in self._blocks.items()}


def kernel_columns(blocks: Sequence[KernelBlock]) -> KernelBlocks:
    """The columns of profiled blocks of one shape."""
    cycles = [_cycles(block.kernels) for block in blocks]
    return KernelBlocks(
        quad=[block.quad for block in blocks],
        calls=[block.calls for block in blocks],
        busy_ns=[sum(kernel.ns for kernel in block.kernels) for block in blocks],
        cycles=[count for count in cycles if count is not None] if None not in cycles else [],
        work=[work_of(block.kernels) for block in blocks],
        rows=_rows(blocks),
    )


def _cycles(kernels: Iterable[KernelRun]) -> int | None:
    """The cycles of all kernels; None if one has none."""
    total = 0
    for kernel in kernels:
        if kernel.cycles is None:
            return None
        total += kernel.cycles
    return total


def work_of(kernels: Iterable[KernelRun]) -> str:
    """A hash of the kernels of each stream in order; streams count in the order of their first kernel.

    The order between streams depends on times, and the number of a stream on the process.
    """
    streams: dict[int, list[_Kind]] = {}
    for kernel in sorted(kernels, key=lambda kernel: kernel.start_ns):
        streams.setdefault(kernel.stream, []).append((kernel.name, kernel.launch))
    digest = hashlib.sha256()
    for number, kinds in enumerate(sorted(streams.values())):
        for name, launch in kinds:
            digest.update(f"{number}\0{name}\0{launch}\n".encode())
    return digest.hexdigest()


def _rows(blocks: Sequence[KernelBlock]) -> list[KernelRow]:
    """The kernels by name and launch size: the median over the blocks of a call's nanoseconds, the longest first."""
    of_blocks: dict[_Kind, list[float]] = defaultdict(lambda: [0.0] * len(blocks))
    counts: dict[_Kind, float] = defaultdict(float)
    for index, block in enumerate(blocks):
        for kernel in block.kernels:
            kind = kernel.name, kernel.launch
            of_blocks[kind][index] += kernel.ns / block.calls
            counts[kind] += 1 / block.calls / len(blocks)
    rows: list[KernelRow] = []
    for (name, launch), times in of_blocks.items():
        ns = float(np.median(times))
        rows.append(KernelRow(name=_short(name), launch=launch, count=round(counts[name, launch], 3), ns=round(ns, 1)))
    rows.sort(key=lambda row: (-row.ns, row.name, row.launch))
    rest = rows[MOST_ROWS - 1 :]
    if len(rest) < 2:
        return rows
    others = KernelRow(name=OTHER_KERNELS, count=sum(row.count for row in rest), ns=sum(row.ns for row in rest))
    return [*rows[: MOST_ROWS - 1], others]


def _short(name: str) -> str:
    """The name; one that is too long keeps its start, and a hash in place of the rest."""
    if len(name) <= MOST_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MOST_CHARACTERS - 9]}~{digest}"
