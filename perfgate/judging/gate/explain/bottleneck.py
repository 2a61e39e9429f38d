"""The bottleneck of a call: first by its waits, then by the roofline.

If the device is idle, copying or sending for GAP_LIMIT of the call or more, the largest of these parts names the class:
``scheduling`` (the host is late with the next work), ``synchronisation`` (the host waits for the device in the middle of a
call), ``transfer`` and ``communication`` (copies and collectives that no kernel hides). A CPU never waits for a device; there,
the time outside operators is scheduling.

Otherwise the call is busy, and the roofline gives the class (Williams, Waterman, Patterson, CACM 52(4), 2009): every operator
takes at least its floating point operations over the machine's rate, and at least its bytes over the machine's bandwidth. The
larger of the two bounds the operator, as ``compute`` or ``memory``. The call is bound by the one that makes up CLEAR of its
least time or more; below that there is no result. If the least time is below OVERHEAD_LIMIT of the operators' time, the
operators are so small that the cost is calling them: scheduling.

Base and head each measure the rates beside the call for a tenth of a second, and a busy machine shows less than it has; so both
sides are compared with the better of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    rates = (account.roof for account in accounts if account.roof is not None)
    # A document from outside may hold any numbers.
    roofs = [roof for roof in rates if min(roof.flops_per_second, roof.bytes_per_second) > 0]
    if not roofs:
        return None
    return Roof(
        flops_per_second=max(roof.flops_per_second for roof in roofs),
        bytes_per_second=max(roof.bytes_per_second for roof in roofs),
    )


def bottleneck(account: CallAccount, times: Sequence[dict[str, float]], roof: Roof | None) -> Bottleneck | None:
    """The bottleneck of one side's calls; None if they wait for nothing and the roofline is inconclusive.

    ``times`` are the operators of its replicates. Their profiler costs less than the trace's, so their time outside operators
    takes precedence if they have it.
    """
    if account.wall <= 0:
        return None
    waiting: dict[Bottleneck, float] = {}
    for part, seconds in account.parts.items():
        if part in _WAITING:
            waiting[_WAITING[part]] = waiting.get(_WAITING[part], 0.0) + seconds / account.wall
    outside = [
        replicate[OUTSIDE_OPERATORS] / sum(replicate.values())
        for replicate in times
        if OUTSIDE_OPERATORS in replicate and sum(replicate.values()) > 0
    ]
    if outside and "outside" in account.parts:
        waiting["scheduling"] = median(outside)
    largest = max(waiting, key=lambda name: waiting[name], default=None)
    if largest is not None and waiting[largest] >= GAP_LIMIT:
        return largest
    return None if roof is None else _by_roofline(account, roof)


def _by_roofline(account: CallAccount, roof: Roof) -> Bottleneck | None:
    least: dict[Bottleneck, float] = {"compute": 0.0, "memory": 0.0}
    for work in account.work:
        computing = work.flops / roof.flops_per_second
        moving = work.moved_bytes / roof.bytes_per_second
        least["compute" if computing >= moving else "memory"] += work.count * max(computing, moving)
    total = sum(least.values())
    if not total:
        return None
    working = sum(seconds for part, seconds in account.parts.items() if part not in _WAITING)
    if total < OVERHEAD_LIMIT * working:
        return "scheduling"
    return next((name for name, seconds in least.items() if seconds >= CLEAR * total), None)
