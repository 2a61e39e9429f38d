"""An artifact as it was read: its documents, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from perfgate.document.artifact import CheckDocuments, read_check
from perfgate.errors import DocumentError


class ReadArtifact(NamedTuple):
    """The documents of an artifact, or the error of reading it, which judging raises.

    In a matrix, ``testbed`` is the name of the runner that measured, and ``device`` the kind of its device by perfgate.toml.
    ``source`` is the folder or zip that was read, for the other files that it holds.
    """

    documents: CheckDocuments | None = None
    refusal: Exception | None = None
    testbed: str = ""
    device: str | None = None
    source: Path | bytes | None = None

    def judged_documents(self) -> CheckDocuments:
        if self.documents is None:
            raise self.refusal or DocumentError("there is none")
        return self.documents


def read_artifact(artifact: Callable[[], Path | bytes]) -> ReadArtifact:
    try:
        source = artifact()
        return ReadArtifact(read_check(source), source=source)
    except Exception as error:  # noqa: BLE001 - raised by the judging function
        return ReadArtifact(refusal=error)
