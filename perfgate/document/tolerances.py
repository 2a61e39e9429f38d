"""The margins for "unchanged" that the gate starts with, and what tolerances ask for."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.catalogue.names import SUBROUTINE_TIMES

# The slowdown that must be excluded before a time is called unchanged: the smaller one while there is time, where layouts move,
# and the larger one in the end.
SOUGHT_OK_MARGIN, OK_MARGIN = 0.01, 0.02


def judges_subroutines(tolerances: Iterable[str], kinds: tuple[str, ...] = SUBROUTINE_TIMES) -> bool:
    """Return whether the times of single operators, modules or functions are to be judged, or of these kinds of them.

    They are judged only where a tolerance names them.
    """
    return any(key.startswith(kinds) for key in tolerances)
