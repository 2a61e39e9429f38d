"""perfgate: a performance gate for PyTorch models on NPUs, GPUs and CPUs.

The user's interface is ``perfgate.Workload`` (with ``perfgate.SLA`` and
``perfgate.Traffic``), ``perfgate.operator``, the benchmarks of other tools
(``perfgate.pytest_benchmark``, ``asv_benchmark``, ``pyperf_benchmark``), and in the
loop of a script ``perfgate.turn()``; they are loaded on first use, so that the judging
half and ``perfgate --help`` stay light.
"""

from __future__ import annotations

from perfgate.version import __version__

# for mypy it is true; typing takes longer to import than a kept output to print
TYPE_CHECKING = False

__all__ = [
    "SLA",
    "Traffic",
    "Workload",
    "__version__",
    "asv_benchmark",
    "operator",
    "pyperf_benchmark",
    "pytest_benchmark",
    "turn",
]

if TYPE_CHECKING:
    from perfgate.measuring.rank import turn
    from perfgate.measuring.workload.benchmarks import (
        asv_benchmark,
        pyperf_benchmark,
        pytest_benchmark,
    )
    from perfgate.measuring.workload.operators import operator
    from perfgate.measuring.workload.workload import SLA, Traffic, Workload


def __getattr__(name: str) -> object:
    """Load the names that a workload file or a script uses when they are first asked
    for.
    """
    if name in ("Workload", "SLA", "Traffic"):
        from perfgate.measuring.workload import workload

        return getattr(workload, name)
    if name in ("asv_benchmark", "pyperf_benchmark", "pytest_benchmark"):
        from perfgate.measuring.workload import benchmarks

        return getattr(benchmarks, name)
    if name == "operator":
        from perfgate.measuring.workload.operators import operator

        return operator
    if name == "turn":
        from perfgate.measuring.rank import turn

        globals()[name] = turn  # a loop asks for it in every step
        return turn
    raise AttributeError(f"module 'perfgate' has no attribute {name!r}")
