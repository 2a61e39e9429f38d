"""What holds a call up: first by what it waits for, then by the roofline.

Where the device does nothing, or only copies or sends, for GAP_LIMIT of the call or more, the largest of these parts names
the class: ``scheduling`` (the host is late with the next work), ``synchronisation`` (the host waits for the device in the
middle of a call), ``transfer`` and ``communication`` (copies and collectives that no kernel hides). A CPU waits for nobody;
there, the time outside operators is scheduling.

Else the call works, and the roofline says what on (Williams, Waterman, Patterson, CACM 52(4), 2009): every operator takes
at least its floating point operations over the machine's rate, and at least its bytes over the machine's bandwidth. The
larger of the two holds it up, ``compute`` or ``memory``, and of the call what holds up more of its least time. Where that
least time is below OVERHEAD_LIMIT of the time operators take, they are so small that calling them is what costs: scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import numpy as np

from perfgate.document.decision import Bottleneck
from perfgate.document.run import OUTSIDE_OPERATORS, CallAccount, CallPart

GAP_LIMIT = 0.3
OVERHEAD_LIMIT = 0.05

_WAITING: dict[CallPart, Bottleneck] = {
    "gap_host": "scheduling",
    "gap_queue": "scheduling",
    "gap_unknown": "scheduling",
    "outside": "scheduling",
    "gap_synchronization": "synchronisation",
    "copy": "transfer",
    "communication": "communication",
}


def bottleneck(account: CallAccount, times: Sequence[dict[str, float]]) -> Optional[Bottleneck]:
    """Return what holds up the calls of one side; None where no roof was measured and nothing is waited for.

    ``times`` are the operators of its replicates. Their profiler costs less than that of the trace, so where they say what
    is outside operators, they are believed.
    """
    waiting: dict[Bottleneck, float] = {}
    for part, seconds in account.parts.items():
        if part in _WAITING:
            waiting[_WAITING[part]] = waiting.get(_WAITING[part], 0.0) + seconds / account.wall
    outside = _outside_share(times)
    if outside is not None and "outside" in account.parts:
        waiting["scheduling"] = outside
    largest = max(waiting, key=lambda name: waiting[name], default=None)
    if largest is not None and waiting[largest] >= GAP_LIMIT:
        return largest
    return _by_roofline(account)


def _by_roofline(account: CallAccount) -> Optional[Bottleneck]:
    working = sum(seconds for part, seconds in account.parts.items() if part not in _WAITING)
    least = sum(account.least.values())
    if not account.least:
        return None
    if least < OVERHEAD_LIMIT * working:
        return "scheduling"
    return "compute" if account.least.get("compute", 0.0) >= account.least.get("memory", 0.0) else "memory"


def _outside_share(times: Sequence[dict[str, float]]) -> Optional[float]:
    shares = [
        replicate[OUTSIDE_OPERATORS] / sum(replicate.values())
        for replicate in times
        if OUTSIDE_OPERATORS in replicate and sum(replicate.values()) > 0
    ]
    return float(np.median(shares)) if shares else None
