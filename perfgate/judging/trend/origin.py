"""The origin of a movement of main: its code, a changed benchmark, the host or its
environment, or noise, with the evidence.

Another origin than the code needs a sign of it, and an exact count or a measurement
side by side overrules all but a changed benchmark and changed packages: a regression
must not be lost to a guess.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from perfgate.document.run import RunDocument, WorkloadRecord
from perfgate.document.trend import (
    MovementOrigin,
    OriginEvidence,
    OriginSign,
    TrendCause,
    TrendChange,
    TrendSeries,
)
from perfgate.judging.trend.course import common_course
from perfgate.judging.trend.health import run_health
from perfgate.judging.trend.near import index_of
from perfgate.stats.changes import MIN_LAST, MIN_VALUES

# The versions before and after a movement in which another series is looked at, and the
# fewest of each.
_WINDOW, _FEWEST = 12, 3
# Another series did not move with this one if its shift is below this share of this
# one's.
_UNMOVED = 0.3
# Differences of two runs that show another state of the machine.
_CLOCK, _TEMPERATURE, _THROTTLED, _WAITED = 0.97, 10.0, 0.05, 0.1
# Noise is a movement that returns by itself within this many versions, or that is
# smaller than this multiple of the noise of a version and that no other metric of the
# place shows.
_SOON, _NOISES = 6, 3.0
_PlaceField = Literal["workload", "shape", "metric", "fingerprint"]


def with_origin(
    cause: TrendCause,
    series: Sequence[TrendSeries],
    documents: Mapping[str, RunDocument],
) -> TrendCause:
    """A cause with its origin, if the runs on both sides were opened."""
    movement = _Movement(cause, series, documents)
    signs: Sequence[tuple[MovementOrigin, Callable[[], list[OriginEvidence]]]] = (
        ("benchmark", movement.changed_workloads),
        ("host", movement.changed_packages),
        ("code", movement.proof),
        ("host", movement.state_of_machine),
        ("host", movement.other_machines),
        ("host", movement.other_workloads),
        ("noise", movement.noise),
    )
    for origin, find in signs:
        evidence = find()
        if evidence:
            return _with(cause, origin, evidence)
    if movement.good is None or movement.bad is None:
        return cause
    return _with(cause, "code", [OriginEvidence(sign="alone")])


def _with(
    cause: TrendCause, origin: MovementOrigin, evidence: Sequence[OriginEvidence]
) -> TrendCause:
    return msgspec.structs.replace(cause, origin=origin, origin_evidence=list(evidence))


class _Movement:
    """The changes of a cause, the leading one first, with the runs on both sides of it."""

    def __init__(
        self,
        cause: TrendCause,
        series: Sequence[TrendSeries],
        documents: Mapping[str, RunDocument],
    ) -> None:
        self._cause = cause
        self._all_series = series
        self._changes: list[tuple[TrendSeries, TrendChange]] = []
        for place in cause.changes:
            entry = series[place.series]
            if not entry.informing:
                self._changes.append((entry, entry.changes[place.change]))
        lead = cause.changes[0]
        self._lead, self._change = self._clearest() or (
            series[lead.series],
            series[lead.series].changes[lead.change],
        )
        before = self._lead.points[self._change.at - 1]
        after = self._lead.points[self._change.at]
        self.good = documents.get(before.run_id)
        self.bad = documents.get(after.run_id)

    def _clearest(self) -> tuple[TrendSeries, TrendChange] | None:
        """The change that is the largest for its noise, of the times if there is one."""
        times = [
            entry for entry in self._changes if not entry[0].is_exact
        ] or self._changes
        return max(
            times,
            key=lambda entry: abs(entry[1].delta or 1.0) / (entry[0].noise or 1.0),
            default=None,
        )

    def changed_workloads(self) -> list[OriginEvidence]:
        """The workloads whose file, batch or shapes changed; empty unless every
        workload that moved is among them.
        """
        if self.good is None or self.bad is None:
            return []
        before = {
            workload.name: _definition(workload) for workload in self.good.workloads
        }
        after = {
            workload.name: _definition(workload) for workload in self.bad.workloads
        }
        evidence: list[OriginEvidence] = []
        for name in sorted({entry.workload for entry, _ in self._changes}):
            if name not in before or name not in after or before[name] == after[name]:
                return []
            evidence.append(OriginEvidence(sign="workload_changed", name=name))
        return evidence

    def changed_packages(self) -> list[OriginEvidence]:
        evidence: list[OriginEvidence] = []
        for difference in self._cause.differences:
            before, after = difference.base or "", difference.head or ""
            evidence.append(
                OriginEvidence(
                    sign="packages", name=difference.field, before=before, after=after
                )
            )
        return evidence

    def proof(self) -> list[OriginEvidence]:
        """The exact counts that changed, and measurements side by side."""
        signs: dict[OriginSign, OriginEvidence] = {}
        for entry, change in self._changes:
            if change.evidence == "exact":
                before, after = f"{change.before:g}", f"{change.after:g}"
                signs.setdefault(
                    "exact_counts",
                    OriginEvidence(
                        sign="exact_counts",
                        name=entry.metric,
                        before=before,
                        after=after,
                    ),
                )
            elif change.evidence == "confirmed":
                signs.setdefault(
                    "confirmed", OriginEvidence(sign="confirmed", name=entry.metric)
                )
            if change.confirmation is not None and change.confirmation.culprit:
                culprit = change.confirmation.culprit
                signs.setdefault(
                    "bisected", OriginEvidence(sign="bisected", name=culprit[:10])
                )
        return list(signs.values())

    def state_of_machine(self) -> list[OriginEvidence]:
        """The signs that the machine was slower, in the runs on both sides of a
        movement for the worse.
        """
        if self.good is None or self.bad is None or self._change.direction != "worse":
            return []
        before = run_health("", self.good, self.good.session.started_at).conditions
        after = run_health("", self.bad, self.bad.session.started_at).conditions
        evidence: list[OriginEvidence] = []
        if before.clock and after.clock and after.clock < before.clock * _CLOCK:
            evidence.append(_numbers("clock", before.clock, after.clock))
        if (
            before.temperature
            and after.temperature
            and after.temperature >= before.temperature + _TEMPERATURE
        ):
            evidence.append(
                _numbers("temperature", before.temperature, after.temperature)
            )
        if (
            after.throttled is not None
            and after.throttled >= (before.throttled or 0.0) + _THROTTLED
        ):
            evidence.append(
                _numbers("throttled", before.throttled or 0.0, after.throttled)
            )
        if (
            after.waited is not None
            and after.waited >= (before.waited or 0.0) + _WAITED
        ):
            evidence.append(_numbers("waited", before.waited or 0.0, after.waited))
        return evidence

    def other_machines(self) -> list[OriginEvidence]:
        """The other machines on which the same metric did not move at this commit."""
        unmoved: list[OriginEvidence] = []
        for entry in self._beside("fingerprint"):
            share = self._share_of(entry)
            if (
                entry.device_kind == self._lead.device_kind
                and share is not None
                and share < _UNMOVED
            ):
                unmoved.append(
                    OriginEvidence(sign="other_machine", name=entry.fingerprint)
                )
        return unmoved

    def other_workloads(self) -> list[OriginEvidence]:
        """Whether all other workloads of the machine moved alike, in one step or little
        by little.
        """
        if self._lead.is_exact or not self._lead.noise:
            return []
        workloads = self._least_noisy_shapes()
        own = workloads.pop(self._lead.workload)
        alike = 0
        for shapes in workloads.values():
            course = common_course(self._lead, self._change, own, shapes)
            if course == "other":
                return []
            alike += course == "alike"
        return (
            [OriginEvidence(sign="all_workloads", name=str(alike + 1))] if alike else []
        )

    def _least_noisy_shapes(self) -> dict[str, list[TrendSeries]]:
        """The shapes of each workload of the machine, each with its metric of least
        noise.
        """
        least: dict[tuple[str, str], TrendSeries] = {}
        for entry in self._all_series:
            is_of_machine = entry.fingerprint == self._lead.fingerprint
            if is_of_machine and entry.unit == self._lead.unit and entry.noise:
                place = entry.workload, entry.shape
                best = least.setdefault(place, entry)
                if entry.noise < (best.noise or math.inf):
                    least[place] = entry
        shapes: dict[str, list[TrendSeries]] = {}
        for (workload, _), entry in least.items():
            shapes.setdefault(workload, []).append(entry)
        return shapes

    def noise(self) -> list[OriginEvidence]:
        """The signs that nothing moved: refuted side by side, back soon without a
        revert, or seen in one place alone.
        """
        if self._cause.standing == "refuted":
            return [OriginEvidence(sign="refuted")]
        change, noise = self._change, self._lead.noise
        if self._lead.is_exact or change.delta is None or not noise:
            return []
        if change.resolved_by and not change.carried:
            back = index_of(self._lead, change.resolved_by)
            if (
                back is not None
                and back - change.at <= _SOON
                and not _is_revert(self._lead, change.resolved_by)
            ):
                return [OriginEvidence(sign="returned", after=change.resolved_by)]
        if self._is_new_in_one_shape():
            return [OriginEvidence(sign="one_shape", name=self._lead.shape)]
        if abs(math.log1p(change.delta)) < _NOISES * noise and self._is_in_one_metric():
            return [OriginEvidence(sign="one_metric", name=self._lead.metric)]
        return []

    def _is_in_one_metric(self) -> bool:
        """Whether no other time of the same workload and shape shows the shift."""
        siblings = [
            entry for entry in self._beside("metric") if entry.unit == self._lead.unit
        ]
        shares = [share for share in map(self._share_of, siblings) if share is not None]
        return bool(shares) and max(shares) < _UNMOVED

    def _is_new_in_one_shape(self) -> bool:
        """Whether the last few versions of this shape are slower and not all of them
        are in the workload's other shapes.

        Two wild values in a row look like a level that has just begun, and another
        shape may have one of its own.
        """
        if len(self._lead.points) - self._change.at >= MIN_VALUES:
            return False
        beside = self._beside("shape")
        least = [
            min(self._shares_of(entry, fewest=MIN_LAST), default=math.inf)
            for entry in beside
        ]
        return bool(least) and max(least) < _UNMOVED

    def _beside(self, field: _PlaceField) -> list[TrendSeries]:
        """The series that differ from the leading one in this field alone."""
        beside: list[TrendSeries] = []
        for entry in self._all_series:
            differing = [
                name
                for name in get_args(_PlaceField)
                if getattr(entry, name) != getattr(self._lead, name)
            ]
            if differing == [field]:
                beside.append(entry)
        return beside

    def _share_of(self, entry: TrendSeries) -> float | None:
        """The share of this movement's shift that another series shows at the same
        commit; None with too few versions.
        """
        shares = self._shares_of(entry, fewest=_FEWEST)
        return statistics.median(shares) if shares else None

    def _shares_of(self, entry: TrendSeries, *, fewest: int) -> list[float]:
        """The shares of this movement's shift in the versions of another series from
        the same commit on.

        Empty with fewer than ``fewest`` versions on either side.
        """
        at = index_of(entry, self._change.first_bad or "")
        if at is None or entry.is_exact or not self._change.delta:
            return []
        start, end = max(0, at - _WINDOW), at + _WINDOW
        for change in entry.changes:
            if change.at <= at - fewest:
                start = max(start, change.at)
            elif change.at >= at + fewest:
                end = min(end, change.at)
        before = [point.value for point in entry.points[start:at]]
        after = [point.value for point in entry.points[at:end]]
        if min(len(before), len(after)) < fewest or min(*before, *after) <= 0:
            return []
        level, shift = statistics.median(before), math.log1p(self._change.delta)
        return [math.log(value / level) / shift for value in after]


def _definition(workload: WorkloadRecord) -> tuple[str, int, list[str]]:
    return workload.sha256, workload.batch, workload.shapes


def _numbers(sign: OriginSign, before: float, after: float) -> OriginEvidence:
    return OriginEvidence(sign=sign, before=f"{before:.3g}", after=f"{after:.3g}")


def _is_revert(series: TrendSeries, commit: str) -> bool:
    for change in series.changes:
        if change.first_bad == commit:
            return any("revert" in label.subject.lower() for label in change.commits)
    return False
