"""How the kernels of a recording use an NPU's cores: how many of them, and which of their pipes."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from perfgate.trace.recording import Kernel

Unit = Literal["cube", "vector"]
Bound = Literal["compute", "memory", "neither"]

# What the column Accelerator Core says, by the unit whose cores a kernel's blocks are spread over. Rows of AI_CPU, DSA_SQE
# (random numbers) and collectives are on neither.
_UNITS: Mapping[str, Unit] = {"AI_CORE": "cube", "MIX_AIC": "cube", "AI_VECTOR_CORE": "vector", "MIX_AIV": "vector"}
# Columns of AiCMetrics.PipeUtilization, shares of all cycles: aic_mac_ratio on a cube core, aiv_vec_ratio on a vector core,
# without a prefix where a chip has only one kind (310P, 910A). mte2 loads, mte3 and fixpipe store.
_PREFIXES = ("aic_", "aiv_", "")
_COMPUTING = ("mac_ratio", "vec_ratio")
_MOVING = ("mte2_ratio", "mte3_ratio", "fixpipe_ratio")

# 20 and 40, 24 and 48 on the chips whose tables have a column cube_utilization (samples, 910B).
_VECTOR_CORES_A_CUBE_CORE = 2


@dataclass(frozen=True)
class Cores:
    """How many cores of each unit a device has; None where nobody tells."""

    cube: int | None
    vector: int | None

    def of(self, unit: Unit) -> int | None:
        return self.cube if unit == "cube" else self.vector


@dataclass(frozen=True)
class CoreUse:
    """All kernels of one type on one unit; shares are weighted by the time of the kernels.

    ``occupancy`` is the part of the unit's cores that a kernel is spread over, ``tail`` how full they are in the last of
    the turns that more blocks than cores take. ``attained`` is the busiest pipe's share of all cycles, and ``bound`` says
    whether it computes or moves data; it is neither where no pipe is busy for half of them. None was not collected.
    """

    op: str
    unit: Unit
    time_share: float
    occupancy: float | None
    tail: float | None
    attained: float | None
    bound: Bound | None


def known_cores(settings: Mapping[str, str], kernels: Sequence[Kernel], frequency: float | None) -> Cores:
    """The cores that a recording's settings or a device's properties tell, else those that its counters imply.

    How many blocks kernels are split over says nothing about that: a kernel may use a single core. ``frequency`` is that of
    the cores in hertz, where it is known.
    """
    cube, vector = _number(settings, "aic_cores", "cube cores"), _number(settings, "aiv_cores", "vector cores")
    if cube is not None or vector is not None:
        return Cores(cube, vector)
    implied = _implied_cube_cores(kernels, frequency) if frequency else None
    if implied is not None:
        return Cores(implied, _VECTOR_CORES_A_CUBE_CORE * implied)
    return Cores(None, None)


def _implied_cube_cores(kernels: Iterable[Kernel], frequency: float) -> int | None:
    """How many cube cores there must be: msprof's cube_utilization is cycles / (frequency * cores * duration).

    On the recorded samples of 910B, every kernel's numbers give the same 20 or 24.
    """
    implied = [
        cycles / (frequency * utilization / 100 * kernel.duration_ns / 1e9)
        for kernel in kernels
        if (utilization := kernel.counters.get("cube_utilization(%)", 0.0)) > 0
        and (cycles := kernel.counters.get("aic_total_cycles", 0.0)) > 0
        and kernel.duration_ns
    ]
    return round(statistics.median(implied)) or None if implied else None


def core_uses(kernels: Sequence[Kernel], cores: Cores, *, attainable: float) -> list[CoreUse]:
    """The types of kernels that run on cores, most time first; ``attainable`` is when a pipe counts as busy."""
    total = sum(kernel.duration_ns for kernel in kernels if not kernel.is_collective) or 1
    by_type: dict[tuple[str, Unit], list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        if (unit := _UNITS.get((kernel.core or "").upper())) is not None:
            by_type[kernel.type or kernel.name, unit].append(kernel)
    uses = [_use(op, unit, rows, cores.of(unit), total, attainable) for (op, unit), rows in by_type.items()]
    return sorted(uses, key=lambda use: (-use.time_share, use.op))


def _use(op: str, unit: Unit, rows: list[Kernel], cores: int | None, total: int, attainable: float) -> CoreUse:
    occupancy = tail = None
    if cores:
        blocks = [(row, row.blocks) for row in rows if row.blocks]
        occupancy = _weighted([(row, min(count, cores) / cores) for row, count in blocks])
        # Of the turns that the cores take for the blocks, the part that is used.
        tail = _weighted([(row, count / (math.ceil(count / cores) * cores)) for row, count in blocks])
    computing, moving = _busiest(rows, _COMPUTING), _busiest(rows, _MOVING)
    attained = max((share for share in (computing, moving) if share is not None), default=None)
    bound: Bound | None = None
    if attained is not None:
        bound = "neither" if attained < attainable else "compute" if attained == computing else "memory"
    return CoreUse(
        op=op,
        unit=unit,
        time_share=sum(row.duration_ns for row in rows) / total,
        occupancy=occupancy,
        tail=tail,
        attained=attained,
        bound=bound,
    )


def _busiest(rows: list[Kernel], pipes: tuple[str, ...]) -> float | None:
    columns = [prefix + pipe for prefix in _PREFIXES for pipe in pipes]
    shares = [_weighted([(row, row.counters[name]) for row in rows if name in row.counters]) for name in columns]
    return max((share for share in shares if share is not None), default=None)


def _weighted(pairs: list[tuple[Kernel, float]]) -> float | None:
    """The mean of the shares, by the time of their kernels."""
    time = sum(row.duration_ns for row, _ in pairs)
    return sum(row.duration_ns * share for row, share in pairs) / time if time else None


def _number(settings: Mapping[str, str], *names: str) -> int | None:
    # Ranks that differ are written as several numbers.
    text = next((settings[name] for name in names if name in settings), "")
    return int(text) if text.isdecimal() and int(text) else None
