"""Numbers that follow from others: if they are left open, or look worse, they do not decide by themselves.

Tokens per second of a closed loop only repeat time to first token and time per output token. On a busy host, the CPU time of
the same work shows a difference that the wall clock cannot, as for functions (``clocks.deciding_clock``). A regression of any
of them counts. More instructions are not a loss if calls are faster, or while the host polls the device.

On an accelerator the wall alone decides no time of a call. If the clock of the device differed between the sides, only the
cycles of its kernels and the host's time compare. Stretches of calls that one side may have made on a busier host inform.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from perfgate.catalogue.names import (
    BUSY,
    E2E,
    HOST,
    INSTRUCTIONS,
    LATENCY,
    RANKS_CPU,
    RANKS_STEP,
    REQUEST_CPU,
    SERVING_CPU,
    SERVING_THROUGHPUT,
    TPOT,
    TTFT,
    TURNAROUND,
    WALL_TIME,
)
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import CPU_DECIDES, SAME_WORK
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.stretches import METRICS as OF_STRETCHES
from perfgate.judging.gate.compare.stretches import why_stretch_informs
from perfgate.judging.gate.evidence.cpu_demand import waited_where_cpu_is_fair
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.operating_point import clock_shift_at
from perfgate.judging.gate.evidence.same_work import SAME_WORK_MARGIN, is_same_work
from perfgate.judging.gate.evidence.values import rounded

_FINER = {SERVING_THROUGHPUT: ({TTFT, TPOT}, {E2E})}
# Metrics by the wall clock, and the CPU time of the same work.
_OF_THE_WALL = {TTFT, TPOT, E2E, SERVING_THROUGHPUT, RANKS_STEP}
# Times of the host that do not decide on an accelerator, or only where the device waits for the host.
_HOST_TIMES = (HOST, TURNAROUND, WALL_TIME)
_OF_THE_CPU = (SERVING_CPU, REQUEST_CPU, RANKS_CPU)


def with_implied(comparisons: Sequence[Comparison], evidence: Evidence) -> list[Comparison]:
    """The comparisons; numbers that follow from others of their place no longer gate if they are left open."""
    by_place: dict[ShapePlace, list[Paired]] = defaultdict(list)
    for comparison in comparisons:
        if isinstance(comparison, Paired):
            by_place[comparison.place].append(comparison)
    replaced = list(comparisons)
    for index, comparison in enumerate(comparisons):
        if isinstance(comparison, Paired):
            replaced[index] = _with_reason(comparison, by_place[comparison.place], evidence)
    return replaced


def _with_reason(comparison: Paired, of_place: Sequence[Paired], evidence: Evidence) -> Comparison:
    reason = _reason(comparison, of_place, evidence)
    if reason is not None:
        return _informing(comparison, reason)
    if _is_wider_for_same_work(comparison, evidence):
        return replace(comparison, reason=Message(SAME_WORK, {"margin": SAME_WORK_MARGIN}))
    return comparison


def _is_wider_for_same_work(comparison: Paired, evidence: Evidence) -> bool:
    """Whether a time is unchanged by the wider margin of sides that did the same work."""
    is_wide = comparison.metric in (LATENCY, HOST) and comparison.excluded == SAME_WORK_MARGIN
    return is_wide and comparison.place in evidence.on_device and is_same_work(evidence, comparison.place)


def _informing(comparison: Comparison, reason: Message) -> Comparison:
    if comparison.metric == INSTRUCTIONS:
        shown = reason if comparison.outcome == "regressed" else comparison.reason
        return replace(comparison, gating=False, reason=shown)
    if comparison.metric in _HOST_TIMES or comparison.metric in OF_STRETCHES:
        return replace(comparison, outcome="informs", gating=False, reason=reason, pairs_needed=None, excluded=None)
    return replace(comparison, gating=False, reason=reason, pairs_needed=None)


def _reason(comparison: Paired, of_place: Sequence[Paired], evidence: Evidence) -> Message | None:
    """The reason that a comparison does not decide by itself; None if it counts."""
    if comparison.place in evidence.on_device and comparison.is_of_call:
        reason = _why_device_time_informs(comparison, evidence)
        if reason is not None:
            return reason
    if comparison.metric in OF_STRETCHES:
        return why_stretch_informs(evidence, comparison.place)
    if comparison.metric == INSTRUCTIONS:
        return _why_instructions_inform(comparison, of_place, evidence)
    if not comparison.is_of_job or not comparison.gating or comparison.outcome != "inconclusive":
        return None
    outcomes = {row.metric: row.outcome for row in of_place if row.is_of_job and row.gating}
    for names in _FINER.get(comparison.metric, ()):
        if names <= outcomes.keys():
            return Message("gate.covered", {"by": sorted(names)})
    cpu = next((name for name in _OF_THE_CPU if outcomes.get(name) in ("unchanged", "improved")), None)
    if cpu is None or comparison.metric not in _OF_THE_WALL or comparison.looks_worse:
        return None
    waited = waited_where_cpu_is_fair(*evidence.turns(comparison.workload))
    if waited is None:
        return None
    return Message(CPU_DECIDES, {"waited": rounded(waited), "by": cpu})


def _why_device_time_informs(comparison: Paired, evidence: Evidence) -> Message | None:
    """The reason that a number of a call on an accelerator does not decide; None if it counts."""
    if comparison.metric == HOST:
        if comparison.gating:
            return None
        return Message("gate.host-not-exposed")
    if comparison.metric in _HOST_TIMES:
        return Message("gate.wall-informs")
    if comparison.metric == BUSY or not comparison.gating:
        return None
    change = clock_shift_at(evidence, comparison.place)
    if change is None:
        return None
    return Message("gate.cycles-decide", {"change": rounded(change)})


def _why_instructions_inform(comparison: Paired, of_place: Sequence[Paired], evidence: Evidence) -> Message | None:
    """The reason that more instructions need be no loss; None if they gate."""
    # The slower the device, the longer the host polls it, and every poll takes instructions.
    if comparison.place in evidence.head.timed_by_device:
        return Message("gate.host-waits")
    if any(row.metric == LATENCY and row.outcome == "improved" for row in of_place):
        return Message("gate.calls-take-less")
    return None
