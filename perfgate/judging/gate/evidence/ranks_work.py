"""The table of work, from the profiled steps of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perfgate.catalogue.names import RANKS_COLLECTIVES, RANKS_ELEMENTS, RANKS_OPERATORS, RANKS_SYNCS
from perfgate.document.alignment import Work
from perfgate.document.job import RankCounts
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT

# Reads one number of a tensor, for which the host waits.
_SYNC = "aten::_local_scalar_dense"


class RankOperator(NamedTuple):
    """An operator of one rank."""

    operator: str
    rank: int


class StartWork:
    """The work of all ranks in a step of one start."""

    def __init__(self, ranks: Sequence[RankCounts]) -> None:
        self.ranks = ranks
        self._rows: list[Work] = []
        for rank in ranks:
            self._rows += _work_of(rank)

    def of(self, aspect: str) -> dict[RankOperator, float]:
        """The amounts of an aspect, by operator and rank."""
        return {RankOperator(row.operator, row.rank or 0): row.amount for row in self._rows if row.aspect == aspect}


def _work_of(rank: RankCounts) -> Iterator[Work]:
    """Yield the work of a rank in one step; the operators by name without the reads of single numbers."""

    def work(aspect: str, operator: str, times: float) -> Work:
        amount = times / rank.steps
        return Work(operator, amount, amount, rank=rank.rank, aspect=aspect)

    for collective in rank.collectives:
        yield work(RANKS_COLLECTIVES, collective.name, collective.count)
        yield work(RANKS_ELEMENTS, collective.name, collective.elements)
    yield work(RANKS_OPERATORS, "operators", rank.operators)
    yield work(RANKS_SYNCS, _SYNC, rank.syncs)
    for name, times in rank.by_name.items():
        if name != _SYNC:
            yield work(OPERATOR_COUNT, name, times)
