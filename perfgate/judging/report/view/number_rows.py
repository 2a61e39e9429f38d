"""Every number of a run or a check as a row, in base units: the source of all tables
and formats for other tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.catalogue.records import GATE_STEP
from perfgate.catalogue.terms import Better
from perfgate.document.comparison import (
    Bound,
    Checked,
    Comparison,
    Exact,
    NumberComparison,
    Paired,
    Recorded,
)
from perfgate.document.decision import DecisionDocument, TurnDifference
from perfgate.document.job import QUANTILES, JobRecord, sample_quantiles, typical_values
from perfgate.document.run import RunDocument

_RELATIVE = "1"
# Labels of the procedure; all other labels identify the number.
_PROCEDURE = frozenset({"evidence", "clock", "limit"})
# The label of a counter that differed between the calls.
_UNSTABLE = "unstable"


class NumberRow(NamedTuple):
    """One number; docs/commands.md describes the fields, which are the columns of a
    table.
    """

    step: int
    metric: str
    workload: str
    shape: str
    labels: Mapping[str, str]
    side: str
    value: float | None
    unit: str
    better: Better
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    n: int | None = None

    @property
    def is_of_operator(self) -> bool:
        """Whether it is of one operator (``ops.count:aten::clone``), of which a run may
        have hundreds.
        """
        return self.metric.startswith("ops.") and ":" in self.metric


def rows_of_run(run: RunDocument, side: str = "run") -> Iterator[NumberRow]:
    for step in run.checklist.steps:
        for value in step.values:
            low, high = value.interval or (None, None)
            yield NumberRow(
                step=step.number,
                metric=value.metric,
                workload=step.workload,
                shape=value.labels.get("shape", ""),
                labels={
                    name: text for name, text in value.labels.items() if name != "shape"
                },
                side=side,
                value=value.value,
                unit=_unit(value.metric),
                better=metric(value.metric).better,
                low=low,
                high=high,
                confidence=value.confidence,
                n=value.count,
            )
    for job in run.jobs.records:
        yield from _of_job(job, run, side)
    yield from _of_counters(run, side)
    for row in run.checklist.operators:
        name = f"ops.time:{row.op}"
        yield NumberRow(
            metric(name).step,
            name,
            row.workload,
            row.shape,
            {},
            side,
            row.self_time,
            "s",
            "lower",
        )


def rows_of_check(
    decision: DecisionDocument, base: RunDocument | None, head: RunDocument | None
) -> Iterator[NumberRow]:
    """Both sides' own numbers, then the gate's comparisons (step 20), then the
    differences of the other steps.
    """
    for side, run in (("base", base), ("head", head)):
        if run is not None:
            yield from rows_of_run(run, side)
    for comparison in decision.comparisons:
        yield from _compared(comparison)
    for number in decision.checklist.numbers:
        delta = None
        low = high = confidence = None
        if number.difference is not None:
            delta = number.difference.delta
        if (
            isinstance(number.difference, TurnDifference)
            and number.difference.interval is not None
        ):
            low, high = number.difference.interval
            confidence = number.difference.confidence
        yield NumberRow(
            step=number.step,
            metric=number.metric,
            workload=number.workload,
            shape=number.shape,
            labels=number.labels,
            side="difference",
            value=delta,
            unit=_RELATIVE,
            better=metric(number.metric).better,
            low=low,
            high=high,
            confidence=confidence,
        )


def own_numbers(rows: Iterable[NumberRow]) -> list[NumberRow]:
    """One row for each known number of the run, or of the head of a check, for tools
    that keep one value of each.

    Only identifying labels stay. Left out are unavailable numbers, counters that
    differed between the calls, and single operators. The number of a step counts before
    a comparison's, because it has an interval.
    """
    distinct: dict[tuple[object, ...], NumberRow] = {}
    for row in rows:
        is_own = row.side in ("run", "head") and row.value is not None and row.unit
        if is_own and _UNSTABLE not in row.labels and not row.is_of_operator:
            labels = {
                name: text
                for name, text in row.labels.items()
                if name not in _PROCEDURE
            }
            key = (row.workload, row.shape, row.metric, tuple(sorted(labels.items())))
            distinct.setdefault(key, row._replace(labels=labels))
    return list(distinct.values())


def _of_job(job: JobRecord, run: RunDocument, side: str) -> Iterator[NumberRow]:
    for name, (count, quantiles) in sample_quantiles(job.name, run.jobs.turns).items():
        for quantile, seconds in zip(QUANTILES, quantiles):
            labels = {"quantile": f"P{quantile:.0%}".rstrip("%")}
            yield NumberRow(
                GATE_STEP,
                name,
                job.name,
                "",
                labels,
                side,
                seconds,
                "s",
                metric(name).better,
                n=count,
            )
    if side == "run":  # in a check, the comparisons have both sides' numbers
        typical = typical_values(job, run.jobs.turns)
        for number in job.numbers:
            if number.metric in typical:
                value = typical[number.metric]
                yield NumberRow(
                    GATE_STEP,
                    number.metric,
                    job.name,
                    "",
                    {},
                    side,
                    value,
                    number.unit,
                    number.better,
                )


def _of_counters(run: RunDocument, side: str) -> Iterator[NumberRow]:
    for counters in run.checklist.counters:
        counts = {
            **counters.values,
            **{f"ops.count:{op.op}": op.count for op in counters.ops},
        }
        for name, count in counts.items():
            described = metric(name)
            labels = {}
            if name in counters.unstable:
                labels[_UNSTABLE] = "yes"
            yield NumberRow(
                step=described.step,
                metric=name,
                workload=counters.workload,
                shape=counters.shape,
                labels=labels,
                side=side,
                value=count,
                unit=_unit(name),
                better=described.better,
                n=counters.repeats,
            )


def _compared(comparison: Comparison) -> Iterator[NumberRow]:
    """Yield the numbers behind a comparison: both sides' values in the pairs, or bound
    and head, and the difference.
    """
    row = NumberRow(
        step=GATE_STEP,
        metric=comparison.metric,
        workload=comparison.workload,
        shape=comparison.shape,
        labels=_procedure_of(comparison),
        side="head",
        value=comparison.head,
        unit=comparison.unit,
        better=comparison.better,
    )
    if isinstance(comparison, Paired):
        row = row._replace(n=comparison.pairs)
    if isinstance(comparison, Bound):
        yield row._replace(side="bound", value=comparison.bound)
    else:
        yield row._replace(side="base", value=comparison.base)
    yield row
    difference = row._replace(side="difference", value=None, unit=_RELATIVE)
    if isinstance(comparison, NumberComparison):
        difference = difference._replace(value=comparison.delta)
    if isinstance(comparison, Paired):
        low, high = comparison.interval or (None, None)
        difference = difference._replace(
            low=low, high=high, confidence=comparison.confidence
        )
    yield difference


def _procedure_of(comparison: Comparison) -> dict[str, str]:
    """How a number was compared, as labels."""
    match comparison:
        case Paired(evidence=evidence, clock="wall"):
            return {"evidence": evidence}
        case Paired(evidence=evidence, clock=clock):
            return {"evidence": evidence, "clock": clock}
        case Bound(limit=str(limit)):
            return {"evidence": "bound", "limit": limit}
        case Bound():
            return {"evidence": "bound"}
        case Exact():
            return {"evidence": "count"}
        case Checked():
            return {"evidence": "check"}
        case Recorded():
            return {"evidence": "recording"}


def _unit(name: str) -> str:
    is_known = name in METRICS or name.startswith(("ops.time:", "ops.count:"))
    if is_known:
        return metric(name).unit
    return ""
