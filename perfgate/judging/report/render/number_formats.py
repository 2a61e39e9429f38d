"""The numbers of a run or a check in the formats of other tools: CSV, Parquet, Bencher and github-action-benchmark."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from perfgate.document.trend import place_of
from perfgate.errors import UsageError
from perfgate.judging.report.text.escape import MAX_PROSE, clean
from perfgate.judging.report.view.number_rows import NumberRow, own_numbers

# Spreadsheets take a cell with such a first character for a formula (OWASP, CSV Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# The longest names that Bencher takes, in characters.
_BENCHMARK_NAME, _MEASURE_NAME = 1024, 64
_EMPTY = "(empty)"
# The files of github-action-benchmark, named like the tool to give the action, and the direction of the numbers in each.
BENCHMARK_FILES: dict[str, Literal["lower", "higher"]] = {
    "customSmallerIsBetter.json": "lower",
    "customBiggerIsBetter.json": "higher",
}


class BenchmarkEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value of a chart, under the names of the action; equal names are one chart."""

    name: str
    unit: str
    value: float
    range: str | None = None
    extra: str | None = None


def csv_table(rows: Iterable[NumberRow]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(NumberRow._fields)
    for row in rows:
        writer.writerow(map(_cell, row))
    return text.getvalue()


def _cell(field: object) -> str:
    if field is None:
        return ""
    if isinstance(field, (int, float)):
        return repr(field)
    if isinstance(field, Mapping):
        field = ";".join(f"{name}={value}" for name, value in sorted(field.items()))
    text = clean(str(field))
    if text.startswith(_FORMULA):
        return f"'{text}"
    return text


def parquet_table(rows: Iterable[NumberRow]) -> bytes:
    """The columns of the CSV with types: labels are a map, unknown values null. Raises UsageError without pyarrow."""
    try:
        import pyarrow as arrow  # tens of megabytes, which only this format needs
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which cannot be imported ({error}); run pip install 'perfgate[parquet]'",
            error=error,
        ) from error
    # A column of a few texts is written once, with numbers that refer to them.
    word = arrow.dictionary(arrow.int32(), arrow.string())
    kinds = {
        "step": arrow.int32(),
        "metric": word,
        "workload": word,
        "shape": word,
        "labels": arrow.map_(arrow.string(), arrow.string()),
        "side": word,
        "value": arrow.float64(),
        "unit": word,
        "better": word,
        "low": arrow.float64(),
        "high": arrow.float64(),
        "confidence": arrow.float64(),
        "n": arrow.int64(),
    }
    columns: dict[str, list[object]] = {name: [] for name in kinds}
    for row in rows:
        for column, field in zip(columns.values(), row):
            column.append(_arrow_value(field))
    arrays = [arrow.array(columns[name], kind) for name, kind in kinds.items()]
    file = io.BytesIO()
    parquet.write_table(arrow.table(arrays, names=list(kinds)), file)
    return file.getvalue()


def _arrow_value(field: object) -> object:
    """A field as Arrow takes it: labels as pairs, and texts in valid UTF-8, which outside names may not be."""
    if isinstance(field, dict):
        return [
            (_arrow_value(name), _arrow_value(value))
            for name, value in sorted(field.items())
        ]
    if isinstance(field, str):
        return field.encode(errors="replace").decode()
    return field


def bencher_metrics(rows: Iterable[NumberRow]) -> str:
    """Bencher Metric Format, which ``bencher run --adapter json`` takes.

    After bencher.dev, "Bencher Metric Format": values by the name of a benchmark and of a measure, with an interval. Bencher
    creates unknown measures under their names.
    """
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for row in own_numbers(rows):
        place = place_of(row.workload, row.shape, row.labels)
        measures = benchmarks.setdefault(_bencher_name(place, _BENCHMARK_NAME), {})
        values = {"value": row.value, "lower_value": row.low, "upper_value": row.high}
        present = {
            name: number for name, number in values.items() if number is not None
        }
        # Of names that are equal after truncation, the first counts.
        measures.setdefault(_bencher_name(row.metric, _MEASURE_NAME), present)
    return _json(benchmarks)


def _bencher_name(text: str, most: int) -> str:
    return clean(text, limit=most).strip() or _EMPTY


def benchmark_entries(
    rows: Iterable[NumberRow], better: Literal["lower", "higher"]
) -> str:
    """The numbers of one direction, as benchmark-action/github-action-benchmark takes them.

    After its README, "customBiggerIsBetter" and "customSmallerIsBetter": a JSON array of name, unit and value with a range.
    Numbers without a better direction are in neither.
    """
    entries: dict[str, BenchmarkEntry] = {}
    for row in own_numbers(rows):
        if row.better == better and row.value is not None:
            entry = _benchmark_entry(row, row.value)
            entries.setdefault(entry.name, entry)
    return _json(list(entries.values()))


def _benchmark_entry(row: NumberRow, value: float) -> BenchmarkEntry:
    place, interval, basis = place_of(row.workload, row.shape, row.labels), None, []
    if row.n is not None:
        basis.append(f"n = {row.n}")
    if row.low is not None and row.high is not None:
        interval = f"{row.low!r} to {row.high!r}"
        if row.confidence is not None:
            basis.append(f"interval at {row.confidence:.0%}")
    return BenchmarkEntry(
        name=clean(f"{place}: {row.metric}", limit=MAX_PROSE),
        unit=row.unit,
        value=value,
        range=interval,
        extra=", ".join(basis) or None,
    )


def _json(content: object) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode() + "\n"
