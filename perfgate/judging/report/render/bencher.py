"""A run's numbers, or the head's of a check, in Bencher Metric Format, which ``bencher run --adapter json`` takes.

After bencher.dev, "Bencher Metric Format": values by the name of a benchmark and of a measure, with an interval. A measure
that Bencher does not know yet is created under its name.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perfgate.document.trend import place_of
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.view.number_rows import NumberRow, own_numbers

# The longest names that Bencher takes, in characters.
_BENCHMARK_NAME, _MEASURE_NAME = 1024, 64
_EMPTY = "(empty)"


def bencher_metrics(rows: Iterable[NumberRow]) -> str:
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for row in own_numbers(rows):
        place = place_of(row.workload, row.shape, row.labels)
        measures = benchmarks.setdefault(_name(place, _BENCHMARK_NAME), {})
        # Names that are equal once they are cut: the first counts.
        values = {"value": row.value, "lower_value": row.low, "upper_value": row.high}
        known = {name: number for name, number in values.items() if number is not None}
        measures.setdefault(_name(row.metric, _MEASURE_NAME), known)
    return msgspec.json.format(msgspec.json.encode(benchmarks), indent=1).decode() + "\n"


def _name(text: str, most: int) -> str:
    return clean(text, limit=most).strip() or _EMPTY
