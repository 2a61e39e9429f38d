"""The plan of a check: whether a change needs a measurement, decided on an ordinary
machine.
"""

from __future__ import annotations

from typing import Literal

from perfgate.document.message import Message
from perfgate.document.records import FrozenStruct


class MeasurementPlan(FrozenStruct, kw_only=True):
    """What a check of ``head`` against ``base`` will measure; without ``measure`` no
    measurement, for the ``reason``.

    ``accelerator`` is whether a measuring job needs another device than a CPU.
    ``testbeds`` are the machines of a matrix, each with the kind of its device;
    ``device`` is the only machine's.
    """

    schema: Literal["perfgate/plan"] = "perfgate/plan"
    schema_version: int = 1
    perfgate_version: str
    project: str
    measure: bool
    reason: Message | None = None
    base: str
    head: str
    workloads: list[str] = []
    device: str
    testbeds: dict[str, str] = {}
    accelerator: bool
