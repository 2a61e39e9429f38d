"""A trend document as `perfgate trend` makes it: what a test does not name has a plausible value."""

from __future__ import annotations

from typing import Any

import msgspec

from perfgate.document.decision import TestbedDifference
from perfgate.document.history import Confirmation, GateHistory, GateRecord, Triage
from perfgate.document.trend import (
    BridgedMetric,
    CommitLabel,
    RunConditions,
    RunHealth,
    TestbedSpan,
    TrendChange,
    TrendDocument,
    TrendPoint,
    TrendSeries,
    Uplift,
)
from perfgate.judging.trend.causes import causes
from tests.fakes.history import START, commit_of
from tests.fakes.records import built

BEGAN = START.isoformat()


def make_change(at: int = 20, **fields: Any) -> TrendChange:
    """Return a call that got 7 % slower, new and suspected unless said otherwise."""
    values: dict[str, Any] = {
        "direction": "worse",
        "before": 0.036,
        "after": 0.03852,
        "delta": 0.07,
        "interval": (0.055, 0.085),
        "last_good": commit_of(at - 1),
        "first_bad": commit_of(at),
        "first_seen": BEGAN,
        "evidence": "suspected",
        "commits": [CommitLabel(commit=commit_of(at), subject="Pool in a loop")],
        "commit_count": 1,
    }
    return TrendChange(at=at, **{**values, **fields})


def make_testbed(fingerprint: str, **fields: Any) -> TestbedSpan:
    """Return a testbed that main was measured on for a day."""
    values: dict[str, Any] = {"device_kind": "cpu", "first_seen": BEGAN, "last_seen": BEGAN, "runs": 30}
    return TestbedSpan(fingerprint=fingerprint, **{**values, **fields})


def make_series(*changes: TrendChange, count: int = 30, **fields: Any) -> TrendSeries:
    """Return the P50 of ``encoder``/``long``."""
    values: dict[str, Any] = {
        "workload": "encoder",
        "shape": "long",
        "metric": "latency.p50",
        "unit": "s",
        "better": "lower",
        "kind": "noisy",
        "fingerprint": "f" * 64,
        "device_kind": "cpu",
        "noise": 0.012,
        "points": [
            TrendPoint(
                run_id=f"run{index}",
                commit=commit_of(index),
                started_at=BEGAN,
                value=0.036 + 0.0001 * (index * 7 % 5) + 0.0025 * any(index >= change.at for change in changes),
                interval=(0.0355, 0.0366),
            )
            for index in range(count)
        ],
    }
    return TrendSeries(changes=list(changes), **{**values, **fields})


def make_trend(*series: TrendSeries, **fields: Any) -> TrendDocument:
    """Return what was found in these series, with how one run went."""
    health = RunHealth(
        run_id="run29",
        commit=commit_of(29),
        subject="Pool in a loop",
        started_at=BEGAN,
        fingerprint="f" * 64,
        steps={"1": "ok", "4": "attention", "19": "unavailable"},
        conditions=RunConditions(temperature=61.0, throttled=0.0, noise_floor=0.009),
    )
    values: dict[str, Any] = {
        "perfgate_version": "0.1.0",
        "project": "demo",
        "made_at": BEGAN,
        "newest": BEGAN,
        "count": 30,
        "versions_needed": 8,
        "looked_at": len(series),
        "values": 30 * len(series),
        "new_values": 5 * len(series),
        "series": list(series),
        "causes": causes(series),
        "testbeds": [make_testbed("f" * 64)],
        "health": [health],
        "weeks": {"2026-05-04": 7, "2026-05-11": 0},
    }
    return built(TrendDocument, {**values, **fields})


def make_confirmation(outcome: Any = "regressed", **fields: Any) -> Confirmation:
    """Return what measuring the commits of ``make_change`` side by side gave."""
    values: dict[str, Any] = {
        "before": commit_of(19),
        "after": commit_of(20),
        "workload": "encoder",
        "shape": "long",
        "metric": "latency.p50",
        "low": 0.05,
        "high": 0.09,
        "fingerprint": "f" * 64,
        "confirmed_at": BEGAN,
    }
    return Confirmation(outcome=outcome, **{**values, **fields})


def make_triage(**fields: Any) -> Triage:
    """Return that mei has acknowledged the regression of ``make_change``."""
    values: dict[str, Any] = {
        "commit": commit_of(20),
        "state": "acknowledged",
        "reason": "waits for the new kernel",
        "author": "mei",
        "changed_at": BEGAN,
    }
    return Triage(**{**values, **fields})


def make_uplift(**fields: Any) -> Uplift:
    """Return an uplift of torch that made the calls of the first series slower."""
    slower = BridgedMetric(
        before=0, after=0, commits=[commit_of(9)], old=0.036, new=0.04, delta=0.11, interval=(0.07, 0.15), direction="worse",
        moved=True,
    )  # fmt: skip
    values: dict[str, Any] = {
        "before": "e" * 64,
        "after": "f" * 64,
        "since": BEGAN,
        "differences": [TestbedDifference(field="torch", base="2.13.0", head="2.14.0")],
        "commits": slower.commits,
        "last_commit": slower.commits[0],
        "moved": [slower],
        "unmoved": 8,
    }
    return Uplift(**{**values, **fields})


def make_gates(**gate: Any) -> GateHistory:
    """Return two gates, one of which failed on a commit that was merged."""
    triage, biased = gate.pop("triage", None), gate.pop("biased", [])
    values: dict[str, Any] = {"gate": "main", "commit": commit_of(7), "change": 412, "judged_at": BEGAN, **gate}
    return GateHistory(
        gates=2,
        failed=1,
        accepted=0,
        withdrawn=0,
        undecided=0,
        needed=20,
        proven=False,
        standing=[GateRecord(verdict="FAIL", **values)],
        triages=[msgspec.structs.replace(triage, commit=values["commit"])] if triage else [],
        biased=biased,
    )
