"""Every number of a run or a check as rows of CSV, in base units; docs/commands.md describes the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.document.decision import Comparison, DecisionDocument
from perfgate.document.job import QUANTILES, sample_quantiles
from perfgate.document.run import RunDocument
from perfgate.judging.report.text.escape import clean

# The step of the gate's comparisons, which has numbers of its own.
_GATE = 20
_RELATIVE = "1"
# Spreadsheets take a cell with such a first character for a formula (OWASP, CSV Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class CsvRow(NamedTuple):
    """One number; the field names are the columns."""

    step: int
    metric: str
    workload: str
    shape: str
    labels: Mapping[str, str]
    side: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    n: int | None = None


def csv_of_run(run: RunDocument) -> str:
    return _text(_of_side(run, "run"))


def csv_of_check(decision: DecisionDocument, base: RunDocument | None, head: RunDocument | None) -> str:
    """Both sides' own numbers, then the gate's comparisons (step 20), then the differences of the other steps."""
    rows = [row for side, run in (("base", base), ("head", head)) if run for row in _of_side(run, side)]
    rows += [row for comparison in decision.comparisons for row in _compared(comparison)]
    rows += [
        CsvRow(
            step=number.step,
            metric=number.metric,
            workload=number.workload,
            shape=number.shape,
            labels=number.labels,
            side="difference",
            value=number.delta,
            unit=_RELATIVE,
            low=number.interval[0] if number.interval else None,
            high=number.interval[1] if number.interval else None,
            confidence=number.confidence,
        )
        for number in decision.checklist
    ]
    return _text(rows)


def _of_side(run: RunDocument, side: str) -> Iterator[CsvRow]:
    for step in run.steps:
        for value in step.values:
            labels = {name: text for name, text in value.labels.items() if name != "shape"}
            low, high = value.interval or (None, None)
            yield CsvRow(
                step=step.number,
                metric=value.metric,
                workload=step.workload,
                shape=value.labels.get("shape", ""),
                labels=labels,
                side=side,
                value=value.value,
                unit=_unit(value.metric),
                low=low,
                high=high,
                confidence=value.confidence,
                n=value.count,
            )
    for job in run.jobs:
        for entry in sample_quantiles(job.name, run.turns):
            for quantile, seconds in zip(QUANTILES, entry.seconds):
                labels = {"quantile": f"P{quantile:.0%}".rstrip("%")}
                yield CsvRow(_GATE, entry.metric, job.name, "", labels, side, seconds, "s", n=entry.count)
    for counters in run.counters:
        counts = {**counters.values, **{f"ops.count:{op.op}": op.count for op in counters.ops}}
        for name, count in counts.items():
            yield CsvRow(
                step=metric(name).step,
                metric=name,
                workload=counters.workload,
                shape=counters.shape,
                labels={"unstable": "yes"} if name in counters.unstable else {},
                side=side,
                value=count,
                unit=_unit(name),
                n=counters.repeats,
            )
    for row in run.operators:
        name = f"ops.time:{row.op}"
        yield CsvRow(metric(name).step, name, row.workload, row.shape, {}, side, row.self_time, "s")


def _compared(comparison: Comparison) -> Iterator[CsvRow]:
    """Yield the numbers behind a comparison: both sides' values in the pairs, or bound and head, and the difference."""
    labels: dict[str, str] = {"method": comparison.method}
    if comparison.clock != "wall":
        labels["clock"] = comparison.clock
    if comparison.limit:
        labels["limit"] = comparison.limit
    row = CsvRow(
        step=_GATE,
        metric=comparison.metric,
        workload=comparison.workload,
        shape=comparison.shape,
        labels=labels,
        side="head",
        value=comparison.head,
        unit=comparison.unit,
        n=comparison.pairs,
    )
    is_bound = comparison.method in ("budget", "limit", "expect")
    yield row._replace(side="bound" if is_bound else "base", value=comparison.base)
    yield row
    low, high = comparison.interval or (None, None)
    yield row._replace(
        side="difference",
        value=comparison.delta,
        unit=_RELATIVE,
        low=low,
        high=high,
        confidence=comparison.confidence,
    )


def _unit(name: str) -> str:
    is_known = name in METRICS or name.startswith(("ops.time:", "ops.count:"))
    return metric(name).unit if is_known else ""


def _text(rows: Iterable[CsvRow]) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(CsvRow._fields)
    writer.writerows([_cell(field) for field in row] for row in rows)
    return written.getvalue()


def _cell(field: object) -> str:
    if field is None:
        return ""
    if isinstance(field, (int, float)):
        return repr(field)
    text = ";".join(f"{name}={value}" for name, value in sorted(field.items())) if isinstance(field, Mapping) else field
    plain = clean(str(text))
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
