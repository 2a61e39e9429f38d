"""How main's own runs went: steps, failures, warnings, temperature, noise floor,
testbeds, runs per week.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta

import numpy as np

from perfgate.document.clocks import clock_notes
from perfgate.document.decision import TestbedDifference
from perfgate.document.history import StoredRun, moment
from perfgate.document.run import RunDocument
from perfgate.document.samples import Replicate, unpack
from perfgate.document.site import MachineRuns
from perfgate.document.trend import RunConditions, RunHealth, TestbedSpan
from perfgate.stats.summary import low_location

# Of several workloads the worst status counts; an unavailable measurement is worse than
# no finding.
_WORST = ("error", "invalid", "attention", "unavailable", "ok", "not_applicable")
_MOST_DIFFERENCES = 12
# The runs of the last weeks.
RECENT = timedelta(days=28)


def run_health(run_id: str, run: RunDocument, recorded_at: str) -> RunHealth:
    failed = [workload.name for workload in run.workloads if workload.error]
    failed += [
        f"{step.workload}: step {step.number}"
        for step in run.checklist.steps
        if step.status == "error"
    ]
    failed += [
        f"{check.workload}: output"
        for check in run.checklist.correctness
        if check.status in ("failed", "error")
    ]
    measured: set[tuple[str, str, int]] = set()
    for replicate in run.pairs.replicates:
        measured.add((replicate.workload, replicate.arm, replicate.pair))
    # The failed pairs are of jobs, too, whose turns are compared by quad.
    for turn in run.jobs.turns:
        measured.add((turn.workload, "ab", turn.quad))
    pairs = len(measured) + len(run.pairs.failed)
    shares_waited = [
        step.waited for step in run.checklist.steps if step.waited is not None
    ]
    return RunHealth(
        run_id=run_id,
        commit=run.source.commit,
        subject=run.source.subject,
        started_at=run.session.started_at,
        fingerprint=run.testbed.fingerprint,
        steps=_steps(run),
        failed=failed,
        warnings=[*run.warnings, *clock_notes(run, recorded_at)],
        conditions=RunConditions(
            noise_floor=_noise_floor(run.pairs.replicates),
            discarded=len(run.pairs.failed) / pairs if pairs else None,
            temperature=_highest(run, "thermal.temperature"),
            throttled=_highest(run, "thermal.throttled"),
            clock=min(_values(run, "thermal.clock"), default=None),
            queued=run.session.queued,
            waited=max(shares_waited, default=None),
        ),
    )


def spans_of_testbeds(
    runs: Iterable[StoredRun], comparable: Mapping[str, Mapping[str, str]]
) -> list[TestbedSpan]:
    """The testbeds in the order they were first measured on.

    ``runs`` are oldest first; ``comparable`` maps a fingerprint to its fields, for
    testbeds with a readable run.
    """
    by_testbed: dict[str, list[StoredRun]] = {}
    for run in runs:
        by_testbed.setdefault(run.fingerprint, []).append(run)
    spans: list[TestbedSpan] = []
    earlier: Mapping[str, str] | None = None
    for fingerprint, own in by_testbed.items():
        fields = comparable.get(fingerprint)
        spans.append(
            TestbedSpan(
                fingerprint=fingerprint,
                device_kind=own[-1].device_kind,
                first_seen=own[0].started_at,
                last_seen=own[-1].started_at,
                runs=len(own),
                differences=field_differences(earlier, fields),
            )
        )
        earlier = fields
    return spans


def machine_runs(runs: Iterable[StoredRun], now: datetime) -> dict[str, MachineRuns]:
    """The runs of each testbed, by its fingerprint."""
    recent: Counter[str] = Counter()
    ahead: dict[str, timedelta] = {}
    for run in runs:
        began = moment(run.started_at)
        recent[run.fingerprint] += now - began <= RECENT
        most = ahead.get(run.fingerprint, timedelta())
        ahead[run.fingerprint] = max(most, began - moment(run.recorded_at))
    machines: dict[str, MachineRuns] = {}
    for fingerprint, most in ahead.items():
        machines[fingerprint] = MachineRuns(
            recent=recent[fingerprint], seconds_ahead=most.total_seconds()
        )
    return machines


def weeks(starts: Iterable[str]) -> dict[str, int]:
    """How many runs began in each week, by its Monday, from the first to the last,
    weeks without a run too.
    """
    days = sorted(moment(start).date() for start in starts)
    if not days:
        return {}
    counted = Counter(map(_monday, days))
    numbers: dict[str, int] = {}
    monday = _monday(days[0])
    while monday <= days[-1]:
        numbers[monday.isoformat()] = counted[monday]
        monday += timedelta(weeks=1)
    return numbers


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _steps(run: RunDocument) -> dict[str, str]:
    statuses: dict[str, str] = {}
    for step in sorted(run.checklist.steps, key=lambda step: step.number):
        number = str(step.number)
        statuses[number] = min(
            statuses.get(number, step.status), step.status, key=_WORST.index
        )
    return statuses


def _highest(run: RunDocument, metric: str) -> float | None:
    return max(_values(run, metric), default=None)


def _values(run: RunDocument, metric: str) -> list[float]:
    values: list[float] = []
    for step in run.checklist.steps:
        for value in step.values:
            if value.metric == metric and value.value is not None:
                values.append(value.value)
    return values


def _noise_floor(replicates: Sequence[Replicate]) -> float | None:
    """The largest median distance of two members of an A/A pair, over all workloads and
    shapes.
    """
    lows: dict[tuple[str, str, int], dict[str, float]] = {}
    for replicate in replicates:
        if replicate.arm == "aa":
            for shape, blocks in replicate.shapes.items():
                low = low_location(
                    np.maximum(unpack(blocks.times.wall), 1).astype(np.float64)
                )
                lows.setdefault((replicate.workload, shape, replicate.pair), {})[
                    replicate.member
                ] = low
    distances: dict[tuple[str, str], list[float]] = {}
    for (workload, shape, _), members in lows.items():
        if len(members) == 2:
            distance = abs(math.log(members["second"] / members["first"]))
            distances.setdefault((workload, shape), []).append(distance)
    return max(map(statistics.median, distances.values()), default=None)


def field_differences(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None
) -> list[TestbedDifference]:
    if before is None or after is None:
        return []
    differences: list[TestbedDifference] = []
    for field in differing_fields(before, after)[:_MOST_DIFFERENCES]:
        differences.append(
            TestbedDifference(
                field=field, base=before.get(field), head=after.get(field)
            )
        )
    return differences


def differing_fields(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [
        field
        for field in sorted({*before, *after})
        if before.get(field) != after.get(field)
    ]
