"""The bounds in perfgate.toml: budgets, written in units for people, margins and
tolerances, and expected kernels.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from perfgate.catalogue.names import SUBROUTINE_TIMES
from perfgate.catalogue.records import Metric
from perfgate.document.records import FrozenStruct

# Every unit a budget may be written in: its base unit and the factor to it.
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
# A workload, or a workload and one of its shapes: the same words as in the tables of
# the comment.
_ANY = "*"


class PlacePattern(NamedTuple):
    """A metric and the workloads and shapes it applies to, as patterns; ``*`` matches
    all.
    """

    metric: str
    workload: str = _ANY
    shape: str = _ANY

    def covers(self, workload: str, shape: str) -> bool:
        return fnmatchcase(workload, self.workload) and fnmatchcase(shape, self.shape)


class Budget(FrozenStruct, kw_only=True):
    """A bound on one metric, in its base unit; ``workload`` and ``shape`` are patterns.

    ``at_most`` distinguishes upper from lower bounds. With ``rate`` the bound holds for
    open-loop calls at that many per second.
    """

    metric: str
    bound: float
    at_most: bool
    workload: str = _ANY
    shape: str = _ANY
    rate: float | None = None

    @property
    def place(self) -> PlacePattern:
        return PlacePattern(self.metric, self.workload, self.shape)


def parse_place(key: str) -> PlacePattern:
    """Read ``METRIC``, ``METRIC@WORKLOAD`` or ``METRIC@WORKLOAD/SHAPE``; patterns may
    stand in each part.
    """
    metric, at, where = key.rpartition("@")
    if not at:
        return PlacePattern(key)
    workload, _, shape = where.partition("/")
    return PlacePattern(metric, workload or _ANY, shape or _ANY)


def parse_budget(key: str, written: str | float | int, metric: Metric) -> Budget:
    """Read one entry of ``[budget]``.

    Raises ValueError with the mistake and an example of a budget.
    """
    place = parse_place(key)
    sign = {"lower": "<", "higher": ">"}.get(metric.better)
    rate: float | None = None
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
            raise ValueError(
                f"{written!r} is in {unit}, and {metric.name} is measured in {metric.unit}"
            )
        bound = float(read["number"]) * factor
        if read["rate"]:
            rate = float(read["rate"])
        if read["sign"]:
            sign = read["sign"][0]
    if sign is None:
        raise ValueError(
            f"neither direction of {metric.name} is better; say which bound it is, with < or >"
        )
    return Budget(
        metric=place.metric,
        bound=bound,
        at_most=sign == "<",
        workload=place.workload,
        shape=place.shape,
        rate=rate,
    )


# The slowdown that must be excluded before a time is called unchanged: the smaller
# margin while time is left, if layouts move, and the larger one in the end.
SOUGHT_OK_MARGIN, OK_MARGIN = 0.01, 0.02


def judges_subroutines(
    tolerances: Iterable[str], kinds: tuple[str, ...] = SUBROUTINE_TIMES
) -> bool:
    """Whether the times of single operators, modules or functions are to be judged, or
    of these kinds of them.

    They are judged only if a tolerance names them.
    """
    return any(key.startswith(kinds) for key in tolerances)


_NEAREST = 3
# Of difflib's similarities, from 0 to 1; below this names have little more than letters
# in common.
_SIMILAR = 0.4
# Characters in which a pattern and a name may differ and still mean one kernel:
# FlashAttention* and flash_attention_score.
_WORD = re.compile(r"[^a-z0-9]")


def missing_kernels(patterns: Iterable[str], names: Collection[str]) -> dict[str, str]:
    """The patterns that no name fits, each with the names that come nearest to it in
    one text.
    """
    missing: dict[str, str] = {}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            missing[pattern] = ", ".join(_nearest(pattern, names)) or "none"
    return missing


def _nearest(pattern: str, names: Collection[str]) -> list[str]:
    word = _plain(pattern)
    nearest = dict.fromkeys(
        sorted(name for name in names if word and word in _plain(name))
    )
    by_word = {_plain(name): name for name in sorted(names, reverse=True)}
    for similar in difflib.get_close_matches(
        word, list(by_word), n=_NEAREST, cutoff=_SIMILAR
    ):
        nearest[by_word[similar]] = None
    return list(nearest)[:_NEAREST]


def _plain(name: str) -> str:
    return _WORD.sub("", name.rpartition("::")[2].lower())
