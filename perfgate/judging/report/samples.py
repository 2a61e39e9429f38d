"""The raw samples of two runs as the page plots them: call times of both sides, and the effect of each process pair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfgate.document.run import Arm, Replicate, RunDocument
from perfgate.document.samples import unpack
from perfgate.stats.summary import low_location

_NANOSECOND = 1e-9


@dataclass(frozen=True)
class PlaceSamples:
    """Everything measured in pairs for one workload and shape.

    ``base`` and ``head`` are seconds per call; ``effects`` head/base - 1 of each pair's low-quantile location, and
    ``noise`` the same of base against base.
    """

    workload: str
    shape: str
    base: npt.NDArray[np.float64]
    head: npt.NDArray[np.float64]
    effects: list[float]
    noise: list[float]


def paired_samples(base: RunDocument | None, head: RunDocument) -> list[PlaceSamples]:
    """The samples of every workload and shape that ran in pairs, in document order."""
    before = [] if base is None else base.replicates
    return [
        PlaceSamples(
            workload=workload,
            shape=shape,
            base=_calls(before, workload, shape),
            head=_calls(head.replicates, workload, shape),
            effects=_effects(_by_pair(before, "ab"), _by_pair(head.replicates, "ab"), workload, shape),
            noise=_effects(_by_pair(before, "aa", "first"), _by_pair(before, "aa", "second"), workload, shape),
        )
        for workload, shape in _places([*before, *head.replicates])
    ]


def _places(replicates: Iterable[Replicate]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((replicate.workload, shape) for replicate in replicates for shape in replicate.shapes))


def _calls(replicates: Iterable[Replicate], workload: str, shape: str) -> npt.NDArray[np.float64]:
    arrays = [_wall(r, shape) for r in replicates if r.arm == "ab" and r.workload == workload and shape in r.shapes]
    return np.concatenate(arrays) if arrays else np.empty(0)


def _wall(replicate: Replicate, shape: str) -> npt.NDArray[np.float64]:
    return unpack(replicate.shapes[shape].wall).astype(np.float64) * _NANOSECOND


def _by_pair(replicates: Iterable[Replicate], arm: Arm, member: str = "") -> dict[tuple[str, int], Replicate]:
    return {(r.workload, r.pair): r for r in replicates if r.arm == arm and member in {"", r.member}}


def _effects(
    first: dict[tuple[str, int], Replicate], second: dict[tuple[str, int], Replicate], workload: str, shape: str
) -> list[float]:
    pairs = sorted(key for key in first.keys() & second.keys() if key[0] == workload)
    both = [(_location(first[key], shape), _location(second[key], shape)) for key in pairs]
    return [after / before - 1 for before, after in both if before and after]


def _location(replicate: Replicate, shape: str) -> float:
    """The low-quantile location of one process, 0 where it has no calls of the shape."""
    if shape not in replicate.shapes:
        return 0.0
    wall = _wall(replicate, shape)
    positive = wall[wall > 0]
    return low_location(positive) if positive.size else 0.0
