"""The operators that run more often since main moved, with their lines, by the exact
counters of two runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from perfgate.catalogue.lookup import metric
from perfgate.document.decision import Policy
from perfgate.document.explanation import OperatorDelta
from perfgate.document.run import RunDocument
from perfgate.document.trend import TrendCause, TrendSeries
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable

_MOST_OPERATORS = 12


def with_operators(
    cause: TrendCause,
    series: Sequence[TrendSeries],
    documents: Mapping[str, RunDocument],
) -> TrendCause:
    """A cause with the operators that run more often since then, if the runs on both
    sides were opened.

    Operators named by the most counters come first: an operator that makes the host
    wait counts as a call too.
    """
    if cause.direction != "worse":
        return cause
    of_operators: dict[tuple[str, str, str], list[OperatorDelta]] = defaultdict(list)
    for delta in _grown_operators(cause, series, documents):
        of_operators[delta.workload, delta.shape, delta.op].append(delta)

    def order(
        operator: tuple[str, str, str],
    ) -> tuple[int, float, tuple[str, str, str]]:
        deltas = of_operators[operator]
        return -len(deltas), -deltas[0].more_count, operator

    operators = [
        of_operators[operator][0] for operator in sorted(of_operators, key=order)
    ]
    return msgspec.structs.replace(cause, operators=operators[:_MOST_OPERATORS])


def _grown_operators(
    cause: TrendCause,
    series: Sequence[TrendSeries],
    documents: Mapping[str, RunDocument],
) -> list[OperatorDelta]:
    """The grown parts of every call counter in the workloads of the cause."""
    workloads: set[str] = set()
    # In order, each pair of runs once.
    pairs: dict[tuple[str, str], None] = {}
    for place in cause.changes:
        entry = series[place.series]
        before, after = entry.points[entry.changes[place.change].at - 1 :][:2]
        workloads.add(entry.workload)
        pairs[before.run_id, after.run_id] = None
    deltas: list[OperatorDelta] = []
    for good, bad in pairs:
        if good not in documents or bad not in documents:
            continue
        work = WorkTable(Evidence(documents[good], documents[bad]))
        for compared in compare_counters(work.counted, Policy()):
            if (
                compared.workload not in workloads
                or metric(compared.metric).display.amount != "calls"
            ):
                continue
            for part in compared.parts:
                if part.head > part.base:
                    deltas.append(
                        OperatorDelta(
                            workload=compared.workload,
                            shape=compared.shape,
                            op=part.name,
                            base_count=part.base,
                            head_count=part.head,
                            line=part.line,
                        )
                    )
    return deltas
