"""The content of main's pages: what a test does not name has a plausible value."""

from __future__ import annotations

from typing import Any

import msgspec

from perfgate.document.history import Acceptance, GateRecord, StoredRun, moment
from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendDocument
from perfgate.judging.trend.health import machine_runs
from tests.fakes.history import START, commit_of
from tests.fakes.trends import make_change, make_confirmation, make_series, make_trend


def make_stored(number: int, **fields: Any) -> StoredRun:
    """Return the nth run of main as a store lists it; its id begins with that of the trend's points."""
    began = START.isoformat()
    values: dict[str, Any] = {
        "id": f"{number:04x}" + "a" * 60,
        "project": "demo",
        "session": f"session{number}",
        "started_at": began,
        "recorded_at": began,
        "fingerprint": "f" * 64,
        "device_kind": "cpu",
        "commit": commit_of(number),
        "branch": "main",
        "subject": "Pool in a loop",
        "dirty": False,
        "workloads": ["encoder"],
    }
    return StoredRun(**{**values, **fields})


def make_acceptance(**fields: Any) -> Acceptance:
    values: dict[str, Any] = {
        "commit": commit_of(20),
        "metric": "latency.*@encoder/long",
        "reason": "the new layer costs this",
        "accepted_by": "Li Wei",
        "accepted_at": START.isoformat(),
    }
    return Acceptance(**{**values, **fields})


def make_gate(number: int, **fields: Any) -> GateRecord:
    """Return the verdict on a commit of the change request with this number."""
    values: dict[str, Any] = {
        "gate": "default",
        "commit": f"{number:040x}",
        "change": number,
        "verdict": "PASS",
        "judged_at": f"2026-11-{number:02}T10:00:00+00:00",
    }
    return GateRecord(**{**values, **fields})


def make_site(trend: TrendDocument | None = None, **fields: Any) -> SiteContent:
    """Return a site with one open regression of one workload."""
    values: dict[str, Any] = {
        "trend": trend or make_trend(make_series(make_change()), make_series(metric="latency.p99")),
        "runs": [make_stored(number) for number in reversed(range(30))],
        "devices": {"f" * 64: "AMD EPYC 7B13"},
        "acceptances": [make_acceptance()],
        "confirmations": [make_confirmation()],
    }
    content = SiteContent(**{**values, **fields})
    machines = machine_runs(content.runs, moment(content.trend.made_at))
    return msgspec.structs.replace(content, machines=machines)
