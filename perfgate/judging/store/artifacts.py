"""The artifact store: traces, flame graphs and report pages of runs and checks, below
one URL.

    PROJECT/sets/ID.json          the record of a set, written last: without it the set is not listed
    PROJECT/files/ID/PATH         its files, by their paths in the folder of the run or check

ID follows from the documents, which list the size and SHA-256 of each trace and flame
graph, so their names hold the same bytes for ever; a report page may be drawn again,
and the record has its SHA-256.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from perfgate.document.kept import MAX_SET_BYTES, ArtifactSet, KeptLink, parse_set
from perfgate.errors import DocumentError, StoreError
from perfgate.judging.store.layout import project_key
from perfgate.judging.store.objects import ObjectPlace

_SUFFIX = ".json"
Sending = Callable[[str, int, int], None]
"""Told of a file that is being sent: its path, its number, and how many there are."""


class KeptArtifacts(NamedTuple):
    """What was kept in the store at ``place``: the files and bytes that were sent, and
    the files that were there already.

    ``left_out`` is why each listed file that is missing is.
    """

    artifacts: ArtifactSet
    place: str
    sent: int = 0
    sent_bytes: int = 0
    there: int = 0
    left_out: Sequence[str] = ()


class ArtifactStore:
    """The sets below a place. ``address`` is the URL under which browsers read the same
    paths, "" if there is none.
    """

    def __init__(self, place: ObjectPlace, address: str) -> None:
        self._place = place
        self._address = address.rstrip("/")

    @property
    def name(self) -> str:
        """The place for messages, without secrets."""
        return self._place.name

    def keep(
        self, artifacts: ArtifactSet, folder: Path, sending: Sending
    ) -> KeptArtifacts:
        """Send the files of a set, which lie in ``folder`` under their paths, and then
        its record.

        What is there already with the same size and hash is not sent again, so a
        repetition continues an upload that broke off. Files of the set that were kept
        before stay, also if they are not among these: CI may no longer have them.
        """
        before = self.find(artifacts.project, artifacts.id)
        sent, sent_bytes = 0, 0
        for number, file in enumerate(artifacts.files, 1):
            path = _file_path(artifacts, file.path)
            # Under one name and of one size, all but a report page have the same bytes
            # for ever.
            is_known = file.kind != "report" or (
                before is not None and before.file(file.path) == file
            )
            if is_known and self._place.size(path) == file.bytes:
                continue
            sending(file.path, number, len(artifacts.files))
            self._place.put(path, folder / file.path)
            sent, sent_bytes = sent + 1, sent_bytes + file.bytes
        there = len(artifacts.files) - sent
        if before is not None:
            files = {file.path: file for file in (*before.files, *artifacts.files)}
            artifacts = msgspec.structs.replace(artifacts, files=list(files.values()))
            if msgspec.structs.replace(artifacts, kept_at=before.kept_at) == before:
                return KeptArtifacts(before, self.name, sent, sent_bytes, there)
        self._place.write(
            _set_path(artifacts.project, artifacts.id), msgspec.json.encode(artifacts)
        )
        return KeptArtifacts(artifacts, self.name, sent, sent_bytes, there)

    def find(self, project: str, set_id: str) -> ArtifactSet | None:
        """The set with this id; None if there is none. Raises StoreError for a damaged
        record.
        """
        return self._find(project_key(project), set_id)

    def at(self, key: str, set_id: str) -> ArtifactSet | None:
        """The set at an address, in which the project stands as ``project_key`` writes
        it.
        """
        artifacts = self._find(key, set_id)
        if artifacts is None or project_key(artifacts.project) != key:
            return None
        return artifacts

    def sets(self, project: str) -> list[ArtifactSet]:
        """The sets of a project, the oldest first.

        Raises StoreError for a damaged record.
        """
        sets: list[ArtifactSet] = []
        for set_id in self._listed_ids(project):
            artifacts = self.find(project, set_id)
            if artifacts is not None:
                sets.append(artifacts)
        return sorted(sets, key=lambda artifacts: (artifacts.kept_at, artifacts.id))

    def unfinished(self, project: str, before: datetime) -> list[str]:
        """The ids of sets without a record and unchanged since ``before``: interrupted
        uploads.
        """
        files, listed = f"{project_key(project)}/files", self._listed_ids(project)
        unfinished: list[str] = []
        for set_id in self._place.names(files):
            if set_id not in listed:
                changed_at = self._place.changed_at(f"{files}/{set_id}")
                if changed_at is None or changed_at < before:
                    unfinished.append(set_id)
        return unfinished

    def remove(self, project: str, set_id: str) -> None:
        """Remove a set: its record first, so that no link leads to a file that is gone."""
        self._place.remove(_set_path(project, set_id))
        self._place.remove(f"{project_key(project)}/files/{set_id}")

    def content(
        self, artifacts: ArtifactSet, path: str, start: int, end: int
    ) -> Iterator[bytes]:
        """The bytes of a file from ``start`` up to ``end``, in pieces."""
        return self._place.chunks(_file_path(artifacts, path), start, end)

    def links(self, artifacts: ArtifactSet) -> list[KeptLink]:
        links: list[KeptLink] = []
        for file in artifacts.files:
            path = _file_path(artifacts, file.path)
            address = f"{self._address}/{quote(path)}" if self._address else ""
            place = self._place.url(path)
            links.append(
                KeptLink(
                    path=file.path,
                    kind=file.kind,
                    bytes=file.bytes,
                    address=address,
                    place=place,
                )
            )
        return links

    def _listed_ids(self, project: str) -> list[str]:
        names = self._place.names(f"{project_key(project)}/sets")
        return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]

    def _find(self, key: str, set_id: str) -> ArtifactSet | None:
        path = f"{key}/sets/{set_id}{_SUFFIX}"
        data = self._place.read(path, most=MAX_SET_BYTES + 1)
        if data is None:
            return None
        try:
            return parse_set(data, name=self._place.url(path))
        except DocumentError as error:
            raise StoreError("{error}", error=error) from error


def _set_path(project: str, set_id: str) -> str:
    return f"{project_key(project)}/sets/{set_id}{_SUFFIX}"


def _file_path(artifacts: ArtifactSet, path: str) -> str:
    return f"{project_key(artifacts.project)}/files/{artifacts.id}/{path}"
