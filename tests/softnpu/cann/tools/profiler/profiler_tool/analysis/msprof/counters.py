"""Counters of the cores. They are synthetic: fixed shares of the duration, for parsers to read and for nothing else."""

from __future__ import annotations

from recording import CUBE_CORES, Task

MEGAHERTZ = 1800
NOT_AVAILABLE = "N/A"
VICTIM_RATE = 0.125
BUSY = 0.96  # share of the duration in which the cores count cycles

# aclprofAicoreMetrics (acl_prof.h of the wheel).
ARITHMETIC, PIPES, L2_CACHE = 0, 1, 6

CUBE_PIPES = {"mac": 0.55, "scalar": 0.08, "mte1": 0.35, "mte2": 0.62, "fixpipe": 0.12}
VECTOR_PIPES = {"vec": 0.42, "scalar": 0.1, "mte2": 0.48, "mte3": 0.3}
CUBE_ARITHMETIC = {"mac_fp16_ratio": 0.5, "mac_int8_ratio": 0.0}
VECTOR_ARITHMETIC = {"vec_fp32_ratio": 0.3, "vec_fp16_ratio": 0.1, "vec_int32_ratio": 0.02, "vec_misc_ratio": 0.05}
OPERATIONS_PER_CYCLE = {"aic": 4096, "aiv": 64}
CACHE_PER_CYCLE = {
    "write_cache_hit": 0.006,
    "write_cache_miss_allocate": 0.001,
    "r0_read_cache_hit": 0.012,
    "r0_read_cache_miss_allocate": 0.003,
    "r1_read_cache_hit": 0.008,
    "r1_read_cache_miss_allocate": 0.002,
}
ICACHE_MISSES = 0.004


def columns(metrics: int) -> list[str]:
    """Return the columns of a group of counters; none for a group that is not built."""
    return list(_counters(1.0, True, metrics))


def values(task: Task, metrics: int) -> list:
    """Return the counters of a task in the order of the columns."""
    if task.link is not None:
        return [NOT_AVAILABLE] * len(columns(metrics))
    return list(_counters(task.duration_us, task.uses_cube, metrics).values())


def _counters(duration_us: float, cube: bool, metrics: int) -> dict[str, float]:
    builders = {PIPES: _pipes, ARITHMETIC: _arithmetic, L2_CACHE: _cache}
    if metrics not in builders:
        return {}
    counters: dict[str, float] = {}
    for core, on in (("aic", cube), ("aiv", not cube)):
        time = round(duration_us * BUSY, 3) if on else 0.0
        cycles = int(time * MEGAHERTZ * CUBE_CORES * (1 if core == "aic" else 2))
        counters["aicore_time(us)" if core == "aic" else "aiv_time(us)"] = time
        counters[f"{core}_total_cycles"] = cycles
        counters.update(builders[metrics](core, time, cycles))
    if metrics == PIPES:
        cycles = counters["aic_total_cycles"]
        counters["cube_utilization(%)"] = round(100 * cycles / (MEGAHERTZ * CUBE_CORES * duration_us), 3)
    return counters


def _pipes(core: str, time: float, cycles: int) -> dict[str, float]:
    shares = CUBE_PIPES if core == "aic" else VECTOR_PIPES
    counters: dict[str, float] = {}
    for pipe, share in shares.items():
        counters[f"{core}_{pipe}_time(us)"] = round(time * share, 3)
        counters[f"{core}_{pipe}_ratio"] = share if cycles else 0.0
    counters[f"{core}_icache_miss_rate"] = ICACHE_MISSES if cycles else 0.0
    return counters


def _arithmetic(core: str, _time: float, cycles: int) -> dict[str, float]:
    shares = CUBE_ARITHMETIC if core == "aic" else VECTOR_ARITHMETIC
    counters = {f"{core}_{name}": share if cycles else 0.0 for name, share in shares.items()}
    operations = "aic_cube_fops" if core == "aic" else "aiv_vector_fops"
    return {**counters, operations: cycles * OPERATIONS_PER_CYCLE[core]}


def _cache(core: str, _time: float, cycles: int) -> dict[str, float]:
    return {f"{core}_{name}": int(cycles * share) for name, share in CACHE_PER_CYCLE.items()}
