"""The tolerances the gate starts with; ``[gate.tolerance]`` in perfgate.toml overrides them."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.catalogue.subroutines import SUBROUTINE_TIMES

# Allowed relative worsening. A counter is exact, so any worsening counts; time tolerances lie above what a code change that
# does not change speed can shift by luck of memory layout: where layouts move before every quad, that is part of the spread.
DEFAULT_TOLERANCES: dict[str, float] = {
    "counters.framework_ops": 0.0,
    "counters.flops": 0.0,
    # Any change of code moves these a little: what costs as much as a few operators shows, a helper function does not.
    "counters.python_calls": 0.05,
    "counters.bytecodes": 0.05,
    "counters.copies": 0.0,
    "counters.copy_bytes": 0.0,
    "counters.noncontiguous_copies": 0.0,
    "counters.allocations": 0.0,
    "counters.syncs": 0.0,
    "counters.graph_breaks": 0.0,
    "counters.recompiles": 0.0,
    "counters.repeat_saves": 0.0,
    "memory.kept": 0.0,
    "memory.peak": 0.01,
    "latency.low": 0.005,
    "latency.wall": 0.005,
    "preprocess.low": 0.005,
    # A share of the call. Hardly anything runs between calls, so luck of memory layout has little to act on.
    "throughput.gap": 0.003,
    "throughput.turnaround": 0.03,
    # Layouts do not move what is executed, only what threads that wait for each other do meanwhile.
    "hardware.instructions": 0.005,
    "hardware.cycles": 0.02,
    "hardware.cache_misses": 0.05,
    # Of recordings: between profiles made apart the sum of all kernels repeats to 0.3 %, what the hardware counts to 0.05 %.
    "kernels.time": 0.02,
    "kernels.mac_time": 0.002,
    "kernels.vec_time": 0.002,
    "latency.p50": 0.02,
    "latency.p99": 0.05,
}
# Those of a workload that cannot move: luck of one layout may be 1 %.
UNMOVED_TOLERANCES: dict[str, float] = {"latency.low": 0.01, "latency.wall": 0.01, "preprocess.low": 0.01}
# The slowdown that must be excluded before a time is called unchanged: the smaller one while there is time, where layouts move,
# and the larger one in the end.
SOUGHT_OK_MARGIN, OK_MARGIN = 0.01, 0.02
# What a counter may grow by in any case: some 10 µs of Python.
ALLOWED_MORE: dict[str, float] = {"counters.python_calls": 20, "counters.bytecodes": 300}


def judges_subroutines(tolerances: Iterable[str], kinds: tuple[str, ...] = SUBROUTINE_TIMES) -> bool:
    """Return whether the times of single operators, modules or functions are to be judged, or of these kinds of them.

    They are judged only where a tolerance names them.
    """
    return any(key.startswith(kinds) for key in tolerances)
