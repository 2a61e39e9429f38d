"""Which artifacts may go."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from perfgate.document.decision import Verdict
from perfgate.document.kept import ArtifactSet
from perfgate.document.run import Artifact
from perfgate.judging.store.retention import expired_sets

NOW = datetime(2026, 6, 30, tzinfo=timezone.utc)


def kept(name: str, days: int, size: int = 10, verdict: Verdict | None = None) -> ArtifactSet:
    file = Artifact(name="t", kind="trace", path="t.json.gz", bytes=size, sha256="0" * 64)
    return ArtifactSet(
        id=name, project="shop", session="s", commit=None, kept_at=(NOW - timedelta(days=days)).isoformat(),
        verdict=verdict, files=[file],
    )  # fmt: skip


SETS = [kept("a", 100), kept("fail", 95, verdict="FAIL"), kept("main", 91), kept("b", 50), kept("c", 1)]


@pytest.mark.parametrize(
    ("limits", "gone", "above"),
    [
        ({"older_than": timedelta(days=90)}, ["a"], 0),
        ({"older_than": timedelta(days=30)}, ["a", "b"], 0),
        ({"older_than": timedelta(days=365)}, [], 0),
        ({"larger_than": 50}, [], 0),
        ({"larger_than": 49}, ["a"], 0),
        ({"larger_than": 30}, ["a", "b"], 0),
        ({"larger_than": 5}, ["a", "b", "c"], 15),
        ({"older_than": timedelta(days=90), "larger_than": 35}, ["a", "b"], 0),
    ],
)
def test_expired_sets__by_age_and_size__oldest_first_without_those_that_are_needed(
    limits: dict[str, Any], gone: list[str], above: int
) -> None:
    expired, retained, larger_by = expired_sets(
        SETS, {"main"}, NOW, **{"older_than": None, "larger_than": None, **limits}
    )
    assert ([one.id for one in expired], retained, larger_by) == (gone, 2, above)


def test_expired_sets__kept_at_by_the_job_that_kept_it__not_by_the_clock_of_the_machine_that_measured() -> None:
    # The session of a machine whose clock began at 1970 is as old as the time it was kept says.
    assert expired_sets([kept("new", 1)], (), NOW, older_than=timedelta(days=30), larger_than=None)[0] == []
