"""A run document as rows: what is looked up without opening the document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from perfgate.document.history import moment
from perfgate.document.run import RunDocument
from perfgate.errors import StoreError


def run_row(run: RunDocument) -> dict[str, Any]:
    """The columns of a run, without its id, its document and when it was recorded."""
    return {
        "project": run.project,
        "session": run.session.id,
        "started": started(run),
        "started_at": run.session.started_at,
        "fingerprint": run.testbed.fingerprint,
        "device_kind": run.testbed.device_kind,
        "commit_id": run.source.commit,
        "branch": run.source.branch,
        "subject": run.source.subject,
        "dirty": run.source.dirty,
        "workloads": json.dumps([workload.name for workload in run.workloads]),
    }


def value_rows(run: RunDocument) -> list[dict[str, Any]]:
    """Every available value and counter of a run, one row a workload, shape, metric and further labels."""
    rows: dict[tuple[str, str, str, str], float] = {}
    for key, value in (*_step_values(run), *_counters(run)):
        rows.setdefault(key, value)
    names = ("workload", "shape", "metric", "labels")
    return [{**dict(zip(names, key)), "value": value} for key, value in rows.items()]


def labels_text(labels: Mapping[str, str]) -> str:
    rest = {key: value for key, value in labels.items() if key != "shape"}
    return json.dumps(rest, sort_keys=True) if rest else ""


def started(run: RunDocument) -> float:
    """When the session started, in seconds since 1970. Raises StoreError when the document does not say it."""
    text = run.session.started_at
    try:
        return moment(text).timestamp()
    except (ValueError, OverflowError) as error:
        raise StoreError(
            f"the run says it started at {text[:80]!a}, which is no ISO 8601 time; measure again"
        ) from error


def _step_values(run: RunDocument) -> Iterator[tuple[tuple[str, str, str, str], float]]:
    for step in run.steps:
        for value in step.values:
            if value.value is not None:
                shape = value.labels.get("shape", "")
                yield (step.workload, shape, value.metric, labels_text(value.labels)), value.value


def _counters(run: RunDocument) -> Iterator[tuple[tuple[str, str, str, str], float]]:
    for counters in run.counters:
        for metric, count in counters.values.items():
            if metric not in counters.unstable:
                yield (counters.workload, counters.shape, metric, ""), float(count)
