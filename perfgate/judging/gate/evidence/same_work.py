"""Whether both sides did the same work: kernels, operators and Python.

What did not change cannot have become slower, unless the same work takes longer: that shows in the time of kernels, or as
a change of the host's and the device's time of more than SAME_WORK_MARGIN. docs/deciding.md explains when that is sound.
"""

from __future__ import annotations

from perfgate.catalogue.names import BYTECODES, FRAMEWORK_OPS, PYTHON_CALLS
from perfgate.document.run import CounterSet
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.kernel_blocks import ran_same_kernels
from perfgate.judging.gate.evidence.work import CountedSide

# The slowdown that "unchanged" excludes for host and span if the work is the same.
SAME_WORK_MARGIN = 0.05
_COUNTS = (FRAMEWORK_OPS, PYTHON_CALLS, BYTECODES)


def is_same_work(evidence: Evidence, place: ShapePlace) -> bool:
    """Whether a call of both sides ran the same kernels, operators, functions and bytecodes, each known exactly."""
    if not ran_same_kernels(evidence.pairs.get(place.workload, []), place.shape):
        return False
    before = evidence.base.counters.get(place)
    after = evidence.head.counters.get(place)
    return before is not None and after is not None and _has_same_counts(before, after)


def _has_same_counts(before: CounterSet, after: CounterSet) -> bool:
    for name in _COUNTS:
        count = before.values.get(name)
        if count is None or count != after.values.get(name) or name in (*before.unstable, *after.unstable):
            return False
    return CountedSide(before).calls == CountedSide(after).calls
