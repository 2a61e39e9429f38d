"""The host's call that launched each piece of a device's work, joined by the number
that the profiler gave both.
"""

from __future__ import annotations

import numpy as np

from perfgate.trace.loops import earliest_calls, first_places, look_up
from perfgate.trace.model.arithmetic import Codes, IntColumn

NO_CORRELATION = -1
# Of a call that launched work of another device.
LAUNCHED_ELSEWHERE = -2
NOT_RECORDED = -1
_PLACES_A_NUMBER = (
    8  # in a table of positions by number; if numbers lie further apart they are sorted
)


def launch_positions(work: Codes, launches: Codes, begun: IntColumn) -> IntColumn:
    """For each event of a device the position of the call that launched it, or
    NOT_RECORDED.

    ``work`` and ``launches`` are the correlations of both, ``begun`` when each call
    began: one launch is seen at several levels of the runtime, and the first is the
    program's own call.
    """
    if not launches.size:
        return np.full(work.size, NOT_RECORDED, dtype=np.int64)
    least = min(int(launches.min()), 0)
    width = int(launches.max()) - least + 1
    if width <= _PLACES_A_NUMBER * launches.size:
        compiled = earliest_calls(work, launches, begun, least, width)
        if compiled is not None:
            return compiled
    candidates = np.flatnonzero(launches != NO_CORRELATION)
    order = candidates[np.argsort(begun[candidates], kind="stable")]
    positions = first_positions(work, launches[order])
    joined = positions != NOT_RECORDED
    positions[joined] = order[positions[joined]]
    return positions


def first_positions(values: Codes, numbers: Codes) -> IntColumn:
    """For each wanted number the position of the first one like it among ``numbers``,
    or NOT_RECORDED.
    """
    if not numbers.size:
        return np.full(values.size, NOT_RECORDED, dtype=np.int64)
    least, highest = int(numbers.min()), int(numbers.max())
    width = highest - least + 1
    are_short = least >= LAUNCHED_ELSEWHERE and highest < np.iinfo(np.int32).max
    if are_short and width <= _PLACES_A_NUMBER * numbers.size:
        place_of = first_places((numbers - least).astype(np.int32), width + 1)
        # Numbers outside have the first place or the last, which are of none.
        codes = np.clip(values, least - 1, highest + 1) - (least - 1)
        return look_up(place_of, codes.astype(np.int32, copy=False))
    positions = np.full(values.size, NOT_RECORDED, dtype=np.int64)
    distinct, first = np.unique(numbers, return_index=True)
    place = np.minimum(np.searchsorted(distinct, values), distinct.size - 1)
    is_match = distinct[place] == values
    positions[is_match] = first[place[is_match]]
    return positions
