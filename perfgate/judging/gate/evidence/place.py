"""The places of a run: shapes of workloads."""

from __future__ import annotations

from typing import NamedTuple

from perfgate.document.run import RunDocument


class ShapePlace(NamedTuple):
    """A shape of a workload; an empty shape stands for all shapes."""

    workload: str
    shape: str


def places(run: RunDocument) -> list[ShapePlace]:
    return [ShapePlace(workload.name, shape) for workload in run.workloads for shape in workload.shapes]
