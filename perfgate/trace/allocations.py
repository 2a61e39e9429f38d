"""What operators allocated on a device: how much in all, and how much of it when most was held."""

from __future__ import annotations

from array import array

import numpy as np

from perfgate.trace.recording import AllocationTotal

# Instead of a time that was not recorded.
_BEFORE, _AFTER = -(1 << 62), 1 << 62


class Allocations:
    """The allocations of a recording, one by one: columns of names, bytes, and nanoseconds from when until when."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._operators, self._starts, self._ends = array("q"), array("q"), array("q")
        self._sizes = array("d")

    def __len__(self) -> int:
        """How many operators allocated."""
        return len(self._names)

    def add(self, name: str, size: float, start_ns: int | None, end_ns: int | None) -> None:
        """Add one; without a start it was there before, without an end it outlives the recording."""
        self._operators.append(self._names.setdefault(name, len(self._names)))
        self._sizes.append(size)
        self._starts.append(_BEFORE if start_ns is None else start_ns)
        self._ends.append(_AFTER if end_ns is None else end_ns)

    def totals(self) -> tuple[AllocationTotal, ...]:
        """Of each operator, in the order in which they first allocated."""
        if not self._names:
            return ()
        operators, sizes = np.array(self._operators), np.array(self._sizes)
        starts, ends = np.array(self._starts), np.array(self._ends)
        # What is released at a moment makes room for what is allocated then.
        times, changes = np.concatenate((ends, starts)), np.concatenate((-sizes, sizes))
        order = np.argsort(times, kind="stable")
        peak = times[order][np.argmax(np.cumsum(changes[order]))]
        held = (starts <= peak) & (ends > peak)
        largest = np.zeros(len(self._names))
        np.maximum.at(largest, operators, sizes)
        columns = zip(
            self._names,
            np.bincount(operators).tolist(),
            np.bincount(operators, weights=sizes).tolist(),
            largest.tolist(),
            np.bincount(operators[held], weights=sizes[held], minlength=len(self._names)).tolist(),
        )
        return tuple(AllocationTotal(*column) for column in columns)
