"""The CPU time that the processes of a job wanted, and the share of it that they waited for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from perfgate.document.job import Turn
from perfgate.judging.gate.evidence.clocks import ALIKE, COMPUTES, WAITED
from perfgate.judging.gate.evidence.index import Evidence


class _Demand(NamedTuple):
    """The CPUs that a process of a side wanted on average, and the share of that it waited for."""

    cpus: float
    waited: float


def waited_where_cpu_is_fair(evidence: Evidence) -> dict[str, float]:
    """The share of the CPU time that both sides wanted and did not get, of each job that the wall clock does not decide."""
    waited = {}
    for name, job in evidence.jobs.items():
        share = _waited_if_fair(job.base, job.head)
        if share is not None:
            waited[name] = share
    return waited


def _waited_if_fair(base: Sequence[Turn], head: Sequence[Turn]) -> float | None:
    """The share of the CPU time that both sides wanted and did not get; None if the wall clock decides.

    The wall clock decides on an idle host, and if a side does not want to compute for most of its turns, or the sides differ in
    that: their other waits show on the wall clock alone.
    """
    before = _demand(base)
    after = _demand(head)
    if before is None or after is None:
        return None
    waited = (before.waited + after.waited) / 2
    computes = min(before.cpus, after.cpus) >= COMPUTES
    are_alike = abs(after.cpus - before.cpus) <= ALIKE * max(
        1.0, before.cpus, after.cpus
    )
    if computes and are_alike and waited >= WAITED:
        return waited
    return None


def waited_of_jobs(evidence: Evidence) -> float | None:
    """The share of the CPU time that the threads of a job wanted and did not get, of the job that waited most."""
    shares = []
    for job in evidence.jobs.values():
        for turns in (job.base, job.head):
            demand = _demand(turns)
            if demand is not None:
                shares.append(demand.waited)
    return max(shares, default=None)


def _demand(turns: Sequence[Turn]) -> _Demand | None:
    """The demand of a side; None if a turn lacks the data."""
    used = waited = seconds = 0.0
    for turn in turns:
        if turn.cpu is None or turn.cpu.waited is None:
            return None
        used += max(0.0, turn.cpu.used)
        waited += max(0.0, turn.cpu.waited)
        seconds += max(0.0, turn.cpu.seconds)
    # Sums of damaged documents may be infinite.
    if not 0 < seconds < math.inf or not 0 < used + waited < math.inf:
        return None
    processes = max(1, turns[0].work.get("ranks", 1))
    return _Demand((used + waited) / seconds / processes, waited / (used + waited))
