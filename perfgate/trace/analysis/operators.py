"""Operators of a trace by self time: rows of a table, and shares of classes of
operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec
import numpy as np

from perfgate.document.trace import TopKind
from perfgate.trace.model.arithmetic import rows_by, self_times
from perfgate.trace.model.events import KINDS, EventTable
from perfgate.trace.model.patterns import lazy_pattern

OpClass = Literal["conv_matmul", "copy", "reshape", "softmax", "other"]

# First match wins. Names of torch operators (aten::addmm), of CUDA kernels
# (volta_sgemm_128x64_nn, cutlass_80_…, implicit_convolve_sgemm, Memcpy HtoD) and of
# Ascend kernels (MatMulV2, Conv2D, TransData, DataCopy, TransposeD, SoftmaxV2), as the
# recorded samples cuda-hta, cuda-kineto and msinsight-910B-alexnet-2501 have them. An
# attention kernel is mostly matrix products.
_CLASSES: tuple[tuple[OpClass, re.Pattern[str]], ...] = (
    ("softmax", lazy_pattern(r"softmax", re.IGNORECASE)),
    ("copy", lazy_pattern(r"copy|clone|transdata|memcpy|memset", re.IGNORECASE)),
    (
        "reshape",
        lazy_pattern(
            r"transpose|permute|reshape|_unsafe_view|aten::(view|t|as_strided)$",
            re.IGNORECASE,
        ),
    ),
    (
        "conv_matmul",
        lazy_pattern(
            r"conv(?!ert)|gemm|gemv|matmul|cutlass|(?<![a-z])(add|b|badd)*(mm|mv)(?![a-z])|(?<![a-z])linear"
            r"|scaled_dot_product|attention|fmha",
            re.IGNORECASE,
        ),
    ),
)


class OperatorTotal(msgspec.Struct, frozen=True):
    """One operator of a trace: nanoseconds of self time in a typical call of the
    workload, events over all calls.

    Typical is the median over the calls: one call that the scheduler interrupted would
    outweigh all others in a mean.
    """

    name: str
    kind: TopKind
    typical_ns: float
    count: int


def operator_totals(events: EventTable, *, calls: int) -> list[OperatorTotal]:
    """Every operator among the events of ``calls`` calls, most self time first, then by
    name.

    Kernels are counted by their type if the profiler recorded it
    (``EventTable.group``). One name on two kinds of event (never seen) would count as
    the kind that comes first in the table.
    """
    own = self_times(events.start, events.duration, events.track)
    rows = []
    for chosen in rows_by(events.group):
        first = chosen[0]
        kind = row_kind(int(events.kind[first]))
        if chosen.size % calls:
            typical = (
                float(own[chosen].sum()) / calls
            )  # calls with different numbers of events have no median
        else:
            in_order = chosen[np.argsort(events.start[chosen], kind="stable")]
            by_call = own[in_order].reshape(calls, -1)
            typical = float(np.median(by_call.sum(axis=1)))
        rows.append(
            OperatorTotal(events.names[events.group[first]], kind, typical, chosen.size)
        )
    return sorted(rows, key=lambda row: (-row.typical_ns, row.name))


def op_class(name: str) -> OpClass:
    return next((kind for kind, pattern in _CLASSES if pattern.search(name)), "other")


def class_totals(rows: Iterable[OperatorTotal]) -> dict[OpClass, float]:
    """The nanoseconds of self time of each class, zero included."""
    totals: dict[OpClass, float] = {
        "conv_matmul": 0.0,
        "copy": 0.0,
        "reshape": 0.0,
        "softmax": 0.0,
        "other": 0.0,
    }
    for row in rows:
        totals[op_class(row.name)] += row.typical_ns
    return totals


def row_kind(code: int) -> TopKind:
    """The kind of an operator's work on a device by its number among KINDS; ``host``
    for all other kinds.
    """
    kind = KINDS[code]
    if kind in ("compute", "copy", "comm", "fused"):
        return kind
    return "host"
