"""The numbers of one or two stored runs compared with main's level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfgate.document.history import StoredRun
from perfgate.document.run import RunDocument
from perfgate.document.site import BesideLevel
from perfgate.document.trend import TrendSeries
from perfgate.judging.gate.compare.stored import beside_level, run_to_run
from perfgate.judging.store.runs import stored_values
from perfgate.judging.store.store import labels_text
from perfgate.judging.trend.level import level_around

# A value of a run by its place: workload, shape, metric, labels.
_Place = tuple[str, str, str, str]


def beside_main(
    run: StoredRun, document: RunDocument, series: Sequence[TrendSeries]
) -> list[BesideLevel]:
    """The numbers of a run compared with its level; ``series`` are main's, of all testbeds."""
    values = _values(document)
    numbers: list[BesideLevel] = []
    for entry in series:
        if entry.fingerprint == run.fingerprint and _place(entry) in values:
            level = level_around(entry, run, without=[run])
            numbers.append(beside_level(entry, values[_place(entry)], level))
    return numbers


def beside_each_other(
    earlier: StoredRun,
    later: StoredRun,
    documents: tuple[RunDocument, RunDocument],
    series: Sequence[TrendSeries],
) -> list[BesideLevel]:
    """The numbers of two runs, compared with the level of the earlier run if both are of one testbed."""
    before, after = map(_values, documents)
    numbers: list[BesideLevel] = []
    for entry in series:
        value_before, value_after = before.get(_place(entry)), after.get(_place(entry))
        is_measured = value_before is not None or value_after is not None
        if entry.fingerprint == later.fingerprint and is_measured:
            # Empty for a run of another testbed.
            level = level_around(entry, earlier, without=[later])
            numbers.append(run_to_run(entry, value_before, value_after, level))
    return numbers


def _place(series: TrendSeries) -> _Place:
    return series.workload, series.shape, series.metric, labels_text(series.labels)


def _values(document: RunDocument) -> Mapping[_Place, float]:
    return {
        (value.workload, value.shape, value.metric, value.labels): value.value
        for value in stored_values(document)
    }
