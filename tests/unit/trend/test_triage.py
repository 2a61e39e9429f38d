"""Which regressions of main a person's word is about, and what their histories say to it."""

from __future__ import annotations

from datetime import date
from typing import Any

import msgspec
import pytest

from perfgate.document.history import Acceptance, Triage
from perfgate.document.trend import CommitLabel, TrendCause, TrendSeries
from perfgate.judging.trend.causes import causes
from perfgate.judging.trend.triage import TriagedChanges, expired, meant, with_triage
from tests.fakes.history import START, commit_of
from tests.fakes.trends import make_change, make_series, make_triage

BEFORE, AFTER = "2026-05-01T00:00:00+00:00", "2026-05-20T00:00:00+00:00"


def found(*triages: Triage, series: TrendSeries | None = None, **cause: Any) -> TrendCause:
    """The cause of a series, which got slower at commit 20, with its triage."""
    entries = [series or make_series(make_change())]
    (first, *_) = causes(entries)
    return with_triage(msgspec.structs.replace(first, **cause), entries, TriagedChanges(triages, entries))


def test_triage__of_the_first_bad_commit__is_the_regressions() -> None:
    assert found(make_triage()).triage == make_triage()
    assert found(make_triage(commit=commit_of(12))).triage is None
    assert found().triage is None


def test_triage__of_a_candidate_commit__is_the_regressions() -> None:
    several = make_change(commits=[CommitLabel(commit="d" * 40, subject="x")], commit_count=2)
    assert found(make_triage(commit="d" * 40), series=make_series(several)).triage is not None


@pytest.mark.parametrize(("commit", "is_its"), [(18, True), (23, True), (24, False)])
def test_triage__of_a_commit_that_the_change_has_moved_from__stays_with_it(commit: int, is_its: bool) -> None:
    assert (found(make_triage(commit=commit_of(commit))).triage is not None) is is_its


def test_triage__of_a_commit_that_another_change_names__is_not_that_of_its_neighbour() -> None:
    entries = [make_series(make_change(20)), make_series(make_change(22), metric="latency.p99")]
    triaged = TriagedChanges([make_triage(commit=commit_of(22))], entries)
    assert [triaged.of(entry.changes[0], entry) is not None for entry in entries] == [False, True]


def test_triage__of_an_improvement__is_none() -> None:
    assert found(make_triage(), series=make_series(make_change(direction="better"))).triage is None


def test_triage__several__the_newest_counts() -> None:
    older = make_triage(state="fixed", changed_at=BEFORE)
    assert found(older, make_triage(changed_at=AFTER)).triage == make_triage(changed_at=AFTER)


@pytest.mark.parametrize(
    ("state", "cause", "suggests"),
    [
        ("acknowledged", {"standing": "resolved"}, "fixed"),
        ("fixed", {"standing": "resolved"}, None),
        (None, {"standing": "resolved", "news": True}, "fixed"),
        (None, {"standing": "resolved", "news": False}, None),
        ("acknowledged", {"standing": "open"}, None),
        ("fixed", {"standing": "open"}, "new"),
        ("new", {"standing": "open"}, None),
    ],
)
def test_suggests__level_that_is_back_or_not__what_the_histories_show(state: Any, cause: Any, suggests: Any) -> None:
    given = [make_triage(state=state, changed_at=BEFORE)] if state else []
    assert found(*given, **cause).suggests == suggests


def test_suggests__fixed_and_not_measured_since__nothing_yet() -> None:
    assert found(make_triage(state="fixed", changed_at=AFTER), standing="open").suggests is None


def acceptance(until: str | None, commit: str = "a" * 40) -> Acceptance:
    return Acceptance(
        commit=commit, metric="latency.*", reason="meant", accepted_by="mei", accepted_at=BEFORE, until=until
    )


def test_meant__acceptances_that_count_and_expected_regressions() -> None:
    counting = [acceptance(None), acceptance("2026-06-01")]
    found = meant(
        [*counting, acceptance("2026-05-31")],
        [make_triage(state="expected"), make_triage(state="fixed")],
        date(2026, 6, 1),
    )
    assert found[:2] == counting
    assert [(one.commit, one.metric, one.accepted_by) for one in found[2:]] == [(commit_of(20), "*", "mei")]


def test_expired__acceptances__of_late_and_those_whose_regression_is_open() -> None:
    today = date(2026, 8, 1)
    late, long_ago, still = acceptance("2026-07-20"), acceptance("2026-02-01"), acceptance("2026-02-01", commit_of(20))
    open_causes = causes([make_series(make_change(standing="open"))])
    assert expired([acceptance("2026-08-01"), late, long_ago, still], open_causes, today) == [late, still]


@pytest.mark.parametrize("until", ["2026-02-30", "tomorrow", "20260201"])
def test_acceptance__until_a_day_that_is_none__refused_where_it_comes_from(until: str) -> None:
    data = {**msgspec.to_builtins(acceptance(None)), "until": until}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, Acceptance)


def test_triage__changed_at_no_time__refused_where_it_comes_from() -> None:
    with pytest.raises(msgspec.ValidationError, match="Invalid isoformat string"):
        msgspec.convert({**msgspec.to_builtins(make_triage()), "changed_at": "yesterday"}, Triage)
    assert make_triage().changed_at == START.isoformat()
