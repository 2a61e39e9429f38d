"""The recordings below a folder, by name, with a cache of those already read."""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from perfgate.document.served import (
    ProfileList,
    ServedJob,
    ServedKind,
    ServedRecording,
    ServedTrace,
)
from perfgate.document.trace import RequestDocument
from perfgate.errors import PerfgateError, UsageError
from perfgate.flows.trace.requests import requests_of
from perfgate.flows.trace.trace import Choice, ChosenTimeline, choose
from perfgate.locale import Activity
from perfgate.service.served_events import EventSheet, TooManyEventsError
from perfgate.trace.analysis.requests import Requests
from perfgate.trace.readers.ascend.layout import OUTPUT
from perfgate.trace.readers.reader import all_readers

MOST_RECORDINGS = 10_000
# Recordings are large: only this many stay in memory, and the ids of the requests of
# all.
_IN_MEMORY = 2
_Item = TypeVar("_Item")


class Library:
    """Every recording is named by its path below the folder; no other file can be
    requested.

    Links are not followed. A recording that changed is read again. Not thread-safe.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Each with the state of the recording that it was read from.
        self._timelines: OrderedDict[
            str, tuple[ServedRecording, list[ChosenTimeline]]
        ] = OrderedDict()
        self._requests: dict[str, tuple[ServedRecording, set[str]]] = {}

    def recordings(self) -> list[ServedRecording]:
        """All recordings, the latest first."""
        return sorted(
            self._by_name().values(),
            key=lambda recording: (-recording.modified, recording.name),
        )

    def runs(self) -> list[ServedRecording]:
        """The folders of runs among them."""
        return [recording for recording in self.recordings() if recording.kind == "run"]

    def path(self, name: str) -> Path:
        """The path of a recording. Raises UsageError for an unknown name."""
        return self._folder / self._named(name).name

    def job(self, name: str) -> Path:
        """The folder of a job; an empty name means the whole library.

        Raises UsageError if it holds no recording.
        """
        if not [
            recording for recording in self._by_name() if is_below(recording, name)
        ]:
            raise UsageError(
                "no folder with recordings is named {name!r}; GET /api/recordings lists them",
                name=name,
            )
        return self._folder / name

    def timelines(self, name: str) -> list[ChosenTimeline]:
        """The timelines of a recording. Raises UsageError for an unknown name,
        DocumentError for a damaged recording.
        """
        recording = self._named(name)
        state, timelines = self._timelines.pop(name, (None, []))
        if state != recording:
            timelines = choose(self._folder / name, Choice())
        self._timelines[name] = recording, timelines
        while len(self._timelines) > _IN_MEMORY:
            self._timelines.popitem(last=False)
        return timelines

    def requests(
        self, name: str, *, request: str | None, limit: int | None
    ) -> RequestDocument:
        """The requests of a recording, or one of them with the work done for it.

        Raises UsageError if it is not in it.
        """
        document = requests_of(self.timelines(name), Choice(limit=limit), request)
        timelines = list(document.timelines)
        for number, timeline in enumerate(timelines):
            timelines[number] = msgspec.structs.replace(
                timeline, path=self.without_folder(timeline.path)
            )
        return msgspec.structs.replace(document, timelines=timelines)

    def without_folder(self, text: str) -> str:
        """A text without the path of the folder on this machine."""
        return text.replace(f"{self._folder}{os.sep}", "")

    def profiles(self, request: str | None, *, limit: int | None) -> ProfileList:
        """The profiles of one request, or of all, in all recordings."""
        profiles: dict[str, RequestDocument] = {}

        def add(name: str) -> None:
            profiles[name] = self.requests(name, request=request, limit=limit)

        return ProfileList(
            request_id=request, unread=self._serving(request, add), profiles=profiles
        )

    def trace_events(self, request: str | None) -> ServedTrace:
        """The events that served a request, or any, in all recordings.

        Raises UsageError if they are too many.
        """
        sheet = EventSheet(request)
        unread = self._serving(
            request, lambda name: sheet.add(name, self.timelines(name))
        )
        return ServedTrace(
            trace_events=[*sheet.names, *sheet.events], other_data={"unread": unread}
        )

    def _serving(self, request: str | None, use: Callable[[str], None]) -> list[str]:
        """Use each recording with events that served the request, or any; return the
        names of damaged recordings.
        """
        unread, is_served = [], False
        for name, recording in self._by_name().items():
            try:
                ids = self._ids(recording)
                if request in ids or (request is None and ids):
                    use(name)
                    is_served = True
            except TooManyEventsError:
                raise
            except PerfgateError:
                unread.append(name)
        if not is_served:
            requests = Activity("a request")
            if request is not None:
                requests = Activity("request {name!r}", name=request)
            raise UsageError(
                "no recording has an event that serves {requests}", requests=requests
            )
        return unread

    def _ids(self, recording: ServedRecording) -> set[str]:
        state, ids = self._requests.get(recording.name, (None, set()))
        if state != recording:
            ids = set()
            for chosen in self.timelines(recording.name):
                ids.update(Requests(chosen.timeline.events).names)
            self._requests[recording.name] = recording, ids
        return ids

    def _named(self, name: str) -> ServedRecording:
        recording = self._by_name().get(name)
        if recording is None:
            raise UsageError(
                "no recording is named {name!r}; GET /api/recordings lists them",
                name=name,
            )
        return recording

    def _by_name(self) -> dict[str, ServedRecording]:
        return {
            recording.name: recording
            for recording in itertools.islice(self._walk(self._folder), MOST_RECORDINGS)
        }

    def _walk(self, folder: Path) -> Iterator[ServedRecording]:
        for path in _members(folder):
            if not path.is_dir():
                if _is_recognised(path):
                    yield self._described(path, "recording", [path])
            elif (path / "run.json").is_file():
                yield self._described(path, "run", _files_below(path))
            elif _is_recording(path):
                yield self._described(path, "recording", _files_below(path))
            else:
                yield from self._walk(path)

    def _described(
        self, path: Path, kind: ServedKind, files: Sequence[Path]
    ) -> ServedRecording:
        """A recording with its size and its last change, of all its files."""
        size, times = 0, []
        for file in files:
            status = file.lstat()
            size += status.st_size
            times.append(status.st_mtime)
        modified = max(times, default=path.stat().st_mtime)
        return ServedRecording(
            name=path.relative_to(self._folder).as_posix(),
            kind=kind,
            size=size,
            modified=modified,
        )


def jobs_of(recordings: Sequence[ServedRecording]) -> list[ServedJob]:
    """The folders that hold several of the recordings, the latest first."""
    by_folder: dict[str, list[ServedRecording]] = defaultdict(list)
    for recording in recordings:
        by_folder[folder_of(recording.name)].append(recording)
    jobs: list[ServedJob] = []
    for folder, members in by_folder.items():
        if len(members) > 1:
            sizes = [recording.size for recording in members]
            times = [recording.modified for recording in members]
            jobs.append(
                ServedJob(
                    name=folder,
                    recordings=len(members),
                    size=sum(sizes),
                    modified=max(times),
                )
            )
    return sorted(jobs, key=lambda job: (-job.modified, job.name))


def folder_of(name: str) -> str:
    """The folder of a recording by its name, empty for the library itself."""
    return name.rpartition("/")[0]


def is_below(name: str, folder: str) -> bool:
    return not folder or name.startswith(f"{folder}/")


def _members(folder: Path) -> list[Path]:
    """The members of a folder by name, without links, and without names that no address
    or JSON can hold: not UTF-8.
    """
    with os.scandir(folder) as entries:
        return sorted(
            Path(entry.path)
            for entry in entries
            if not entry.is_symlink() and _is_utf8(entry.name)
        )


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _files_below(folder: Path) -> list[Path]:
    files: list[Path] = []
    for parent, _, names in os.walk(folder):
        files += [Path(parent) / name for name in names]
    return files


def _is_recording(folder: Path) -> bool:
    """Whether a folder is a single recording; a folder with several, of ranks or files,
    is not.
    """
    if (folder / OUTPUT).is_dir():
        return True
    for path in _members(folder):
        if ".pt.trace.json" in path.name or (path.is_dir() and _is_recognised(path)):
            return False
    return _is_recognised(folder)


def _is_recognised(path: Path) -> bool:
    return any(reader.recognises(path) for reader in all_readers())


def within(action: Callable[[], _Item]) -> _Item:
    """Read files that may disappear meanwhile. Raises UsageError if they do."""
    try:
        return action()
    except OSError as error:
        raise UsageError(
            "{file} cannot be read: {error}",
            file=error.filename or Activity("a recording"),
            error=error.strerror,
        ) from error
