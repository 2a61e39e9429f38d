"""The profiler's own cost, subtracted from the contributions of operators.

The profiler slows a CPU with every operator it records, also the launch of a kernel.
Base gives the upper bound of that cost: its profiled call less its clocked call, shared
among its operators. If additional operators add up to more than the measured
difference, up to this bound is subtracted from them, and any remaining excess is
reported.
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
    """The seconds that the pairs' profiler adds to a call with every operator, or with
    the launch of every kernel.
    """
    events = sum(row.count for row in account.rows if not row.is_python)
    if not events or not pairs:
        return 0.0
    profiled = median([sum(times.values()) for times in pairs.base])
    return max(0.0, profiled - clocked) / events


def without_profiler(
    parts: Sequence[OperatorDelta], measured: float, *, at_most: float, on_device: bool
) -> list[OperatorDelta]:
    """The parts without the profiler's cost for additional operators, i.e. without
    their excess over the measured difference.

    That is at most ``at_most`` seconds an operator, and may well be less: a profiled
    call has other costs too. The profiler's cost lies partly in the operator and partly
    around it, so any part of it beyond the operator's own time is subtracted from the
    time outside operators; ``on_device`` all of it, because kernels are not slowed and
    the host that launches them is. An operator that runs more often saves no time by
    that.
    """
    counted = launched = excess = 0.0
    for part in parts:
        if part.is_counted:
            counted += part.more_count
        if part.is_launching:
            launched += part.more_count
        excess += part.seconds
    excess -= measured
    more = max(counted, launched) if on_device else counted or launched
    each = 0.0
    if more and excess / more > 0:
        each = min(at_most, excess / more)
    around = each * (more - counted)
    corrected = []
    for part in parts:
        cost = each * part.more_count if part.is_counted else 0.0
        inside = 0.0
        if not on_device and cost > 0:
            inside = min(cost, max(part.seconds, 0.0))
        elif not on_device:
            inside = max(cost, min(part.seconds, 0.0))
        around += cost - inside
        corrected.append(replace(part, seconds=rounded(part.seconds - inside)))
    around = max(around, 0.0)
    for index, part in enumerate(corrected):
        if part.is_launching:
            seconds = rounded(max(part.seconds - around, 0.0))
            corrected[index] = replace(part, seconds=seconds)
    return corrected
