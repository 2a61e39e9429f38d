"""Numbers that follow from others: if they are left open, or look worse, they do not decide by themselves.

Tokens per second of a closed loop only repeat time to first token and time per output token. On a busy host, the CPU time of
the same work shows a difference that the wall clock cannot, as for functions (``clocks.deciding_clock``). A regression of any
of them counts. More instructions are not a loss if calls are faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfgate.catalogue.names import (
    E2E,
    INSTRUCTIONS,
    LATENCY,
    RANKS_CPU,
    RANKS_STEP,
    REQUEST_CPU,
    SERVING_CPU,
    SERVING_THROUGHPUT,
    TPOT,
    TTFT,
)
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import CPU_DECIDES
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.stretches import METRICS as OF_STRETCHES
from perfgate.judging.gate.evidence.numbers import HOST_TIMES
from perfgate.judging.gate.evidence.values import rounded

_FINER = {SERVING_THROUGHPUT: ({TTFT, TPOT}, {E2E})}
# Metrics by the wall clock, and the CPU time of the same work.
_OF_THE_WALL = {TTFT, TPOT, E2E, SERVING_THROUGHPUT, RANKS_STEP}
_OF_THE_CPU = (SERVING_CPU, REQUEST_CPU, RANKS_CPU)


def with_implied(comparisons: Sequence[Comparison], waited: Mapping[str, float]) -> list[Comparison]:
    """The comparisons; numbers that follow from others of their place no longer gate if they are left open.

    ``waited`` are the shares of CPU time for which jobs waited, if CPU time is fair to both sides.
    """
    by_place: dict[ShapePlace, list[Paired]] = defaultdict(list)
    for comparison in comparisons:
        if isinstance(comparison, Paired):
            by_place[comparison.place].append(comparison)
    implied = list(comparisons)
    for index, comparison in enumerate(comparisons):
        if isinstance(comparison, Paired):
            reason = _reason(comparison, by_place[comparison.place], waited)
            if reason is not None:
                implied[index] = informing_because(comparison, reason)
    return implied


def informing_because(comparison: Paired, reason: Message) -> Paired:
    """The comparison, which does not decide by itself."""
    name = comparison.metric
    if name == INSTRUCTIONS:
        shown = reason if comparison.outcome == "regressed" else comparison.reason
        return replace(comparison, gating=False, reason=shown)
    informing = replace(comparison, gating=False, reason=reason, pairs_needed=None)
    if name in HOST_TIMES or name in OF_STRETCHES:
        return replace(informing, outcome="informs", excluded=None)
    return informing


def _reason(comparison: Paired, of_place: Sequence[Paired], waited: Mapping[str, float]) -> Message | None:
    """The reason that a comparison does not decide by itself; None if it counts."""
    if comparison.metric == INSTRUCTIONS and comparison.gating:
        if any(row.metric == LATENCY and row.outcome == "improved" for row in of_place):
            return Message("gate.calls-take-less")
        return None
    if not comparison.is_of_job or not comparison.gating or comparison.outcome != "inconclusive":
        return None
    outcomes = {row.metric: row.outcome for row in of_place if row.is_of_job and row.gating}
    for names in _FINER.get(comparison.metric, ()):
        if names <= outcomes.keys():
            return Message("gate.covered", {"by": sorted(names)})
    cpu = next((name for name in _OF_THE_CPU if outcomes.get(name) in ("unchanged", "improved")), None)
    if cpu is None or comparison.metric not in _OF_THE_WALL or comparison.looks_worse:
        return None
    if comparison.workload not in waited:
        return None
    return Message(CPU_DECIDES, {"waited": rounded(waited[comparison.workload]), "by": cpu})
