"""A place in documents: one shape of a workload."""

from __future__ import annotations

import msgspec


class ShapeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry about one shape of a workload. An empty shape stands for all of its shapes, or for a job."""

    workload: str
    shape: str

    @property
    def place(self) -> tuple[str, str]:
        return self.workload, self.shape
