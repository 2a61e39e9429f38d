"""Which steps there are, told by the names of their files: whoever only offers them need not import what measures."""

from __future__ import annotations

from perfgate.measuring.checklist import steps
from perfgate.plugins import member_names


def step_numbers() -> tuple[int, ...]:
    """Return the numbers of the steps in ``steps/``, from ``s01_latency`` on, in order."""
    return tuple(sorted(int(name[1:3]) for name in member_names(steps)))
