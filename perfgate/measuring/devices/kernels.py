"""Profiled blocks: the kernels that calls run, how long each takes, and whether two
blocks ran the same kernels.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.samples import KernelBlocks, KernelRow
from perfgate.measuring.devices.device import Call, Device, KernelRun

# Rows that a document keeps for one shape, and characters of a name: names of templates
# take hundreds.
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

    def record(self, shape: str, call: Call, *, calls: int, quad: int) -> None:
        kernels = self._device.record_kernels(call, calls=calls)
        self._blocks.setdefault(shape, []).append(KernelBlock(quad, calls, kernels))

    def clear(self) -> None:
        self._blocks.clear()

    def columns(self) -> dict[str, KernelBlocks]:
        return {shape: kernel_columns(blocks) for shape, blocks in self._blocks.items()}


def kernel_columns(blocks: Sequence[KernelBlock]) -> KernelBlocks:
    """The columns of profiled blocks of one shape."""
    columns = KernelBlocks(
        quad=[], calls=[], busy_ns=[], cycles=[], work=[], rows=_rows(blocks)
    )
    has_cycles = True
    for block in blocks:
        columns.quad.append(block.quad)
        columns.calls.append(block.calls)
        columns.busy_ns.append(sum(kernel.ns for kernel in block.kernels))
        columns.work.append(work_of(block.kernels))
        has_cycles = has_cycles and all(
            kernel.cycles is not None for kernel in block.kernels
        )
        columns.cycles.append(sum(kernel.cycles or 0 for kernel in block.kernels))
    if not has_cycles:
        columns.cycles.clear()
    return columns


def work_of(kernels: Iterable[KernelRun]) -> str:
    """A hash of the kernels of each stream in order; streams count in the order of
    their first kernel.

    The order between streams depends on times, and the number of a stream on the
    process.
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
    """The kernels by name and launch size: the median over the blocks of a call's
    nanoseconds, the longest first.
    """
    ns_of_call: dict[_Kind, list[float]] = defaultdict(lambda: [0.0] * len(blocks))
    counts: dict[_Kind, float] = defaultdict(float)
    for index, block in enumerate(blocks):
        for kernel in block.kernels:
            kind = kernel.name, kernel.launch
            ns_of_call[kind][index] += kernel.ns / block.calls
            counts[kind] += 1 / block.calls / len(blocks)
    rows = []
    for kind, times in ns_of_call.items():
        name, launch = kind
        ns = float(np.median(times))
        rows.append(
            KernelRow(
                name=_short(name),
                launch=launch,
                count=round(counts[kind], 3),
                ns=round(ns, 1),
            )
        )
    rows.sort(key=lambda row: (-row.ns, row.name, row.launch))
    if len(rows) <= MOST_ROWS:
        return rows
    rest = rows[MOST_ROWS - 1 :]
    others = KernelRow(
        name=OTHER_KERNELS,
        count=sum(row.count for row in rest),
        ns=sum(row.ns for row in rest),
    )
    return [*rows[: MOST_ROWS - 1], others]


def _short(name: str) -> str:
    """The name; one that is too long keeps its start, and a hash in place of the rest."""
    if len(name) <= MOST_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MOST_CHARACTERS - 9]}~{digest}"
