"""The operators that run more often since main moved, with their lines, by the exact counters of two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perfgate.catalogue.lookup import metric
from perfgate.document.decision import Policy
from perfgate.document.explanation import OperatorDelta
from perfgate.document.run import RunDocument
from perfgate.document.trend import TrendCause, TrendSeries
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.evidence.index import Evidence

_MOST_OPERATORS = 12


def with_operators(
    cause: TrendCause, series: Sequence[TrendSeries], documents: Mapping[str, RunDocument]
) -> TrendCause:
    """A cause with the operators that run more often since then, if the runs on both sides were opened.

    Operators named by the most counters come first: an operator that makes the host wait counts as a call too.
    """
    if cause.direction != "worse":
        return cause
    counts: Counter[tuple[str, str, str]] = Counter()
    changes: dict[tuple[str, str, str], OperatorDelta] = {}
    for change in _more_often(cause, series, documents):
        key = (change.workload, change.shape, change.op)
        counts[key] += 1
        changes.setdefault(key, change)
    ordered = sorted(changes, key=lambda key: (-counts[key], -changes[key].more_count, key))
    return msgspec.structs.replace(cause, operators=[changes[key] for key in ordered][:_MOST_OPERATORS])


def _more_often(
    cause: TrendCause, series: Sequence[TrendSeries], documents: Mapping[str, RunDocument]
) -> Iterator[OperatorDelta]:
    """Yield the grown parts of every call counter in the workloads of the cause."""
    workloads: set[str] = set()
    # In order, each pair of runs once.
    pairs: dict[tuple[str, str], None] = {}
    for place in cause.changes:
        entry = series[place.series]
        before, after = entry.points[entry.changes[place.change].at - 1 :][:2]
        workloads.add(entry.workload)
        pairs[before.run_id, after.run_id] = None
    for good, bad in pairs:
        if good not in documents or bad not in documents:
            continue
        for compared in compare_counters(Evidence(documents[good], documents[bad]), Policy()):
            if compared.workload in workloads and metric(compared.metric).amount == "calls":
                yield from (
                    OperatorDelta(
                        workload=compared.workload,
                        shape=compared.shape,
                        op=part.name,
                        base_count=part.base,
                        head_count=part.head,
                        line=part.line,
                    )
                    for part in compared.parts
                    if part.head > part.base
                )
