"""When a growth of sampled work is believed."""

from __future__ import annotations

# A growth is believed from this many standard errors of its samples on: with hundreds of functions chance names one in a
# hundred profiles.
_SURE = 4.0
# For functions and operators that the change touches, or that a changed line calls: they are expected to differ.
_SURE_OF_CHANGED = 2.5


def is_sure(growth: float, error: float, *, is_expected: bool) -> bool:
    """Whether work grew beyond the spread of its samples."""
    needed = _SURE_OF_CHANGED if is_expected else _SURE
    return growth > needed * error
