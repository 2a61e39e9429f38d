"""Runs and points in columns are those that they were made of."""

from __future__ import annotations

import msgspec

from perfgate.document.columns import SiteColumns, ids_of, run_of_commit, values_of
from perfgate.document.trend import TrendPoint
from tests.fakes.history import commit_of
from tests.fakes.sites import make_site, make_stored
from tests.fakes.trends import make_change, make_series, make_trend


def test_site_columns__stored_and_read_again__every_record_as_it_was() -> None:
    runs = [
        make_stored(2, subject=None, author="Li Wei", branch=None, workloads=["a", "b"]),
        make_stored(1, commit=None, dirty=True),
        make_stored(0, fingerprint="e" * 64),
    ]
    points = [
        TrendPoint(run_id=run.id, commit=run.commit, started_at=run.started_at, value=number / 7, runs=number + 1)
        for number, run in enumerate(reversed(runs))
    ]
    points[1] = msgspec.structs.replace(points[1], interval=(0.1, None))
    series = make_series(make_change()), msgspec.structs.replace(make_series(metric="latency.p99"), points=points)
    branch = msgspec.structs.replace(series[1], points=points[:1])
    content = make_site(
        make_trend(*(msgspec.structs.replace(entry, points=points) for entry in series)),
        runs=runs,
        branches={"main": [branch], "next": []},
    )
    data = msgspec.msgpack.encode(SiteColumns.of(content))
    read = msgspec.msgpack.decode(data, type=SiteColumns).content()
    assert read == content
    assert (list(read.runs[:2]), read.runs[-1]) == (runs[:2], runs[2])
    assert read.trend.series[0].points[-2:] == points[-2:]
    assert list(values_of(read.trend.series[0].points)) == values_of(points)
    assert ids_of(read.runs) == ids_of(runs)
    for listed in (read.runs, runs):
        assert run_of_commit(listed, commit_of(2)) == runs[0]
        assert run_of_commit(listed, commit_of(7)) is None
