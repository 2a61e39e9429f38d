"""perfgate: a performance gate for PyTorch models on NPUs, GPUs and CPUs.

What a user writes against is one name, ``perfgate.Workload`` (with ``perfgate.SLA`` and ``perfgate.Traffic``); it is loaded
on first use, so that the judging half and ``perfgate --help`` stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfgate.version import __version__

__all__ = ["SLA", "Traffic", "Workload", "__version__"]

if TYPE_CHECKING:
    from perfgate.measuring.workload.workload import SLA, Traffic, Workload


def __getattr__(name: str) -> object:
    """Load the names a workload file uses when they are first asked for."""
    if name in ("Workload", "SLA", "Traffic"):
        from perfgate.measuring.workload import workload

        return getattr(workload, name)
    raise AttributeError(f"module 'perfgate' has no attribute {name!r}")
