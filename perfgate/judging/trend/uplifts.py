"""Uplifts: a new testbed in place of an old one, as one event, with its effect where
one commit was measured on both; and the packages that changed between two runs of one
testbed.

A series ends with its testbed, because times of two testbeds do not compare. A commit
that was measured on both is the same code on both sides, so it joins them: every metric
of it shows what the new software or machine changed. Both sides are single runs of
different days, so the interval assumes one version for each commit on both, with the
noise of the series: exp(mean(ln after - ln before) ± 1.96 s sqrt(1/k)), s² = noise²
(1/runs before + 1/runs after).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
import numpy as np
from scipy.special import ndtri

from perfgate.catalogue.lookup import metric
from perfgate.document.history import moment
from perfgate.document.run import RunDocument
from perfgate.document.trend import (
    BridgedMetric,
    TestbedSpan,
    TrendCause,
    TrendPoint,
    TrendSeries,
    Uplift,
)
from perfgate.judging.trend.find import direction_of, noise_of
from perfgate.judging.trend.health import differing_fields, field_differences

# If both testbeds are in use for longer, they are two machines and no uplift.
OVERLAP = timedelta(weeks=1)
# The field of the container image among the differences; no package has such a name.
IMAGE = "container image"
# Within this a metric without a tolerance counts as the same.
_SAME = 0.05
# The probability that chance alone shows a metric of an uplift as moved.
FALSE_ALARMS = 0.05
_Z95 = 1.96
_Place = tuple[str, str, str, tuple[tuple[str, str], ...]]


def uplifts(
    spans: Sequence[TestbedSpan],
    comparable: Mapping[str, Mapping[str, str]],
    series: Sequence[TrendSeries],
) -> list[Uplift]:
    """The uplifts, newest first; ``comparable`` has the fields of the testbeds with a
    readable run.
    """
    newest_last: list[Uplift] = []
    for number, after in enumerate(spans):
        before = _predecessor(after, spans[:number], comparable)
        if before is not None:
            newest_last.append(_uplift(before, after, comparable, series))
    return newest_last[::-1]


def with_differences(
    cause: TrendCause,
    series: Sequence[TrendSeries],
    documents: Mapping[str, RunDocument],
) -> TrendCause:
    """A cause with the packages and the container image that differ between its runs,
    if both were opened.
    """
    entry = series[cause.changes[0].series]
    at = entry.changes[cause.changes[0].change].at
    before = _stack(documents.get(entry.points[at - 1].run_id))
    after = _stack(documents.get(entry.points[at].run_id))
    return msgspec.structs.replace(cause, differences=field_differences(before, after))


def _stack(run: RunDocument | None) -> dict[str, str] | None:
    """The versions of a run's packages, and its container image."""
    if run is None or run.testbed.environment is None:
        return None
    stack = dict(run.testbed.environment.packages)
    if run.testbed.environment.image:
        stack[IMAGE] = run.testbed.environment.image
    return stack


def _predecessor(
    after: TestbedSpan,
    earlier: Sequence[TestbedSpan],
    comparable: Mapping[str, Mapping[str, str]],
) -> TestbedSpan | None:
    """The testbed that a later one replaced: it ended around the later one's start,
    with the fewest differences.
    """
    if after.fingerprint not in comparable:
        return None
    latest_end = moment(after.first_seen) + OVERLAP

    def has_ended(span: TestbedSpan) -> bool:
        end = moment(span.last_seen)
        return end <= latest_end and end < moment(after.last_seen)

    ended = []
    for span in earlier:
        is_alike = (
            span.device_kind == after.device_kind and span.fingerprint in comparable
        )
        if is_alike and has_ended(span):
            ended.append(span)

    def distance(span: TestbedSpan) -> tuple[int, float]:
        differing = differing_fields(
            comparable[span.fingerprint], comparable[after.fingerprint]
        )
        return len(differing), -moment(span.last_seen).timestamp()

    return min(ended, key=distance, default=None)


def _uplift(
    before: TestbedSpan,
    after: TestbedSpan,
    comparable: Mapping[str, Mapping[str, str]],
    series: Sequence[TrendSeries],
) -> Uplift:
    bridged = _bridged(before, after, series)
    widening = _widening(bridged)
    moved: list[BridgedMetric] = []
    commits: set[str] = set()
    unmoved = 0
    for entry in bridged:
        commits.update(entry.commits)
        if _has_moved(entry, widening):
            moved.append(msgspec.structs.replace(entry, moved=True))
        elif _has_stayed(entry, widening, series):
            unmoved += 1
    moved.sort(key=lambda entry: (entry.direction != "worse", -abs(entry.delta or 1.0)))
    return Uplift(
        before=before.fingerprint,
        after=after.fingerprint,
        since=after.first_seen,
        differences=field_differences(
            comparable[before.fingerprint], comparable[after.fingerprint]
        ),
        last_commit=_last_commit(before, series),
        commits=sorted(commits),
        moved=moved,
        unmoved=unmoved,
        undecided=len(bridged) - len(moved) - unmoved,
    )


def _widening(bridged: Sequence[BridgedMetric]) -> float:
    """The factor for the intervals at which chance shows any metric of one uplift in
    twenty as moved.

    Source: Bonferroni's bound over the noisy metrics.
    """
    noisy = [entry for entry in bridged if entry.interval is not None]
    return float(ndtri(1 - FALSE_ALARMS / 2 / max(len(noisy), 1))) / _Z95


def _has_moved(entry: BridgedMetric, widening: float) -> bool:
    if entry.interval is None:
        return entry.old != entry.new
    low, high = _widened(entry.interval, widening)
    return low > 0 or high < 0


def _has_stayed(
    entry: BridgedMetric, widening: float, series: Sequence[TrendSeries]
) -> bool:
    """Whether the metric is shown to be the same within its tolerance. A noisy metric
    may be neither.
    """
    if entry.interval is None:
        return entry.old == entry.new
    tolerance = metric(series[entry.after].metric).gate.tolerance
    if tolerance is None:
        tolerance = _SAME
    margin = math.log1p(tolerance)
    low, high = _widened(entry.interval, widening)
    return low <= 0 <= high and -margin < low and high < margin


def _widened(interval: tuple[float, float], widening: float) -> tuple[float, float]:
    """The logarithms of the ends of a wider interval around the same middle."""
    low, high = math.log1p(interval[0]), math.log1p(interval[1])
    middle, half = (low + high) / 2, widening * (high - low) / 2
    return middle - half, middle + half


def _bridged(
    before: TestbedSpan, after: TestbedSpan, series: Sequence[TrendSeries]
) -> list[BridgedMetric]:
    """The metrics with a value of one commit on both testbeds."""
    earlier: dict[_Place, int] = {}
    for index, entry in enumerate(series):
        if entry.fingerprint == before.fingerprint:
            earlier[_place(entry)] = index
    bridged: list[BridgedMetric] = []
    for index, entry in enumerate(series):
        if entry.fingerprint == after.fingerprint and _place(entry) in earlier:
            bridge = _bridge(series, earlier[_place(entry)], index)
            if bridge is not None:
                bridged.append(bridge)
    return bridged


def _bridge(
    series: Sequence[TrendSeries], start: int, end: int
) -> BridgedMetric | None:
    old, new = series[start], series[end]
    by_commit = {point.commit: point for point in old.points}
    pairs: list[tuple[TrendPoint, TrendPoint]] = []
    for point in new.points:
        if point.commit and point.commit in by_commit:
            pairs.append((by_commit[point.commit], point))
    if not pairs:
        return None
    first, second = pairs[-1][0].value, pairs[-1][1].value
    delta, interval = None, None
    if not new.is_exact:
        # A difference without an interval proves no change.
        if (effect := _effect(old, new, pairs)) is None:
            return None
        delta, interval = effect
    elif first:
        delta = second / first - 1
    return BridgedMetric(
        before=start,
        after=end,
        commits=[str(point.commit) for _, point in pairs],
        old=first,
        new=second,
        delta=delta,
        interval=interval,
        direction=direction_of(new, second - first),
    )


def _effect(
    before: TrendSeries,
    after: TrendSeries,
    pairs: Sequence[tuple[TrendPoint, TrendPoint]],
) -> tuple[float, tuple[float, float]] | None:
    """The relative change over all pairs and its interval; None for unknown noise, or
    values that have no logarithm.
    """
    noises = [
        noise for noise in (noise_of(before), noise_of(after)) if noise is not None
    ]
    if not noises:
        return None
    effects, variance = [], 0.0
    for old, new in pairs:
        if old.value <= 0 or new.value <= 0:
            return None
        effects.append(math.log(new.value / old.value))
        variance += max(noises) ** 2 * (1 / old.runs + 1 / new.runs)
    middle, half = float(np.mean(effects)), _Z95 * math.sqrt(variance) / len(pairs)
    return math.expm1(middle), (math.expm1(middle - half), math.expm1(middle + half))


def _last_commit(before: TestbedSpan, series: Sequence[TrendSeries]) -> str | None:
    """The newest commit on the old testbed: measuring it on the new testbed joins both."""
    newest: list[TrendPoint] = []
    for entry in series:
        if (
            entry.fingerprint == before.fingerprint
            and entry.points
            and entry.points[-1].commit
        ):
            newest.append(entry.points[-1])
    if not newest:
        return None
    return max(newest, key=lambda point: moment(point.started_at)).commit


def _place(series: TrendSeries) -> _Place:
    return (
        series.workload,
        series.shape,
        series.metric,
        tuple(sorted(series.labels.items())),
    )
