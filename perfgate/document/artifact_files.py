"""Take the files that a document lists out of an untrusted artifact, if size and SHA-256 are as listed.

An artifact of a change may hold anything under these names, also links and files that grow, so every file is copied while it
is hashed, and only the copy is used.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from perfgate.document.artifact import MAX_ARCHIVE_BYTES, MAX_ENTRIES, open_below
from perfgate.document.kept import is_plain_path
from perfgate.document.run import Artifact
from perfgate.errors import DocumentError

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
    """Copy listed files of a folder or zip below ``target``, and return them with a sentence for each that was left out.

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
