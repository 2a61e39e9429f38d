"""The newest values of several series of a testbed, from the tables of a store in three statements.

One statement a series would take as many journeys to the server, and each would return the same runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from perfgate.document.conditions import StepConditions
from perfgate.judging.store.store import RecentRun, RecentValues, SeriesPlace
from perfgate.judging.store.tables import CONDITIONS, RUNS, SERIES, VALUES

# SQLite joins 500 selects in one statement at most (its documentation, "Limits In SQLite", SQLITE_MAX_COMPOUND_SELECT).
_AT_ONCE = 100
_ROWS = 250
_NUMBERS = sa.select(SERIES.c.number, *(SERIES.c[name] for name in SeriesPlace._fields)).where(
    SERIES.c.project == sa.bindparam("project"),
    SERIES.c.fingerprint == sa.bindparam("fingerprint"),
    SERIES.c.metric.in_(sa.bindparam("metrics", expanding=True)),
)
_RUNS_SINCE = (
    sa.select(RUNS.c.number, RUNS.c.id, RUNS.c.commit_id, CONDITIONS.c.conditions)
    .join_from(RUNS, CONDITIONS, isouter=True)
    .where(
        RUNS.c.project == sa.bindparam("project"),
        RUNS.c.fingerprint == sa.bindparam("fingerprint"),
        RUNS.c.started >= sa.bindparam("since"),
    )
    .order_by(RUNS.c.started, RUNS.c.number)
)


def read_recent(
    connection: sa.Connection,
    project: str,
    places: Sequence[SeriesPlace],
    *,
    newest: int,
    decode: Callable[[str, str], list[StepConditions]],
) -> RecentValues:
    """The newest values of series of one testbed; ``decode`` reads the conditions of a run, given its id."""
    testbed = {"project": project, "fingerprint": places[0].fingerprint}
    metrics = sorted({place.metric for place in places})
    series = {
        SeriesPlace(*place): number for number, *place in connection.execute(_NUMBERS, {**testbed, "metrics": metrics})
    }
    numbers = [series[place] for place in places if place in series]
    found: dict[int, list[tuple[int, float]]] = {number: [] for number in numbers}
    oldest = float("inf")
    for number, started, run, value in _newest_values(connection, numbers, newest):
        found[number].append((run, value))
        oldest = min(oldest, started)
    used = {run for values in found.values() for run, _ in values}
    at: dict[int, int] = {}
    runs: list[RecentRun] = []
    rows: Sequence[Any] = connection.execute(_RUNS_SINCE, {**testbed, "since": oldest}).all() if used else []
    for number, run_id, commit, conditions in rows:
        if number in used:
            at[number] = len(runs)
            known = decode(run_id, conditions) if conditions else []
            runs.append(RecentRun(id=run_id, commit=commit, conditions=known))
    # A run that was pruned in between has no place.
    values = {
        number: sorted((at[run], value) for run, value in values if run in at) for number, values in found.items()
    }
    return RecentValues(runs=runs, values=[values.get(series.get(place, 0), []) for place in places])


def _newest_values(connection: sa.Connection, numbers: Sequence[int], newest: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(numbers), _AT_ONCE):
        some = numbers[start : start + _AT_ONCE]
        values = {f"series_{position}": number for position, number in enumerate(some)}
        # Fetched one by one, a row costs more than its values; thousands at once start the garbage collector.
        for rows in connection.execute(_newest_of(len(some)), {**values, "newest": newest}).partitions(_ROWS):
            yield from rows


@cache
def _newest_of(count: int) -> sa.CompoundSelect[tuple[int, float, int, float]]:
    """The newest values of so many series, each from one stretch of the key."""
    columns = VALUES.c.series, VALUES.c.started, VALUES.c.run, VALUES.c.value
    order = VALUES.c.started.desc(), VALUES.c.run.desc()
    stretches = [
        sa.select(*columns)
        .where(VALUES.c.series == sa.bindparam(f"series_{position}"))
        .order_by(*order)
        .limit(sa.bindparam("newest", type_=sa.Integer))
        .subquery()
        for position in range(count)
    ]
    return sa.union_all(*(sa.select(stretch) for stretch in stretches))
