"""The bottleneck of a call: first by its waits, then by the roofline.

If the device is idle, copying or sending for GAP_LIMIT of the call or more, the largest
of these parts names the class: ``scheduling`` (the host is late with the next work),
``synchronisation`` (the host waits for the device in the middle of a call),
``transfer`` and ``communication`` (copies and collectives that no kernel hides). A CPU
never waits for a device; there, the time outside operators is scheduling.

Otherwise the call is busy, and the roofline gives the class (Williams, Waterman,
Patterson, CACM 52(4), 2009): every operator takes at least its floating point
operations over the machine's rate, and at least its bytes over the machine's bandwidth.
The larger of the two bounds the operator, as ``compute`` or ``memory``. The call is
bound by the resource with CLEAR of its least time or more; below that there is no
result. If the least time is below OVERHEAD_LIMIT of the operators' time, the operators
are so small that the cost is calling them: scheduling.

Base and head each measure the rates next to the call for a tenth of a second, and a
busy machine shows less than it has; so both sides are compared with the better of the
two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from perfgate.document.explanation import Bottleneck
from perfgate.document.run import OUTSIDE_OPERATORS, CallAccount, CallPart, Roof
from perfgate.stats.summary import median

GAP_LIMIT = 0.3
OVERHEAD_LIMIT = 0.05
CLEAR = 0.6

_WAITING: dict[CallPart, Bottleneck] = {
    "gap_host": "scheduling",
    "gap_queue": "scheduling",
    "gap_unknown": "scheduling",
    "outside": "scheduling",
    "gap_synchronization": "synchronisation",
    "copy": "transfer",
    "communication": "communication",
}


def better_roof(accounts: Iterable[CallAccount]) -> Roof | None:
    flops = []
    moved_bytes = []
    for account in accounts:
        roof = account.roof
        # A document from outside may hold any numbers.
        if roof is not None and min(roof.flops_per_second, roof.bytes_per_second) > 0:
            flops.append(roof.flops_per_second)
            moved_bytes.append(roof.bytes_per_second)
    if not flops:
        return None
    return Roof(flops_per_second=max(flops), bytes_per_second=max(moved_bytes))


def bottleneck(
    account: CallAccount, times: Sequence[Mapping[str, float]], roof: Roof | None
) -> Bottleneck | None:
    """The bottleneck of one side's calls; None if they do not wait and the roofline is
    inconclusive.

    ``times`` are the operators of its replicates.
    """
    if account.wall <= 0:
        return None
    waiting = _waiting_shares(account, times)
    largest = max(waiting, key=waiting.__getitem__, default=None)
    if largest is not None and waiting[largest] >= GAP_LIMIT:
        return largest
    if roof is None:
        return None
    return _by_roofline(account, roof)


def _waiting_shares(
    account: CallAccount, times: Sequence[Mapping[str, float]]
) -> dict[Bottleneck, float]:
    """The share of the call in which it waits, by reason.

    The replicates' profiler costs less than the trace's, so their time outside
    operators takes precedence if they have it.
    """
    waiting: dict[Bottleneck, float] = defaultdict(float)
    for part, seconds in account.parts.items():
        if part in _WAITING:
            waiting[_WAITING[part]] += seconds / account.wall
    outside = []
    for replicate in times:
        total = sum(replicate.values())
        if OUTSIDE_OPERATORS in replicate and total > 0:
            outside.append(replicate[OUTSIDE_OPERATORS] / total)
    if outside and "outside" in account.parts:
        waiting["scheduling"] = median(outside)
    return waiting


def _by_roofline(account: CallAccount, roof: Roof) -> Bottleneck | None:
    least: dict[Bottleneck, float] = {"compute": 0.0, "memory": 0.0}
    for work in account.work:
        computing = work.flops / roof.flops_per_second
        moving = work.moved_bytes / roof.bytes_per_second
        bound: Bottleneck = "compute" if computing >= moving else "memory"
        least[bound] += work.count * max(computing, moving)
    total = sum(least.values())
    if not total:
        return None
    working = sum(
        seconds for part, seconds in account.parts.items() if part not in _WAITING
    )
    if total < OVERHEAD_LIMIT * working:
        return "scheduling"
    for bound, seconds in least.items():
        if seconds >= CLEAR * total:
            return bound
    return None
