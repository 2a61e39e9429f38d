"""How well the kernels of a recording use the cores and the pipes of a device, per operator."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfgate.measuring.checklist.recorded import setting_number
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import Kernel

Unit = Literal["cube", "vector"]
Bound = Literal["compute", "memory", "neither"]
# The number of cores of each unit of a device, as far as it is known.
Cores = Mapping[Unit, int]

# Values of the column Accelerator Core, by the unit that runs a kernel's blocks. AI_CPU, DSA_SQE (random numbers) and
# collectives run on neither.
_UNITS: Mapping[str, Unit] = {
    "AI_CORE": "cube",
    "MIX_AIC": "cube",
    "AI_VECTOR_CORE": "vector",
    "MIX_AIV": "vector",
}
# Columns of AiCMetrics.PipeUtilization, shares of all cycles: aic_mac_ratio on a cube core, aiv_vec_ratio on a vector core,
# without a prefix on chips with only one kind (310P, 910A). mte2 loads, mte3 and fixpipe store.
_PREFIXES = ("aic_", "aiv_", "")
_COMPUTING = ("mac_ratio", "vec_ratio")
_MOVING = ("mte2_ratio", "mte3_ratio", "fixpipe_ratio")
_PIPE_COLUMNS = tuple(
    prefix + pipe
    for pipe, prefix in itertools.product((*_COMPUTING, *_MOVING), _PREFIXES)
)
_UTILIZATION, _CYCLES = "cube_utilization(%)", "aic_total_cycles"
# 20 and 40, 24 and 48 on the chips with a column cube_utilization in their tables (samples, 910B).
_VECTOR_CORES_A_CUBE_CORE = 2


@dataclass(frozen=True)
class CoreUse:
    """All kernels of one type on one unit; shares are weighted by the time of the kernels.

    ``occupancy`` is the share of the unit's cores that a kernel's blocks fill. ``attained`` is the busiest pipe's share of all
    cycles; ``bound`` is the kind of that pipe, or neither if no pipe is busy for the attainable share of the cycles. None was
    not collected.
    """

    op: str
    unit: Unit
    time_share: float
    occupancy: float | None
    attained: float | None
    bound: Bound | None


def known_cores(
    settings: Mapping[str, str], kernels: Sequence[Kernel], frequency: float | None
) -> Cores:
    """The cores of each unit in a recording's settings or a device's properties, else those that its counters imply.

    The number of blocks of a kernel does not imply it: a kernel may use a single core. ``frequency`` of the cores is in
    hertz, None if unknown.
    """
    cube = setting_number(settings, "aic_cores", "cube cores")
    vector = setting_number(settings, "aiv_cores", "vector cores")
    clock = cube_clock(KernelTable.of(kernels))
    if cube is None and vector is None and frequency and clock is not None:
        # On the recorded samples of 910B, every kernel's numbers give the same 20 or 24.
        cube = round(clock / frequency)
        vector = _VECTOR_CORES_A_CUBE_CORE * cube
    cores: dict[Unit, int] = {}
    if cube:
        cores["cube"] = cube
    if vector:
        cores["vector"] = vector
    return cores


def cube_clock(kernels: KernelTable) -> float | None:
    """Cycles of all cube cores in a second: msprof's cube_utilization is cycles / (frequency * cores * duration)."""
    counters = kernels.counters.columns(_UTILIZATION, _CYCLES)
    if len(counters) < len((_UTILIZATION, _CYCLES)):
        return None
    percent, cycles = counters[_UTILIZATION], counters[_CYCLES]
    is_counted = (percent > 0) & (cycles > 0) & (kernels.duration > 0)
    clocks = cycles[is_counted] / (
        percent[is_counted] / 100 * kernels.duration[is_counted] / 1e9
    )
    if clocks.size:
        return float(np.median(clocks))
    return None


def core_uses(
    kernels: Sequence[Kernel], cores: Cores, *, attainable: float
) -> list[CoreUse]:
    """The types of kernels that run on cores, most time first; ``attainable`` is when a pipe counts as busy."""
    table = KernelTable.of(kernels)
    total = 0
    by_type: dict[tuple[str, Unit], list[int]] = {}
    for number, (kernel, _, total_ns) in enumerate(table.alike()):
        unit = _UNITS.get((kernel.core or "").upper())
        if unit is not None:
            by_type.setdefault((kernel.type or kernel.name, unit), []).append(number)
        if not kernel.is_collective:
            total += total_ns
    uses = []
    for (op, unit), numbers in by_type.items():
        rows = table.select(np.isin(table.alike_number, numbers))
        attained, bound = _busiest_pipe(rows, attainable)
        share = int(rows.duration.sum()) / (total or 1)
        uses.append(
            CoreUse(op, unit, share, _occupancy(rows, cores.get(unit)), attained, bound)
        )
    return sorted(uses, key=lambda use: (-use.time_share, use.op))


def _occupancy(rows: KernelTable, cores: int | None) -> float | None:
    blocks = rows.numbers["blocks"]
    has_blocks = (blocks > 0) & (rows.duration > 0)
    if not cores or not has_blocks.any():
        return None
    return float(
        np.average(
            np.minimum(blocks[has_blocks], cores) / cores,
            weights=rows.duration[has_blocks],
        )
    )


def _busiest_pipe(
    rows: KernelTable, attainable: float
) -> tuple[float | None, Bound | None]:
    attained: float | None = None
    bound: Bound | None = None
    columns = rows.counters.columns(*_PIPE_COLUMNS)
    for name in _PIPE_COLUMNS:  # computing pipes first: they win a tie
        if name not in columns:
            continue
        is_timed = ~np.isnan(columns[name]) & (rows.duration > 0)
        if not is_timed.any():
            continue
        share = float(
            np.average(columns[name][is_timed], weights=rows.duration[is_timed])
        )
        if attained is None or share > attained:
            attained = share
            bound = "compute" if name.endswith(_COMPUTING) else "memory"
    if attained is not None and attained < attainable:
        bound = "neither"
    return attained, bound
