"""The luck of a start on an accelerator: the spread between processes that main's stored runs of the testbed showed.

The documents under judgement are no source of it: each side could widen its own error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from perfgate.catalogue.names import START_SPREAD
from perfgate.document.history import HistorySeries
from perfgate.stats.summary import median

# The assumed difference between two starts of equal code, as the sd of a logarithm; the starts of a gate correct it as they
# become more. Stored values replace it once there are enough, within these bounds: each comes from a few processes.
RESIDENT_LUCK = 0.003
FEWEST_VALUES = 3
LEAST_LUCK, MOST_LUCK = 0.001, 0.01

# By workload.
StartLuck: TypeAlias = Mapping[str, float]
ASSUMED: StartLuck = MappingProxyType({})


def start_luck_of(stored: Iterable[HistorySeries]) -> StartLuck:
    """The luck of workloads with enough stored values on the testbed."""
    values: dict[str, list[float]] = defaultdict(list)
    for series in stored:
        if series.metric == START_SPREAD:
            values[series.workload] += series.values
    luck = {}
    for workload, spreads in values.items():
        if len(spreads) >= FEWEST_VALUES:
            luck[workload] = min(MOST_LUCK, max(LEAST_LUCK, median(spreads)))
    return luck
