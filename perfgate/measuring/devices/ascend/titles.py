"""The titles of npu-smi's tables, recognized by meaning.

Chips and drivers spell them differently: ``NPU`` and ``NPU ID``, ``AICore(%)`` and ``NPU Util(%)``, ``Phy-ID`` and ``Chip
Phy-ID``. Their words hardly change.
"""

from __future__ import annotations

import re
from typing import Literal

Column = Literal[
    "npu", "chip", "logic", "physical", "slot", "name", "health", "bus", "power", "temperature", "load", "hugepages",
    "hbm", "ddr", "pid", "container_pid", "process", "process_memory",
]  # fmt: skip

# A title has the meaning of the first entry of which it has a word for each beginning.
_MEANINGS: dict[tuple[str, ...], Column] = {
    ("process", "container"): "container_pid",
    ("process", "id"): "pid",
    ("process", "name"): "process",
    ("process", "mem"): "process_memory",
    ("logic",): "logic",
    ("phy",): "physical",
    ("slot",): "slot",
    ("name",): "name",
    ("health",): "health",
    ("bus",): "bus",
    ("power",): "power",
    ("temp",): "temperature",
    ("hugepages",): "hugepages",
    ("hbm",): "hbm",
    ("mem",): "ddr",
    ("aicore",): "load",
    ("util",): "load",
    ("chip",): "chip",
    ("device",): "physical",
    ("npu",): "npu",
    ("card",): "npu",
}


def column_of(title: str) -> Column | None:
    words = re.findall(r"[a-z]+", title.lower())
    for beginnings, column in _MEANINGS.items():
        if all(_has_word(words, beginning) for beginning in beginnings):
            return column
    return None


def _has_word(words: list[str], beginning: str) -> bool:
    return any(word.startswith(beginning) for word in words)
