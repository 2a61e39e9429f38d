"""The profiler's own cost, subtracted from the contributions of operators.

The profiler slows a CPU with every operator it records, also the launch of a kernel. Base gives the
upper bound of that cost: its profiled call less its clocked call, shared among its operators. If additional operators add up
to more than the measured difference, up to this bound is subtracted from them, and any remaining excess is reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perfgate.document.explanation import OperatorDelta
from perfgate.document.run import CallAccount
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work_table import PairedTimes
from perfgate.stats.summary import median


def cost_of_an_event(account: CallAccount, pairs: PairedTimes, clocked: float) -> float:
    """The seconds that the pairs' profiler adds to a call with every operator, or with the launch of every kernel."""
    events = sum(row.count for row in account.rows if not row.is_python)
    if not events or not pairs:
        return 0.0
    profiled = median([sum(times.values()) for times in pairs.base])
    return max(0.0, profiled - clocked) / events


def without_profiler(
    parts: Sequence[OperatorDelta], measured: float, *, at_most: float, on_device: bool
) -> list[OperatorDelta]:
    """The parts without the profiler's cost for additional operators, i.e. without their excess over the measured difference.

    That is at most ``at_most`` seconds an operator, and may well be less: a profiled call has other costs too. The profiler's
    cost lies partly in the operator and partly around it, so any part of it beyond the operator's own time is subtracted from
    the time outside operators; ``on_device`` all of it, because kernels are not slowed and the host that launches them is. An
    operator that runs more often saves no time by that.
    """
    counted = launched = excess = 0.0
    for part in parts:
        counted += _more_runs(part)
        excess += part.seconds
        if part.is_launching:
            launched += part.more_count
    excess -= measured
    more = counted or launched
    if on_device:
        more = max(counted, launched)
    each = 0.0
    if more and excess / more > 0:
        each = min(at_most, excess / more)
    around = each * (more - counted)
    corrected = []
    for part in parts:
        cost = each * _more_runs(part)
        inside = 0.0
        if not on_device:
            inside = _cost_inside(part, cost)
        around += cost - inside
        corrected.append(replace(part, seconds=rounded(part.seconds - inside)))
    return [_without_launches(part, max(around, 0.0)) for part in corrected]


def _cost_inside(part: OperatorDelta, cost: float) -> float:
    """The part of the cost that lies in the operator's own time."""
    if cost > 0:
        return min(cost, max(part.seconds, 0.0))
    return max(cost, min(part.seconds, 0.0))


def _without_launches(part: OperatorDelta, cost: float) -> OperatorDelta:
    if not part.is_launching:
        return part
    return replace(part, seconds=rounded(max(part.seconds - cost, 0.0)))


def _more_runs(part: OperatorDelta) -> float:
    if part.is_counted:
        return part.more_count
    return 0.0
