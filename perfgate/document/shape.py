"""A place in documents: one shape of a workload."""

from __future__ import annotations

from typing import NamedTuple

from perfgate.document.records import FrozenStruct


class ShapePlace(NamedTuple):
    """A shape of a workload. An empty shape stands for all shapes, or for a job."""

    workload: str
    shape: str

    @property
    def label(self) -> str:
        """The place for people: ``encoder/long``, or ``encoder`` without a shape."""
        return f"{self.workload}/{self.shape}" if self.shape else self.workload


class ShapeEntry(FrozenStruct, kw_only=True):
    """An entry about one shape of a workload.

    An empty shape stands for all of its shapes, or for a job.
    """

    workload: str
    shape: str

    @property
    def place(self) -> ShapePlace:
        return ShapePlace(self.workload, self.shape)
