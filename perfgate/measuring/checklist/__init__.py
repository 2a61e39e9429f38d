"""The checklist: the Protocol of a step, the loop over them, and one module or package
a step in ``steps/``.
"""

from __future__ import annotations

from perfgate.measuring.checklist import steps
from perfgate.plugins import STEPS, member_names


def step_numbers() -> tuple[int, ...]:
    """The numbers of the steps by the names of their files (``s01_latency``): no
    measuring code is imported.
    """
    return tuple(sorted(int(name[1:3]) for name in member_names(steps, STEPS)))
