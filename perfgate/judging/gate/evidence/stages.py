"""The stages of the preprocessing, from pairs of processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from perfgate.document.explanation import Part
from perfgate.document.samples import PackedArray, Replicate, unpack
from perfgate.judging.gate.evidence.fast_path import QUANTILE
from perfgate.judging.gate.evidence.pairs import members_of_pairs, preprocess_lanes
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.values import rounded


class _Stage(NamedTuple):
    """A stage in all pairs: its seconds in each, and the line at which its function starts."""

    base: list[float]
    head: list[float]
    line: str | None


def stage_times(first: Iterable[Replicate], second: Iterable[Replicate], *, workload: str, shape: str) -> list[Part]:
    """The stages that both sides have, each with the line at which its function starts.

    Their times are the median over pairs of the 10th percentile of the calls of a process.
    """
    pairs = members_of_pairs(first, second, ShapePlace(workload, shape), "ab")
    stages: dict[str, _Stage] = {}
    for before, after in preprocess_lanes(pairs, shape):
        of_base = {stage.name: stage for stage in before.stages}
        for stage in after.stages:
            if stage.name in of_base:
                measured = stages.get(stage.name, _Stage([], [], stage.line))._replace(line=stage.line)
                measured.base.append(_low(of_base[stage.name].wall))
                measured.head.append(_low(stage.wall))
                stages[stage.name] = measured
    return [_part(name, stage) for name, stage in stages.items()]


def _part(name: str, stage: _Stage) -> Part:
    base, head = float(np.median(stage.base)), float(np.median(stage.head))
    return Part(name=name, base=rounded(base), head=rounded(head), line=stage.line)


def _low(wall: PackedArray) -> float:
    return float(np.quantile(unpack(wall), QUANTILE)) / 1e9
