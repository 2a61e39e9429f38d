"""The content of a project's pages with its runs and points in columns.

A project has up to hundreds of thousands of both. In columns they take a fifth of the
space, and a page makes records only of those that it shows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeVar, overload

import msgspec

from perfgate.document.history import StoredRun
from perfgate.document.records import FrozenStruct
from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendPoint, TrendSeries

# The types of an array: positions and counts, and values.
_WHOLE: Final = "I"
_REAL: Final = "d"
Item = TypeVar("Item")


class RunGroup(FrozenStruct, array_like=True):
    """What many runs have in common."""

    project: str
    fingerprint: str
    device_kind: str
    branch: str | None
    dirty: bool
    workloads: tuple[str, ...]
    author: str | None


class RunColumns(FrozenStruct, array_like=True):
    """The fields of runs; ``group_of`` is an array with the place of each run's group
    in ``groups``.
    """

    groups: list[RunGroup]
    group_of: bytes
    ids: list[str]
    sessions: list[str]
    started_at: list[str]
    recorded_at: list[str]
    commits: list[str | None]
    subjects: list[str | None]


class PointColumns(FrozenStruct, array_like=True):
    """The fields of points, as arrays: the position of each point's run, its value, and
    how many runs it is the median of.

    ``intervals`` are those that are known, by the place of the point.
    """

    runs_at: bytes
    values: bytes
    counts: bytes
    intervals: dict[int, tuple[float | None, float | None]]


class _Records(Sequence[Item]):
    """Records that are made when they are asked for."""

    def _at(self, place: int) -> Item:
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> list[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | list[Item]:
        places = range(len(self))[place]
        if isinstance(places, int):
            return self._at(places)
        return [self._at(each) for each in places]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class RunsInColumns(_Records[StoredRun]):
    """The runs of a project."""

    def __init__(self, columns: RunColumns) -> None:
        self.columns = columns
        self._group_of = memoryview(columns.group_of).cast(_WHOLE)

    @cached_property
    def by_commit(self) -> Mapping[str | None, int]:
        """The place of the first run of each commit."""
        places: dict[str | None, int] = {}
        for place, commit in enumerate(self.columns.commits):
            places.setdefault(commit, place)
        return places

    def __len__(self) -> int:
        return len(self.columns.ids)

    def _at(self, place: int) -> StoredRun:
        columns = self.columns
        group = columns.groups[self._group_of[place]]
        return StoredRun(
            id=columns.ids[place],
            project=group.project,
            session=columns.sessions[place],
            started_at=columns.started_at[place],
            recorded_at=columns.recorded_at[place],
            fingerprint=group.fingerprint,
            device_kind=group.device_kind,
            commit=columns.commits[place],
            branch=group.branch,
            subject=columns.subjects[place],
            dirty=group.dirty,
            workloads=list(group.workloads),
            author=group.author,
        )


class PointsInColumns(_Records[TrendPoint]):
    """The points of a series."""

    def __init__(self, columns: PointColumns, runs: RunColumns) -> None:
        self._runs = runs
        self._intervals = columns.intervals
        self._runs_at = memoryview(columns.runs_at).cast(_WHOLE)
        self._counts = memoryview(columns.counts).cast(_WHOLE)
        self.values: Sequence[float] = memoryview(columns.values).cast(_REAL)

    def __len__(self) -> int:
        return len(self.values)

    def _at(self, place: int) -> TrendPoint:
        run = self._runs_at[place]
        return TrendPoint(
            run_id=self._runs.ids[run],
            commit=self._runs.commits[run],
            started_at=self._runs.started_at[run],
            value=self.values[place],
            runs=self._counts[place],
            interval=self._intervals.get(place),
        )


class SiteColumns(FrozenStruct, kw_only=True):
    """A content without runs and points, its runs, and the points of all its series: of
    main, then of each branch.
    """

    bare: SiteContent
    runs: RunColumns
    points: list[PointColumns]

    @classmethod
    def of(cls, content: SiteContent) -> SiteColumns:
        positions = {run.id: place for place, run in enumerate(content.runs)}
        points: list[PointColumns] = []

        def bare(series: TrendSeries) -> TrendSeries:
            points.append(_point_columns(series.points, positions))
            return msgspec.structs.replace(series, points=[])

        return cls(
            bare=_with_series(content, bare, runs=[]),
            runs=_run_columns(content.runs),
            points=points,
        )

    def content(self) -> SiteContent:
        points = iter(self.points)

        def whole(series: TrendSeries) -> TrendSeries:
            of_series = PointsInColumns(next(points), self.runs)
            return msgspec.structs.replace(series, points=of_series)

        return _with_series(self.bare, whole, runs=RunsInColumns(self.runs))


def values_of(points: Sequence[TrendPoint]) -> Sequence[float]:
    """The values of points, without a record for each if they are in columns."""
    if isinstance(points, PointsInColumns):
        return points.values
    return [point.value for point in points]


def ids_of(runs: Sequence[StoredRun]) -> Sequence[str]:
    """The ids of runs, without a record for each if they are in columns."""
    if isinstance(runs, RunsInColumns):
        return runs.columns.ids
    return [run.id for run in runs]


def run_of_commit(runs: Sequence[StoredRun], commit: str) -> StoredRun | None:
    """The first of the runs that measured a commit."""
    if isinstance(runs, RunsInColumns):
        place = runs.by_commit.get(commit)
        return None if place is None else runs[place]
    for run in runs:
        if run.commit == commit:
            return run
    return None


def _with_series(
    content: SiteContent,
    change: Callable[[TrendSeries], TrendSeries],
    runs: Sequence[StoredRun],
) -> SiteContent:
    """The content with each of its series changed, in their order, and with other runs."""
    trend = msgspec.structs.replace(
        content.trend, series=[change(series) for series in content.trend.series]
    )
    branches: dict[str, list[TrendSeries]] = {}
    for branch, of_branch in content.branches.items():
        branches[branch] = [change(series) for series in of_branch]
    return msgspec.structs.replace(content, trend=trend, branches=branches, runs=runs)


def _run_columns(runs: Sequence[StoredRun]) -> RunColumns:
    places: dict[RunGroup, int] = {}
    group_of = array(_WHOLE)
    for run in runs:
        group = RunGroup(
            run.project,
            run.fingerprint,
            run.device_kind,
            run.branch,
            run.dirty,
            tuple(run.workloads),
            run.author,
        )
        group_of.append(places.setdefault(group, len(places)))
    return RunColumns(
        groups=list(places),
        group_of=group_of.tobytes(),
        ids=[run.id for run in runs],
        sessions=[run.session for run in runs],
        started_at=[run.started_at for run in runs],
        recorded_at=[run.recorded_at for run in runs],
        commits=[run.commit for run in runs],
        subjects=[run.subject for run in runs],
    )


def _point_columns(
    points: Sequence[TrendPoint], positions: Mapping[str, int]
) -> PointColumns:
    """``positions`` are those of the runs by their ids."""
    intervals: dict[int, tuple[float | None, float | None]] = {}
    for place, point in enumerate(points):
        if point.interval is not None:
            intervals[place] = point.interval
    runs_at = array(_WHOLE, [positions[point.run_id] for point in points])
    counts = array(_WHOLE, [point.runs for point in points])
    return PointColumns(
        runs_at=runs_at.tobytes(),
        values=array(_REAL, values_of(points)).tobytes(),
        counts=counts.tobytes(),
        intervals=intervals,
    )
