"""Numbers of a job that follow from others: one of these that is left open decides nothing by itself.

Tokens per second of a closed loop only repeat time to first token and time per output token. On a busy host, the CPU time of
the same work shows a difference that the wall clock cannot, as for functions (``pairs.deciding_clock``). A regression of any of
them counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from perfgate.catalogue.names import (
    E2E,
    RANKS_CPU,
    RANKS_STEP,
    REQUEST_CPU,
    SERVING_CPU,
    SERVING_THROUGHPUT,
    TPOT,
    TTFT,
)
from perfgate.document.comparison import Paired
from perfgate.document.decision import CPU_DECIDES
from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.pairs import ALIKE, COMPUTES, WAITED
from perfgate.judging.gate.evidence.values import rounded

_FINER = {SERVING_THROUGHPUT: ({TTFT, TPOT}, {E2E})}
# Metrics by the wall clock, and the CPU time of the same work.
_OF_THE_WALL = {TTFT, TPOT, E2E, SERVING_THROUGHPUT, RANKS_STEP}
_OF_THE_CPU = (SERVING_CPU, REQUEST_CPU, RANKS_CPU)


def with_covered(rows: Sequence[Paired], base: Iterable[Turn], head: Iterable[Turn]) -> list[Paired]:
    """The comparisons of one job; those that follow from others no longer gate if they are left open."""
    gating = {row.metric for row in rows if row.gating}
    decided = {row.metric for row in rows if row.gating and row.outcome in ("unchanged", "improved")}
    cpu = next((name for name in _OF_THE_CPU if name in decided), None)
    waited = waited_where_cpu_is_fair(list(base), list(head)) if cpu else None

    def covered(row: Paired) -> Paired:
        if not row.gating or row.outcome != "inconclusive":
            return row
        reason = None
        finer = next((names for names in _FINER.get(row.metric, ()) if names <= gating), None)
        if finer is not None:
            reason = Message("gate.covered", {"by": sorted(finer)})
        elif cpu and waited is not None and row.metric in _OF_THE_WALL and not row.looks_worse:
            reason = Message(CPU_DECIDES, {"waited": rounded(waited), "by": cpu})
        return row if reason is None else msgspec.structs.replace(row, gating=False, reason=reason, pairs_needed=None)

    return [covered(row) for row in rows]


def waited_where_cpu_is_fair(base: Sequence[Turn], head: Sequence[Turn]) -> float | None:
    """The share of the CPU time that both sides wanted and did not get; None if the wall clock decides.

    The wall clock decides on an idle host, and if a side does not want to compute for most of its turns, or the sides differ in
    that: their other waits show on the wall clock alone.
    """
    wanted = [_wanted(turns) for turns in (base, head)]
    if any(side is None for side in wanted):
        return None
    (before, waited_before), (after, waited_after) = (side for side in wanted if side is not None)
    waited = (waited_before + waited_after) / 2
    computes = min(before, after) >= COMPUTES
    are_alike = abs(after - before) <= ALIKE * max(1.0, before, after)
    return waited if computes and are_alike and waited >= WAITED else None


def waited_of_jobs(evidence: Evidence) -> float | None:
    """The share of the CPU time that the threads of a job wanted and did not get, of the job that waited most."""
    sides = [_wanted(turns) for job in evidence.head.run.jobs for turns in evidence.turns(job.name)]
    return max((waited for _, waited in filter(None, sides)), default=None)


def _wanted(turns: Sequence[Turn]) -> tuple[float, float] | None:
    """The CPUs that a process wanted on average, and the share of that it waited for; None if a turn lacks the data."""
    times = [turn.cpu for turn in turns if turn.cpu is not None and turn.cpu.waited is not None]
    if not times or len(times) < len(turns):
        return None
    processes = max(1, turns[0].work.get("ranks", 1))
    # Sums of damaged documents may be infinite.
    used, waited, seconds = (
        sum(max(0.0, getattr(time, name)) for time in times) for name in ("used", "waited", "seconds")
    )
    if not 0 < seconds < math.inf or not 0 < used + waited < math.inf:
        return None
    return (used + waited) / seconds / processes, waited / (used + waited)
