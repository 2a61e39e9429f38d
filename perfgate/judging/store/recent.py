"""The newest values of several series of a testbed, from the tables of a store in three statements.

One statement a series would take as many journeys to the server, and each would return the same runs again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from perfgate.document.conditions import StepConditions
from perfgate.judging.store.store import RecentRun, RecentValues, SeriesPlace
from perfgate.judging.store.tables import CONDITIONS, RUNS, SERIES, VALUES

_ROWS = 1_000
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

_SAME_SERIES = VALUES.alias()
# From the oldest of the newest values on. SQLite has no LATERAL, and a union takes SQLAlchemy longer than the database.
_OLDEST = (
    sa.select(_SAME_SERIES.c.started)
    .where(_SAME_SERIES.c.series == SERIES.c.number)
    .order_by(_SAME_SERIES.c.started.desc())
    .limit(1)
    .offset(sa.bindparam("newest", type_=sa.Integer) - 1)
    .scalar_subquery()
)
_VALUES_SINCE = (
    sa.select(VALUES.c.series, VALUES.c.started, VALUES.c.run, VALUES.c.value)
    .join_from(
        SERIES,
        VALUES,
        sa.and_(VALUES.c.series == SERIES.c.number, VALUES.c.started >= sa.func.coalesce(_OLDEST, -math.inf)),
    )
    .where(SERIES.c.number.in_(sa.bindparam("numbers", expanding=True)))
    .order_by(VALUES.c.series, VALUES.c.started, VALUES.c.run)
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
    of_series, started, runs_of, values = _newest_values(connection, numbers, newest)
    used = set(runs_of)
    at: dict[int, int] = {}
    runs: list[RecentRun] = []
    since = {**testbed, "since": min(started, default=0.0)}
    for number, run_id, commit, conditions in connection.execute(_RUNS_SINCE, since) if used else ():
        if number in used:
            at[number] = len(runs)
            known = decode(run_id, conditions) if conditions else []
            runs.append(RecentRun(id=run_id, commit=commit, conditions=known))

    def newest_of(number: int) -> list[tuple[int, float]]:
        last = bisect_right(of_series, number)
        stretch = slice(max(bisect_left(of_series, number), last - newest), last)
        # A run that was pruned in between has no place.
        return [(at[run], value) for run, value in zip(runs_of[stretch], values[stretch]) if run in at]

    return RecentValues(runs=runs, values=[newest_of(series.get(place, 0)) for place in places])


def _newest_values(connection: sa.Connection, numbers: Sequence[int], newest: int) -> Sequence[list[Any]]:
    """Number of the series, start, run and value of each of the newest values, sorted by series and start."""
    columns: tuple[list[Any], ...] = ([], [], [], [])
    # Fetched one by one, a row costs more than its values; all at once start the garbage collector.
    for rows in connection.execute(_VALUES_SINCE, {"numbers": numbers, "newest": newest}).partitions(_ROWS):
        for column, some in zip(columns, zip(*rows)):
            column.extend(some)
    return columns
