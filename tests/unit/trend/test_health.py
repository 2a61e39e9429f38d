from __future__ import annotations

import msgspec
import pytest

from perfgate.document.history import StoredRun
from perfgate.document.job import Turn
from perfgate.document.message import quote
from perfgate.document.run import ErrorDetail, FailedPair
from perfgate.judging.trend.health import run_health, spans_of_testbeds, weeks
from tests.fakes.documents import make_run, run_steps
from tests.fakes.history import main_runs

LATER = "2030-01-01T00:00:00Z"


def test_run_health__run_of_main__steps_failures_heat() -> None:
    runs = main_runs(3, failing=[1])
    failing = msgspec.structs.replace(runs[1], session=msgspec.structs.replace(runs[1].session, queued=700.0))
    good, failed = run_health("a", runs[0], LATER), run_health("b", failing, LATER)
    assert good.steps == {"1": "ok", "2": "ok", "3": "not_applicable", "4": "attention", "5": "ok", "19": "ok"}
    assert (good.failed, good.conditions.noise_floor, good.conditions.discarded) == ([], None, None)
    assert failed.steps["4"] == "error"
    assert failed.failed == ["encoder: step 4"]
    assert failed.conditions.temperature is not None
    assert failed.conditions.temperature > 75
    assert failed.conditions.throttled == pytest.approx(0.12)
    assert (good.conditions.queued, failed.conditions.queued) == (None, 700.0)
    assert failed.warnings == [quote("the machine was busy: load 7.2 on 2 CPUs")]


def test_run_health__several_workloads__the_worst_status_counts() -> None:
    steps = run_steps()
    other = [type(step)(number=step.number, slug=step.slug, workload="other", status="unavailable") for step in steps]
    found = run_health("a", make_run(None, steps=[*steps, *other], replicates=[]), LATER)
    assert found.steps == {
        "1": "unavailable",
        "2": "unavailable",
        "3": "unavailable",
        "4": "attention",
        "5": "unavailable",
    }


def test_run_health__run_with_pairs__its_noise_floor_and_what_was_discarded() -> None:
    error = ErrorDetail(kind="timeout", message="too long")
    lost = [FailedPair(pair=90 + number, arm="ab", workload="encoder", error=error) for number in range(7)]
    found = run_health("a", make_run("base", failed=lost), LATER)
    assert found.conditions.noise_floor == pytest.approx(0.004, abs=0.004)
    assert found.conditions.discarded == pytest.approx(0.25)


def test_run_health__job_that_failed_after_some_turns__the_turns_before_were_not_discarded() -> None:
    error = ErrorDetail(kind="timeout", message="too long")
    turns = [Turn(workload="bench", start=0, quad=quad, place=0, values={}, seconds=1.0) for quad in range(9)]
    lost = FailedPair(pair=9, arm="ab", workload="bench", error=error)
    found = run_health("a", make_run(None, turns=turns, failed=[lost], replicates=[]), LATER)
    assert found.conditions.discarded == pytest.approx(0.1)


def stored(started_at: str, fingerprint: str) -> StoredRun:
    return StoredRun(
        id=started_at,
        project="shop",
        session=started_at,
        started_at=started_at,
        recorded_at=started_at,
        fingerprint=fingerprint,
        device_kind="cpu",
        commit=None,
        branch=None,
        subject=None,
        dirty=False,
        workloads=[],
    )


def test_spans__another_torch__a_new_testbed_that_says_what_differs() -> None:
    days = ("2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z", "2026-06-03T00:00:00Z")
    runs = [stored(day, testbed) for day, testbed in zip(days, "aab")]
    before, after = spans_of_testbeds(runs, {"a": {"torch": "2.12", "os": "x"}, "b": {"torch": "2.13", "os": "x"}})
    assert (before.runs, before.first_seen, before.last_seen, before.differences) == (2, days[0], days[1], [])
    assert [(one.field, one.base, one.head) for one in after.differences] == [("torch", "2.12", "2.13")]


def test_weeks__starts_with_a_week_between__that_week_has_none() -> None:
    found = weeks(["2026-06-03T00:00:00Z", "2026-06-07T23:00:00+00:00", "2026-06-15T08:00:00Z"])
    assert list(found.items()) == [("2026-06-01", 2), ("2026-06-08", 0), ("2026-06-15", 1)]
    assert weeks([]) == {}
