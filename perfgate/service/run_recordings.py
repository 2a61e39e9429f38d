"""The recordings of stored runs: `perfgate run` and `check` leave both in one folder,
which traces are served from.
"""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from perfgate.document.history import StoredRun
from perfgate.document.served import ServedRecording
from perfgate.service.library import Library


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
        self._identities: dict[ServedRecording, _Identity | None] = {}

    def name_of(self, run: StoredRun) -> str:
        """The name of the run's folder among the recordings; empty if it is not there."""
        with self._lock:
            name, identity_of_run = "", _Identity(run.project, _Session(run.session))
            identities: dict[ServedRecording, _Identity | None] = {}
            for folder in self._library.runs():
                if folder in self._identities:
                    identities[folder] = self._identities[folder]
                else:
                    identities[folder] = _identity(self._library.path(folder.name))
                if not name and identities[folder] == identity_of_run:
                    name = folder.name
            self._identities = identities
            return name


def _identity(folder: Path) -> _Identity | None:
    """None for a document that is damaged, or gone."""
    try:
        return msgspec.json.decode((folder / "run.json").read_bytes(), type=_Identity)
    except (OSError, msgspec.DecodeError):
        return None
