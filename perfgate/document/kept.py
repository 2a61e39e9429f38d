"""The artifacts of one run of main, or of one check, in the artifact store: the files
and their run or check, and how the files are taken out of an untrusted artifact.

An artifact of a change may hold anything under these names, also links and files that
grow, so every file is copied while it is hashed, and only the copy is used if size and
SHA-256 are as its document lists them.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Literal

import msgspec

from perfgate.document.artifact import MAX_ARCHIVE_BYTES, MAX_ENTRIES, open_below
from perfgate.document.decision import DecisionDocument, Verdict
from perfgate.document.files import content_sha256
from perfgate.document.records import FrozenStruct, convert_record
from perfgate.document.run import Artifact, ArtifactKind, RunDocument
from perfgate.document.strict_json import DAMAGED, parse_json, refuse
from perfgate.errors import DocumentError

MAX_SET_BYTES = 1024 * 1024
# Logs stay with the CI job: they may hold a model's output.
KEPT_KINDS: tuple[ArtifactKind, ...] = ("trace", "flamegraph")
# The page that is drawn of a decision; no document lists it.
REPORT_PAGE = "report.html"
# A path without a character that needs escaping in a URL, and without a part that leads
# elsewhere.
_PLAIN_PATH = re.compile(
    r"(?!.*\.\.)(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,199}/){0,3}[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"
)


class ArtifactSet(FrozenStruct, kw_only=True, forbid_unknown_fields=True):
    """The kept artifacts of a run of main or of a check.

    ``id`` is the run's id in the store, or made of both documents of the check.
    ``verdict`` and ``base`` (its commit) are those of a check. ``kept_at`` is the time
    of keeping by the clock of the job that kept it, in ISO 8601: the clock of the
    machine that measured has no influence.
    """

    schema: Literal["perfgate/artifacts"] = "perfgate/artifacts"
    schema_version: Literal[1] = 1
    id: str
    project: str
    session: str
    commit: str | None
    kept_at: str
    base: str | None = None
    verdict: Verdict | None = None
    files: list[Artifact] = []

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def file(self, path: str) -> Artifact | None:
        return next((file for file in self.files if file.path == path), None)


class KeptLink(FrozenStruct, kw_only=True):
    """A kept file as a page shows it: ``address`` opens it in a browser, "" if no
    address is known; ``place`` is its URL.
    """

    path: str
    kind: str
    bytes: int
    address: str
    place: str


class KeptOfRun(FrozenStruct, kw_only=True):
    """The kept files of a run, and why they cannot be read, "" if they can."""

    links: list[KeptLink] = []
    why: str = ""


def set_of_run(run: RunDocument, run_id: str, kept_at: str) -> ArtifactSet:
    """The artifacts that a run of main lists."""
    return ArtifactSet(
        id=run_id,
        project=run.project,
        session=run.session.id,
        commit=run.source.commit,
        kept_at=kept_at,
        files=run.artifacts_of(*KEPT_KINDS),
    )


def set_of_check(
    base: RunDocument,
    head: RunDocument,
    decision: DecisionDocument,
    project: str,
    kept_at: str,
) -> ArtifactSet:
    """The artifacts that both documents of a check list, under the folders of their
    sides.
    """
    ids = content_sha256(base) + content_sha256(head)
    return ArtifactSet(
        id=hashlib.sha256(ids.encode()).hexdigest(),
        project=project,
        session=head.session.id,
        commit=decision.sides.head.reviewed or head.source.commit,
        kept_at=kept_at,
        base=base.source.commit,
        verdict=decision.verdict,
        files=[
            *_below("base", base.artifacts_of(*KEPT_KINDS)),
            *_below("head", head.artifacts_of(*KEPT_KINDS)),
        ],
    )


def is_plain_path(path: str) -> bool:
    """Whether a path stays in its folder and needs no escaping in a URL.

    A document may come from a change.
    """
    return _PLAIN_PATH.fullmatch(path) is not None


def parse_set(data: bytes, *, name: str) -> ArtifactSet:
    """The record of kept artifacts in ``data``.

    Raises DocumentError for anything else.
    """
    try:
        artifacts = convert_record(
            parse_json(data, name=name, max_bytes=MAX_SET_BYTES), ArtifactSet
        )
    except msgspec.ValidationError as error:
        refuse(name, "$", str(error), DAMAGED)
    for file in artifacts.files:
        if not is_plain_path(file.path) or file.bytes < 0:
            refuse(name, "$.files", ascii(file.path)[:200], DAMAGED)
    return artifacts


def _below(folder: str, files: Iterable[Artifact]) -> list[Artifact]:
    return [
        msgspec.structs.replace(file, path=f"{folder}/{file.path}") for file in files
    ]


# --- files out of an untrusted artifact

# The traces of a check of a small model have 0.4 MB, of a large model some hundred.
MAX_KEPT_BYTES = 4 * 1024**3
MAX_KEPT_FILES = 1_000
_CHUNK = 1024 * 1024
_Open = Callable[[str], AbstractContextManager[IO[bytes]]]
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    NotImplementedError,
)


def copy_listed(
    artifact: Path | bytes, listed: Iterable[Artifact], target: Path
) -> tuple[list[Artifact], list[str]]:
    """Copy listed files of a folder or zip below ``target``, and return them with a
    sentence for each that was left out.

    Raises DocumentError if the artifact itself cannot be read.
    """
    copied, left_out = list[Artifact](), list[str]()
    with _opened(artifact) as open_file:
        for file in listed:
            try:
                _refuse_unkept(file, copied)
                _copy(open_file, file, target / file.path)
            except DocumentError as error:
                left_out.append(str(error))
            else:
                copied.append(file)
    return copied, left_out


def page_file(text: str, path: str, folder: Path) -> Artifact:
    """Write a page of ours below a folder, and return its record."""
    data = text.encode("utf-8", errors="replace")
    (folder / path).write_bytes(data)
    return Artifact(
        name=path,
        kind="report",
        path=path,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


@contextmanager
def _in_folder(root: int, path: str) -> Iterator[IO[bytes]]:
    with (
        open_below(root, path) as descriptor,
        open(descriptor, "rb", closefd=False) as file,
    ):
        yield file


@contextmanager
def _in_archive(archive: zipfile.ZipFile, path: str) -> Iterator[IO[bytes]]:
    # GitHub leaves the folder around the files out, GitLab keeps it.
    names = [
        name for name in archive.namelist() if name == path or name.endswith(f"/{path}")
    ]
    if len(names) != 1:
        raise DocumentError("{name} is not in the artifact", name=path)
    try:
        with archive.open(names[0]) as file:
            yield file
    except _DAMAGES as error:
        raise DocumentError(
            "{name} cannot be unpacked ({error})", name=path, error=error
        ) from None


@contextmanager
def _opened(artifact: Path | bytes) -> Iterator[_Open]:
    """Yield how a file of the artifact is opened by its path."""
    if isinstance(artifact, Path) and artifact.is_dir():
        root = os.open(artifact, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield partial(_in_folder, root)
        finally:
            os.close(root)
        return
    data = artifact if isinstance(artifact, bytes) else _read(artifact)
    if len(data) > MAX_ARCHIVE_BYTES:
        raise DocumentError(
            "the archive has more than {most} bytes; unpack it, and give its folder",
            most=MAX_ARCHIVE_BYTES,
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if len(archive.infolist()) > MAX_ENTRIES:
                raise DocumentError(
                    "the archive has more than {most} entries", most=MAX_ENTRIES
                )
            yield partial(_in_archive, archive)
    except _DAMAGES as error:
        raise DocumentError(
            "the archive cannot be read ({error})", error=error
        ) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_ARCHIVE_BYTES + 1)
    except OSError as error:
        raise DocumentError(
            "{path} cannot be read: {error}", path=path, error=error.strerror
        ) from None


def _refuse_unkept(file: Artifact, copied: Sequence[Artifact]) -> None:
    if not is_plain_path(file.path) or any(file.path == other.path for other in copied):
        raise DocumentError(
            "{name} is not a distinct relative path inside the folder",
            name=ascii(file.path)[:200],
        )
    room = MAX_KEPT_BYTES - sum(other.bytes for other in copied)
    if not 0 <= file.bytes <= room or len(copied) >= MAX_KEPT_FILES:
        raise DocumentError(
            "{name} is beyond what is kept of one run or check, {most} bytes in {files} files",
            name=file.path,
            most=MAX_KEPT_BYTES,
            files=MAX_KEPT_FILES,
        )


def _copy(open_file: _Open, file: Artifact, target: Path) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_file(file.path) as content, target.open("xb") as copy:
            while size <= file.bytes and (piece := content.read(_CHUNK)):
                size += len(piece)
                digest.update(piece)
                copy.write(piece)
    except OSError as error:
        raise DocumentError(
            "{name} cannot be copied ({error})", name=file.path, error=error.strerror
        ) from None
    if size != file.bytes or digest.hexdigest() != file.sha256:
        target.unlink()
        raise DocumentError(
            "{name} is not the file that its document lists", name=file.path
        )
