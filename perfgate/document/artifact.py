"""Read an artifact: a few documents under fixed names, from a folder or a zip of
untrusted origin.

The job that makes an artifact runs the change's own code, so no part of it is trusted:
neither names, nor sizes, nor declared lengths. Every refusal is a DocumentError that
names no path of this machine.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from perfgate.document.files import parse_run
from perfgate.document.message import Message, ReasonError
from perfgate.document.run import RunDocument
from perfgate.document.samples import PackedArray
from perfgate.errors import DocumentError
from perfgate.locale import Activity

# The artifact of the demo's check (one workload, 21 pairs) has 0.4 MB with its traces,
# in 13 files and 3 folders.
MAX_ARCHIVE_BYTES = 20 * 1024 * 1024
MAX_ENTRIES = 256
# The declared sizes of all entries together.
MAX_EXPANDED_BYTES = 200 * 1024 * 1024
# The demo's documents have 0.1 MB. A shape at 50 us a call, measured in all 71 pairs,
# has 2 MB.
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
# Documents shrink to a quarter, a log of one repeated line to a fiftieth. Deflate at
# its best makes 1 of 1032.
MAX_RATIO = 100
# Up to this size a file may have any ratio: it is harmless.
HARMLESS_BYTES = 1024 * 1024
MAX_NAME_LENGTH = 512
# Samples are packed again inside the document: 1 MB may declare a gigabyte. That shape
# has 0.9 million.
MAX_SAMPLES = 20_000_000
# The history of each is looked up, in a database that takes its milliseconds.
MAX_SHAPES = 1_000

BASE, HEAD = "base/run.json", "head/run.json"
RUN = "run.json"

_CHUNK = 65536
_ENTRY_SIGNATURE = b"PK\x01\x02"
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Errors of zipfile and zlib for data that is not an archive, or a truncated or
# inconsistent one.
_DAMAGES = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,
    UnicodeError,
    ValueError,
    IndexError,
)
_DAMAGED = Activity(
    "the archive is damaged or was not made by its upload action; run the measuring job again"
)


class CheckDocuments(NamedTuple):
    """The two sides of a check, each a valid document."""

    base: RunDocument
    head: RunDocument


def read_check(artifact: Path | bytes) -> CheckDocuments:
    """Read the two run documents of a check's artifact: a folder, a zip, or the bytes
    of one.

    Raises DocumentError for anything else.
    """
    base, head = (
        _document(data, name) for name, data in _read(artifact, (BASE, HEAD)).items()
    )
    return CheckDocuments(base, head)


def read_artifact_run(artifact: Path | bytes) -> RunDocument:
    """Read the run document of a `perfgate run`'s artifact.

    Raises DocumentError for anything else.
    """
    return _document(_read(artifact, (RUN,))[RUN], RUN)


def _document(data: bytes, name: str) -> RunDocument:
    run = parse_run(data, name=name, complete=True)
    announced = sum(packed.count for packed in _samples(run))
    if announced > MAX_SAMPLES:
        raise DocumentError(
            "{name} announces {announced} samples; at most {most} are read of an artifact",
            name=name,
            announced=announced,
            most=MAX_SAMPLES,
        )
    shapes = sum(len(workload.shapes) for workload in run.workloads)
    if shapes > MAX_SHAPES:
        raise DocumentError(
            "{name} lists {shapes} shapes; at most {most} are read of an artifact",
            name=name,
            shapes=shapes,
            most=MAX_SHAPES,
        )
    return run


def _samples(run: RunDocument) -> Iterable[PackedArray]:
    for step in run.checklist.steps:
        yield from (kept.samples for kept in step.samples)
    for replicate in run.pairs.replicates:
        for _, blocks in replicate.lanes:
            yield from blocks.times.arrays


def _read(artifact: Path | bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    if isinstance(artifact, bytes):
        return _of_archive(artifact, names)
    try:
        # Non-blocking, so that a pipe is refused instead of waited for.
        descriptor = os.open(artifact, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ReasonError(
            Message("publish.no-artifact-with", {"name": names[-1]})
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        raise DocumentError(
            "it cannot be opened ({cause}); give the folder or zip of a check",
            cause=_cause(error),
        ) from None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            documents = {}
            for name in names:
                with open_below(descriptor, name) as file:
                    documents[name] = _regular(file, name, MAX_DOCUMENT_BYTES)
            return documents
        return _of_archive(
            _regular(descriptor, "the archive", MAX_ARCHIVE_BYTES), names
        )
    finally:
        os.close(descriptor)


@contextmanager
def open_below(root: int, name: str) -> Iterator[int]:
    """Open one file below a folder without following links: their targets lie outside
    the artifact.

    Raises DocumentError if it is missing, a link, or cannot be read.
    """
    opened: list[int] = []
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        *folders, file = name.split("/")
        for folder in folders:
            opened.append(
                os.open(folder, flags | os.O_DIRECTORY, dir_fd=(opened or [root])[-1])
            )
        opened.append(os.open(file, flags, dir_fd=(opened or [root])[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError("{name} is not a regular file", name=name)
        if status.st_nlink > 1:
            raise DocumentError(
                "{name} is a hard link, which an artifact must not contain", name=name
            )
        yield opened[-1]
    except FileNotFoundError:
        _missing(name)
    except OSError as error:
        raise DocumentError(
            "{name} cannot be read ({cause})", name=name, cause=_cause(error)
        ) from None
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)


def _regular(descriptor: int, name: str, most: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise DocumentError("{name} is not a regular file", name=name)
    if status.st_size > most:
        raise DocumentError(
            "{name} has {size} bytes; at most {most} are read of an artifact",
            name=name,
            size=status.st_size,
            most=most,
        )
    with open(descriptor, "rb", closefd=False) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise DocumentError(
            "{name} has more than {most} bytes, and is growing", name=name, most=most
        )
    return data


def _of_archive(data: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    if len(data) > MAX_ARCHIVE_BYTES:
        raise DocumentError(
            "the archive has more than {most_bytes} bytes", most_bytes=MAX_ARCHIVE_BYTES
        )
    # Counted before the list is read: an entry costs half a kilobyte of memory, and the
    # archive's own count may be false.
    if data.count(_ENTRY_SIGNATURE) > MAX_ENTRIES:
        raise DocumentError(
            "the archive has more than {most} entries", most=MAX_ENTRIES
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = _entries(archive)
            root = _root(entries, names[-1])
            return {
                name: _entry(archive, entries.get(root + name), name) for name in names
            }
    except _DAMAGES as error:
        raise DocumentError(
            "the archive cannot be read ({cause}); {damaged}",
            cause=_cause(error),
            damaged=_DAMAGED,
        ) from None


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    # One bad name condemns the archive: no upload action writes such a thing.
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        name = entry.orig_filename
        shown = ascii(name[:80])
        if not _is_plain(name.rstrip("/")):
            raise DocumentError(
                "the archive's entry {entry} is not a valid file name", entry=shown
            )
        if name in entries:
            raise DocumentError("the archive has the entry {entry} twice", entry=shown)
        if stat.S_IFMT(entry.external_attr >> 16) not in (
            0,
            stat.S_IFREG,
            stat.S_IFDIR,
        ):
            raise DocumentError(
                "the archive's entry {entry} is a link or a device", entry=shown
            )
        entries[name] = entry
    if sum(entry.file_size for entry in entries.values()) > MAX_EXPANDED_BYTES:
        raise DocumentError(
            "the archive would expand to more than {most_bytes} bytes",
            most_bytes=MAX_EXPANDED_BYTES,
        )
    return entries


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    return (
        len(name) <= MAX_NAME_LENGTH
        and name.isprintable()
        and "\\" not in name
        and ":" not in parts[0]
        and not any(part in ("", ".", "..") for part in parts)
    )


def _root(entries: Iterable[str], name: str) -> str:
    # GitHub leaves the folder around the documents out, GitLab keeps it.
    roots = [
        entry[: -len(name)]
        for entry in entries
        if entry == name or entry.endswith("/" + name)
    ]
    if not roots:
        _missing(name)
    if len(roots) > 1:
        raise DocumentError(
            "the archive has {count} files {name} where one is expected",
            count=len(roots),
            name=name,
        )
    return roots[0]


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo | None, name: str) -> bytes:
    """Expand one entry piece by piece, so that a zip bomb is noticed before it has
    expanded.
    """
    if entry is None:
        _missing(name)
    if entry.flag_bits & _ENCRYPTED:
        raise DocumentError("{name} is encrypted", name=name)
    if entry.compress_type not in _METHODS:
        raise DocumentError(
            "{name} is compressed with method {method}; deflate is what upload actions use",
            name=name,
            method=entry.compress_type,
        )
    data = bytearray()
    with archive.open(entry) as file:
        while piece := file.read(_CHUNK):
            data += piece
            if len(data) > MAX_DOCUMENT_BYTES:
                raise DocumentError(
                    "{name} expands to more than {most_bytes} bytes",
                    name=name,
                    most_bytes=MAX_DOCUMENT_BYTES,
                )
            if (
                len(data) > HARMLESS_BYTES
                and len(data) > MAX_RATIO * entry.compress_size
            ):
                raise DocumentError(
                    "{name} expands to more than {ratio} times its size in the archive",
                    name=name,
                    ratio=MAX_RATIO,
                )
    return bytes(data)


def _missing(name: str) -> NoReturn:
    raise ReasonError(Message("publish.artifact-lacks-file", {"name": name}))


def _cause(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        links = {
            errno.ELOOP: Activity("it is a symbolic link"),
            errno.ENOTDIR: Activity("a symbolic link, or a file instead of a folder"),
        }
        return links.get(error.errno, os.strerror(error.errno))
    return " ".join(str(error).split())[:200] or type(error).__name__
