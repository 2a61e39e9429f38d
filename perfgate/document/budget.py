"""Absolute budgets: what a metric may be at most, or must be at least, whatever the base was.

Written as people say them, ``"< 20 ms at 50 QPS"``, and kept in base units.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from perfgate.catalogue.records import Metric

# Every unit a budget may be written in, as a factor of the base unit it stands for.
_UNITS: dict[str, tuple[str, float]] = {
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "µs": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "B": ("B", 1.0),
    "kB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "KiB": ("B", 2.0**10),
    "MiB": ("B", 2.0**20),
    "GiB": ("B", 2.0**30),
    "B/s": ("B/s", 1.0),
    "MB/s": ("B/s", 1e6),
    "GB/s": ("B/s", 1e9),
    "items/s": ("items/s", 1.0),
    "W": ("W", 1.0),
    "J": ("J", 1.0),
    "mJ": ("J", 1e-3),
    "Cel": ("Cel", 1.0),
    "°C": ("Cel", 1.0),
    "%": ("1", 0.01),
    "": ("1", 1.0),
}
_BUDGET = re.compile(
    r"\s*(?P<sign><=?|>=?)?\s*(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)\s*(?P<unit>[^\s0-9]*)"
    r"(?:\s+at\s+(?P<rate>[0-9]+(?:\.[0-9]+)?)\s*(?:QPS|qps|/s))?\s*"
)
_EXAMPLE = '"< 20 ms", "< 20 ms at 50 QPS", "> 1000 items/s", "2 GiB" or a number'
# A workload, or a workload and one of its shapes: the same words as in the tables of the comment.
_ANY = "*"


class Place(NamedTuple):
    """A metric, and the workloads and shapes it is meant for: patterns, of which ``*`` takes all."""

    metric: str
    workload: str = _ANY
    shape: str = _ANY

    def covers(self, workload: str, shape: str) -> bool:
        return fnmatchcase(workload, self.workload) and fnmatchcase(shape, self.shape)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on one metric, in its base unit; ``workload`` and ``shape`` are patterns.

    ``at_most`` tells an upper from a lower bound. With ``rate`` the bound holds for open-loop calls at so many a second.
    """

    metric: str
    bound: float
    at_most: bool
    workload: str = _ANY
    shape: str = _ANY
    rate: float | None = None

    @property
    def place(self) -> Place:
        return Place(self.metric, self.workload, self.shape)


def parse_place(key: str) -> Place:
    """Read ``METRIC``, ``METRIC@WORKLOAD`` or ``METRIC@WORKLOAD/SHAPE``; patterns may stand in each part."""
    metric, at, where = key.rpartition("@")
    if not at:
        return Place(key)
    workload, _, shape = where.partition("/")
    return Place(metric, workload or _ANY, shape or _ANY)


def parse_budget(key: str, written: str | float | int, metric: Metric) -> Budget:
    """Read one entry of ``[budget]``. Raises ValueError that says what is wrong and what a budget looks like."""
    place, signs = parse_place(key), {"lower": "<", "higher": ">"}
    sign, rate = signs.get(metric.better), None
    if isinstance(written, (int, float)):
        bound = float(written)
    else:
        read = _BUDGET.fullmatch(written)
        if read is None:
            raise ValueError(f"{written!r} is no budget; write {_EXAMPLE}")
        if read["unit"] not in _UNITS:
            raise ValueError(
                f"{written!r} has a unit that is not known; write one of {', '.join(filter(None, _UNITS))}"
            )
        unit, factor = _UNITS[read["unit"]]
        if unit != metric.unit:
            raise ValueError(f"{written!r} is in {unit}, and {metric.name} is measured in {metric.unit}")
        bound, rate = float(read["number"]) * factor, float(read["rate"]) if read["rate"] else None
        sign = read["sign"][0] if read["sign"] else sign
    if sign is None:
        raise ValueError(f"neither direction of {metric.name} is better; say which bound it is, with < or >")
    return Budget(
        metric=place.metric, bound=bound, at_most=sign == "<", workload=place.workload, shape=place.shape, rate=rate
    )
