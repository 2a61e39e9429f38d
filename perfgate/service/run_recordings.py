"""The recordings of stored runs: `perfgate run` and `check` leave both in one folder, which traces are served from."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from perfgate.document.history import StoredRun
from perfgate.document.served import ServedRecording
from perfgate.service.library import Library

_State = tuple[int, float]


class _Session(msgspec.Struct):
    id: str


class _Identity(msgspec.Struct):
    """The fields of a run document that distinguish it."""

    project: str
    session: _Session


class RunRecordings:
    """Finds the served folder of a run. Folders that did not change are read once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._known: dict[str, tuple[_State, _Identity | None]] = {}

    def name_of(self, run: StoredRun) -> str:
        """The name of the run's folder among the recordings; empty if it is not there."""
        with self._lock:
            folders = [one for one in self._library.recordings() if one.kind == "run"]
            self._known = {one.name: self._read(one) for one in folders}
            return next((name for name, (_, identity) in self._known.items() if _is_of(identity, run)), "")

    def _read(self, folder: ServedRecording) -> tuple[_State, _Identity | None]:
        state, known = (folder.size, folder.modified), self._known.get(folder.name)
        if known is not None and known[0] == state:
            return known
        return state, _identity(self._library.path(folder.name))


def _identity(folder: Path) -> _Identity | None:
    """None for a document that is damaged, or gone."""
    try:
        return msgspec.json.decode((folder / "run.json").read_bytes(), type=_Identity)
    except (OSError, msgspec.DecodeError):
        return None


def _is_of(identity: _Identity | None, run: StoredRun) -> bool:
    return identity is not None and (identity.project, identity.session.id) == (run.project, run.session)
