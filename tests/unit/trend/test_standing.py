from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perfgate.document.history import Acceptance, Confirmation
from perfgate.document.trend import MOST_KNOWN, CommitLabel, KnownChange, TrendSeries, TrendState
from perfgate.judging.trend.find import with_changes
from perfgate.judging.trend.standing import gone, judged, state_of
from perfgate.judging.trend.triage import TriagedChanges
from tests.fakes.history import commit_of
from tests.fakes.trends import make_change, make_series, make_triage
from tests.unit.trend.test_find import START, noisy, series

GOOD, BAD = commit_of(29), commit_of(30)
NEWEST = (START.replace(month=7, day=10)).isoformat()


def stand(found: TrendSeries, **known: Any) -> TrendSeries:
    values: dict[str, Any] = {"confirmations": [], "accepted": [], "before": None, "newest": NEWEST}
    return judged(found, **{**values, "triaged": TriagedChanges([], []), **known})


def stood(found: TrendSeries, **known: Any) -> Any:
    judged_series = stand(found, **known)
    return judged_series.changes[0] if judged_series.changes else None


def confirmation(outcome: Any, low: float | None = None, high: float | None = None, **fields: Any) -> Confirmation:
    values = {"before": GOOD, "after": BAD, "workload": "encoder", "shape": "long", "metric": "latency.p50"}
    values |= {"fingerprint": "f" * 64, "confirmed_at": NEWEST}
    return Confirmation(outcome=outcome, low=low, high=high, **{**values, **fields})


def acceptance(metric: str = "latency.p50", commit: str = BAD) -> Acceptance:
    return Acceptance(commit=commit, metric=metric, reason="wanted", accepted_by="mei", accepted_at=NEWEST)


def slower() -> TrendSeries:
    return with_changes(series(noisy()))


@pytest.mark.parametrize(
    ("given", "evidence"),
    [
        (confirmation("regressed", 0.05, 0.09), "confirmed"),
        (confirmation("unchanged", -0.002, 0.004), "refuted"),
        (confirmation("improved", -0.05, -0.03), "refuted"),
        (confirmation("inconclusive", -0.01, 0.12), "suspected"),
        (confirmation("inconclusive", 0.002, 0.06), "confirmed"),
        (confirmation("inconclusive"), "suspected"),
        (confirmation("not_comparable"), "suspected"),
    ],
    ids=lambda value: f"{value.outcome}-{value.low}" if isinstance(value, Confirmation) else value,
)
def test_judged__measured_side_by_side__confirmed_refuted_or_suspected_still(given: Any, evidence: str) -> None:
    change = stood(slower(), confirmations=[given])
    assert change.evidence == evidence
    assert (change.standing == "refuted") is (evidence == "refuted")


def test_judged__confirmed_as_larger_than_suspected__each_number_keeps_its_own_interval() -> None:
    found = slower()
    change = stood(found, confirmations=[confirmation("regressed", 0.15, 0.19)])
    assert change.interval == found.changes[0].interval
    assert change.confirmation is not None
    assert (change.confirmation.low, change.confirmation.high) == (0.15, 0.19)


@pytest.mark.parametrize(
    "fields",
    [{"fingerprint": "e" * 64}, {"metric": "latency.p99"}, {"shape": "short"}, {"workload": "decoder"},
     {"before": commit_of(3)}, {"before": BAD, "after": GOOD}, {"after": "unheard of"}],
    ids=lambda fields: next(iter(fields)),
)  # fmt: skip
def test_judged__confirmation_of_something_else__stays_suspected(fields: Any) -> None:
    assert stood(slower(), confirmations=[confirmation("regressed", 0.05, 0.09, **fields)]).evidence == "suspected"


def test_judged__series_of_one_label__a_confirmation_of_the_whole_shape_is_not_about_it() -> None:
    labelled = msgspec.structs.replace(slower(), labels={"stage": "tokenise"})
    assert stood(labelled, confirmations=[confirmation("regressed", 0.05, 0.09)]).evidence == "suspected"


def test_judged__confirmation_of_commits_next_to_it__counts() -> None:
    near = confirmation("regressed", 0.05, 0.09, before=commit_of(28), after=commit_of(31))
    assert stood(slower(), confirmations=[near]).evidence == "confirmed"


@pytest.mark.parametrize("confirmations", [[], [confirmation("regressed", 0.05, 0.09)]], ids=["suspected", "confirmed"])
def test_judged__expected_before_it_moved_by_two_versions__accepted(confirmations: list[Confirmation]) -> None:
    found = slower()
    triaged = TriagedChanges([make_triage(commit=commit_of(28), state="expected")], [found])
    assert stood(found, triaged=triaged, confirmations=confirmations).standing == "accepted"


def test_judged__confirmation_of_the_change_before__is_about_that_one_alone() -> None:
    values = noisy(60, at=20)
    values[22:] /= 1.07
    changes = [make_change(20), make_change(22, direction="better", before=0.03852, after=0.036, delta=-0.065)]
    found = msgspec.structs.replace(series(values), changes=changes)
    measured = confirmation("regressed", 0.05, 0.09, before=commit_of(19), after=commit_of(20))
    assert [change.evidence for change in stand(found, confirmations=[measured]).changes] == ["confirmed", "suspected"]


def test_judged__bisection_of_a_counter_that_came_back_soon__the_return_has_no_culprit_of_it() -> None:
    changes = [
        make_change(20, evidence="exact", before=7.0, after=36.0),
        make_change(22, evidence="exact", direction="better", before=36.0, after=7.0),
    ]
    counter = make_series(*changes, metric="counters.framework_ops", kind="exact", unit="1")
    bisected = confirmation("regressed", before=commit_of(19), after=commit_of(20), culprit="c" * 40)
    bisected = msgspec.structs.replace(bisected, metric="counters.framework_ops")
    slower_by, back = stand(counter, confirmations=[bisected]).changes
    assert slower_by.confirmation == bisected
    assert back.confirmation is None


def test_judged__several_confirmations__the_newest_counts() -> None:
    old = confirmation("regressed", 0.05, 0.09, confirmed_at="2026-07-01T00:00:00+00:00")
    new = confirmation("unchanged", -0.001, 0.001, confirmed_at="2026-07-02T00:00:00+00:00")
    assert stood(slower(), confirmations=[new, old]).evidence == "refuted"


@pytest.mark.parametrize("metric", ["latency.p50", "latency.*", "latency.p50@encoder", "latency.p50@encoder/long"])
def test_judged__accepted_for_a_commit_of_the_change__accepted(metric: str) -> None:
    change = stood(slower(), accepted=[acceptance(metric)])
    assert (change.standing, change.accepted) == ("accepted", "mei: wanted")


@pytest.mark.parametrize(
    "given", [acceptance("latency.p99"), acceptance("latency.p50@encoder/short"), acceptance(commit=GOOD)]
)
def test_judged__accepted_elsewhere__not_accepted(given: Acceptance) -> None:
    assert stood(slower(), accepted=[given]).standing == "new"


def test_judged__accepted_for_a_commit_between_good_and_bad__accepted() -> None:
    found = slower()
    between = [CommitLabel(commit="d" * 40, subject="x")]
    found = msgspec.structs.replace(found, changes=[msgspec.structs.replace(found.changes[0], commits=between)])
    assert stood(found, accepted=[acceptance(commit="d" * 40)]).standing == "accepted"


def test_judged__level_back_again__resolved_by_the_commit_that_did_it() -> None:
    values = noisy(60, at=20)
    values[40:] /= 1.07
    change = stood(with_changes(series(values)))
    assert (change.standing, change.resolved_by) == ("resolved", commit_of(40))


def test_judged__the_return_was_refuted__not_resolved() -> None:
    values = noisy(60, at=20)
    values[40:] /= 1.07
    back = confirmation("unchanged", -0.001, 0.001, before=commit_of(39), after=commit_of(40))
    assert stood(with_changes(series(values)), confirmations=[back]).standing in ("new", "open")


def test_judged__back_and_slower_once_more__the_first_is_resolved_and_the_last_open() -> None:
    values = noisy(90, at=20)
    values[40:60] /= 1.07
    judged_series = stand(with_changes(series(values)), newest=NEWEST)
    first, _, last = judged_series.changes
    assert (first.standing, first.resolved_by) == ("resolved", commit_of(40))
    assert (last.direction, last.is_unsettled) == ("worse", True)


def test_judged__slower_back_slower_and_back__each_resolved_by_its_return() -> None:
    values = noisy(160, at=20)
    for start, end in ((40, 60), (80, 100), (120, 160)):
        values[start:end] /= 1.07
    slower_changes = stand(with_changes(series(values)), newest=NEWEST).changes[::2]
    returns = [(change.standing, change.resolved_by) for change in slower_changes]
    assert returns == [("resolved", commit_of(at)) for at in (40, 80, 120)]


def test_judged__told_last_week__open_and_no_news() -> None:
    before = state_of([stand(slower())], NEWEST)
    change = stood(slower(), before=before)
    assert (change.standing, change.news) == ("open", False)


def test_judged__told_at_a_neighbouring_commit__the_same_change() -> None:
    known = KnownChange(slower().key, commit_of(32)[:12], "worse", "new", "p50")
    change = stood(slower(), before=TrendState(newest=NEWEST, known=[known]))
    assert (change.standing, change.news) == ("open", False)


def test_judged__accepted_since_last_week__that_is_news() -> None:
    before = state_of([stand(slower())], NEWEST)
    change = stood(slower(), before=before, accepted=[acceptance()])
    assert (change.standing, change.news) == ("accepted", True)
    again = state_of([stand(slower(), accepted=[acceptance()], before=before)], NEWEST)
    assert stood(slower(), before=again, accepted=[acceptance()]).news is False


def test_judged__slower_long_before_the_first_report__new_and_told_once() -> None:
    newest = "2026-12-01T00:00:00+00:00"
    change = stood(slower(), newest=newest)
    assert (change.standing, change.news) == ("new", True)
    before = state_of([stand(slower(), newest=newest)], newest)
    assert stood(slower(), newest=newest, before=before).standing == "open"


def test_judged__faster_long_before_the_first_report__past_and_no_news() -> None:
    change = stood(with_changes(series(noisy(factor=0.9))), newest="2026-12-01T00:00:00+00:00")
    assert (change.direction, change.standing, change.news) == ("better", "open", False)


def test_gone__open_last_week_and_seen_no_more__named() -> None:
    found = slower()
    before = state_of([stand(found)], NEWEST)
    assert gone(before, [found]) == []
    assert gone(before, [with_changes(series(noisy(factor=1.0)))]) == ["latency.p50 · encoder/long"]
    assert gone(None, [found]) == []
    assert gone(before, []) == []  # not looked at this time
    assert gone(before, [msgspec.structs.replace(with_changes(series(noisy(factor=1.0))), current=False)]) == []


def test_state_of__very_many_changes__the_open_ones_are_kept() -> None:
    found = (with_changes(series(noisy(), workload=f"w{index}")) for index in range(MOST_KNOWN + 20))
    many = [stand(entry) for entry in found]
    refuted = stand(slower(), confirmations=[confirmation("unchanged", 0.0, 0.001)])
    state = state_of([refuted, *many], NEWEST)
    assert len(state.known) == MOST_KNOWN
    assert {known.standing for known in state.known} == {"new"}
