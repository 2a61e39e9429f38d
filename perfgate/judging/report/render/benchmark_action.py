"""A run's numbers, or the head's of a check, as benchmark-action/github-action-benchmark takes them from other tools.

After its README, "customBiggerIsBetter" and "customSmallerIsBetter": a JSON array of name, unit and value with a range, for
one of the two directions. Numbers without a better direction are in neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from perfgate.document.trend import place_of
from perfgate.judging.report.text.escape import MAX_PROSE, clean
from perfgate.judging.report.view.number_rows import NumberRow, own_numbers

# The file of each direction, named like the tool to give the action.
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


def benchmark_entries(rows: Iterable[NumberRow], better: Literal["lower", "higher"]) -> str:
    entries: dict[str, BenchmarkEntry] = {}
    for row in own_numbers(rows):
        if row.better == better and row.value is not None:
            entry = _entry(row, row.value)
            entries.setdefault(entry.name, entry)
    return msgspec.json.format(msgspec.json.encode(list(entries.values())), indent=1).decode() + "\n"


def _entry(row: NumberRow, value: float) -> BenchmarkEntry:
    has_interval = row.low is not None and row.high is not None
    basis = [f"n = {row.n}"] if row.n is not None else []
    if has_interval and row.confidence is not None:
        basis.append(f"interval at {row.confidence:.0%}")
    return BenchmarkEntry(
        name=clean(f"{place_of(row.workload, row.shape, row.labels)}: {row.metric}", limit=MAX_PROSE),
        unit=row.unit,
        value=value,
        range=f"{row.low!r} to {row.high!r}" if has_interval else None,
        extra=", ".join(basis) or None,
    )
