"""The numbers of a run or a check in the formats of other tools.

They are CSV, Parquet, Bencher, github-action-benchmark, and OpenMetrics for GitLab and
Prometheus.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.records import Metric
from perfgate.document.run import RunDocument
from perfgate.document.trend import place_of
from perfgate.errors import UsageError
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.view.number_rows import NumberRow, own_numbers, rows_of_run

# Spreadsheets take a cell with such a first character for a formula (OWASP, CSV
# Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Names of kernels of a GPU have hundreds of characters, and kernels of one template
# differ only near the end.
_LONGEST_NAME = 4096
# The longest names that Bencher takes, in characters.
_BENCHMARK_NAME, _MEASURE_NAME = 1024, 64
_EMPTY = "(empty)"
# The files of github-action-benchmark, named like the tool to give the action, and the
# direction of the numbers in each.
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
    text = clean(str(field), limit=_LONGEST_NAME)
    if text.startswith(_FORMULA):
        return f"'{text}"
    return text


def parquet_table(rows: Iterable[NumberRow]) -> bytes:
    """The columns of the CSV with types: labels are a map, unknown values null.

    Raises UsageError without pyarrow.
    """
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
    """A field as Arrow takes it: labels as pairs, and texts in valid UTF-8, which
    outside names may not be.
    """
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

    After bencher.dev, "Bencher Metric Format": values by the name of a benchmark and of
    a measure, with an interval. Bencher creates unknown measures under their names.
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
    """The numbers of one direction, as benchmark-action/github-action-benchmark takes
    them.

    After its README, "customBiggerIsBetter" and "customSmallerIsBetter": a JSON array
    of name, unit and value with a range. Numbers without a better direction are in
    neither.
    """
    entries: dict[str, BenchmarkEntry] = {}
    for row in own_numbers(rows):
        if row.better == better and row.value is not None:
            entry = _benchmark_entry(row, row.value)
            entries.setdefault(entry.name, entry)
    return _json(list(entries.values()))


def _benchmark_entry(row: NumberRow, value: float) -> BenchmarkEntry:
    place = place_of(row.workload, row.shape, row.labels)
    interval = None
    basis = []
    if row.n is not None:
        basis.append(f"n = {row.n}")
    if row.low is not None and row.high is not None:
        interval = f"{row.low!r} to {row.high!r}"
        if row.confidence is not None:
            basis.append(f"interval at {row.confidence:.0%}")
    return BenchmarkEntry(
        name=clean(f"{place}: {row.metric}", limit=_LONGEST_NAME),
        unit=row.unit,
        value=value,
        range=interval,
        extra=", ".join(basis) or None,
    )


def _json(content: object) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode() + "\n"


# OpenMetrics 1.0 (prometheus/OpenMetrics): gauges in base units, the unit as the last
# part of the name, families in one piece, "# EOF" at the end.
END = "# EOF\n"
_UNITS = {
    "s": "seconds",
    "B": "bytes",
    "B/s": "bytes_per_second",
    "items/s": "items_per_second",
    "Cel": "celsius",
    "W": "watts",
    "J": "joules",
}
_SUFFIXES = {"counter": "_total", "gauge": ""}
_LABEL = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_OTHER = re.compile(r"[^a-zA-Z0-9_]")

_Labels = tuple[tuple[str, str], ...]
# A run with values that carry further labels, such as its project.
LabelledRun = tuple[Mapping[str, str], RunDocument]


class ServiceFamily(NamedTuple):
    """Numbers about a service itself, by the values of its labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


def openmetrics(run: RunDocument, steps: Iterable[int]) -> str:
    """The values of some steps, and the exact counters, one gauge per metric;
    unavailable values are left out.
    """
    return "".join(_families([({}, run)], frozenset(steps))) + END


def openmetrics_of_runs(
    runs: Iterable[LabelledRun], further: Iterable[ServiceFamily]
) -> str:
    """The values of all steps of several runs, one gauge per metric, and other
    families.
    """
    return "".join([*_families(runs, None), *map(_other_family, further)]) + END


def openmetrics_unit(metric: Metric) -> str:
    """The OpenMetrics name of a metric's unit, empty for a count."""
    if metric.number.sort == "share":
        return "ratio"
    return _UNITS.get(metric.unit, "")


def family_name(metric: Metric) -> str:
    """A metric's name, which ends in its unit: ``perfgate_latency_low_seconds``."""
    name = "perfgate_" + _OTHER.sub("_", metric.name)
    unit = openmetrics_unit(metric)
    if not unit or name.endswith(f"_{unit}"):
        return name
    return f"{name}_{unit}"


def _families(
    runs: Iterable[LabelledRun], steps: frozenset[int] | None
) -> Iterator[str]:
    families: dict[str, dict[_Labels, float]] = {}
    for labels, run in runs:
        for name, of_value, value in _samples(run, steps):
            # A series may occur only once in a text: if a document has two values, the
            # first counts.
            series = tuple(
                sorted(
                    (label, clean(text, limit=_LONGEST_NAME))
                    for label, text in {**of_value, **labels}.items()
                )
            )
            families.setdefault(name, {}).setdefault(series, value)
    return (_family(METRICS[name], families[name]) for name in sorted(families))


def _samples(
    run: RunDocument, steps: frozenset[int] | None
) -> Iterator[tuple[str, dict[str, str], float]]:
    for row in own_numbers(rows_of_run(run)):
        described = METRICS.get(row.metric)
        is_selected = described is not None and (
            steps is None or row.step in steps or described.origin.counted
        )
        if (
            is_selected
            and row.value is not None
            and all(map(_LABEL.fullmatch, row.labels))
        ):
            labels = {"workload": row.workload}
            if row.shape:
                labels["shape"] = row.shape
            yield row.metric, {**labels, **row.labels}, row.value


def _other_family(family: ServiceFamily) -> str:
    lines = [
        f"# TYPE {family.name} {family.kind}",
        f"# HELP {family.name} {_text(family.help)}",
    ]
    sample = f"{family.name}{_SUFFIXES[family.kind]}"
    for values, number in sorted(family.values.items()):
        lines.append(f"{sample}{{{_labels(zip(family.labels, values))}}} {number!r}")
    return "\n".join(lines) + "\n"


def _family(metric: Metric, samples: dict[_Labels, float]) -> str:
    name = family_name(metric)
    unit = openmetrics_unit(metric)
    lines = [f"# TYPE {name} gauge"]
    if unit:
        lines.append(f"# UNIT {name} {unit}")
    lines.append(f"# HELP {name} {_text(metric.title)}")
    lines += [
        f"{name}{{{_labels(labels)}}} {float(value)!r}"
        for labels, value in sorted(samples.items())
    ]
    return "\n".join(lines) + "\n"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(
        f'{name}="{_text(clean(value, limit=_LONGEST_NAME))}"' for name, value in labels
    )


def _text(text: str) -> str:
    """Escape a label value or help text (OpenMetrics 1.0, "Escaping")."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
