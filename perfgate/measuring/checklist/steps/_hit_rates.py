"""How often operators of a recording found in the L2 cache what they asked for, where it was made with such counters."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from perfgate.trace.recording import Kernel

Access = Literal["read", "write", "all"]

# Columns of AiCMetrics.L2Cache: aic_r0_read_cache_hit, aiv_write_cache_miss_allocate (910B, sample msprof-910B-20cores-2608),
# aic_read_local_l2_hit and _miss (Ascend 950, msprof's documentation). What was thrown out (victim) is neither.
_COLUMN = re.compile(r"_(?P<access>read|write)_(?:cache|local_l2)_(?P<what>hit|miss)(?:_allocate)?$")
# What the reader makes of l2_cache.csv (910A, 310P), one rate for a kernel.
_RATE = "l2_hit_rate"


class HitRate(NamedTuple):
    """The share of accesses that hit, of all kernels of one type; ``time_share`` is their part of the time of all kernels."""

    op: str
    access: Access
    rate: float
    time_share: float


def hit_rates(kernels: Iterable[Kernel]) -> list[HitRate]:
    """Return the rates by type of kernel, those that take most time first; none where no cache counter was collected."""
    by_type: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        if not kernel.is_collective:
            by_type[kernel.type or kernel.name].append(kernel)
    times = {op: sum(kernel.duration_ns for kernel in rows) for op, rows in by_type.items()}
    total = sum(times.values()) or 1
    return [
        HitRate(op, access, rate, times[op] / total)
        for op, rows in sorted(by_type.items(), key=lambda item: (-times[item[0]], item[0]))
        for access, rate in _rates(rows).items()
    ]


def _rates(rows: list[Kernel]) -> dict[Access, float]:
    counted: Counter[tuple[str, str]] = Counter()
    told = []
    for row in rows:
        counted.update(_accesses(row.counters))
        if (rate := _rate(row.counters)) is not None:
            told.append(rate)
    rates: dict[Access, float] = {}
    accesses: tuple[Access, ...] = ("read", "write")
    for access in accesses:
        hits, misses = counted[access, "hit"], counted[access, "miss"]
        if hits + misses:
            rates[access] = hits / (hits + misses)
    return rates or ({"all": sum(told) / len(told)} if told else {})


def _accesses(counters: Mapping[str, float]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for name, value in counters.items():
        if column := _COLUMN.search(name):
            # Counts are whole numbers that are written with decimals.
            found[column["access"], column["what"]] += round(value)
    return found


def _rate(counters: Mapping[str, float]) -> float | None:
    rate = counters.get(_RATE)
    return rate if rate is not None and 0 <= rate <= 1 else None
