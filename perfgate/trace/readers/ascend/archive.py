"""Archives of profiles: zips packed by perfgate; zips and tars, which may come from
anywhere, unpacked under limits.
"""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from perfgate.errors import DocumentError, MeasuringError
from perfgate.trace.readers.ascend.layout import OUTPUT

MAX_MEMBERS = 20_000
MAX_MEMBER_BYTES = 2 << 30
MAX_TOTAL_BYTES = 4 << 30
MAX_DEPTH = 12
# Traces shrink to a twentieth, repetitive tables to a hundredth; the maximum of deflate
# is 1032.
MAX_RATIO = 400
_ABOUT = ("profiler_info*.json", "profiler_metadata.json")
_FREE_BYTES = 16 << 20
_BLOCK = 1 << 20


def pack(recording: Path, path: Path) -> None:
    """Put an analysed recording into one zip file, which appears under its name only
    when complete.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    files = [file for file in (recording / OUTPUT).iterdir() if file.is_file()]
    for pattern in _ABOUT:
        files += recording.glob(pattern)
    try:
        with zipfile.ZipFile(
            aside, "w", zipfile.ZIP_DEFLATED, compresslevel=6
        ) as archive:
            for file in sorted(files):
                archive.write(file, file.relative_to(recording).as_posix())
        aside.replace(path)
    except OSError as error:
        raise MeasuringError(
            "{path} cannot be written: {error}; choose an --out folder with space",
            path=path,
            error=error,
        ) from error
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a folder with the files of a zip or tar, removed afterwards.

    Raises DocumentError for a damaged archive, one beyond the limits, and names or
    links that lead out of the folder; errors raised by the caller's block name the
    archive in place of the folder.
    """
    with tempfile.TemporaryDirectory(prefix="perfgate-") as name:
        folder = Path(name)
        try:
            _unpack(path, folder)
            yield folder
        except DocumentError as error:

            def about_archive(text: str) -> str:
                return text.replace(f"{folder}/", f"{path}: ").replace(name, str(path))

            about = DocumentError(about_archive(str(error)))
            about.shown = about_archive(error.shown)
            raise about from error


class _Member(NamedTuple):
    """A file or folder of an archive; ``most`` is the limit of its unpacked bytes."""

    name: str
    is_folder: bool
    is_plain: bool
    most: int
    open: Callable[[], IO[bytes]]


def _unpack(path: Path, folder: Path) -> None:
    members = _zip_members if path.suffix == ".zip" else _tar_members
    total = 0
    try:
        for number, member in enumerate(members(path)):
            if number >= MAX_MEMBERS:
                raise DocumentError(
                    "{path}: more than {limit} files; pack one profiler folder alone",
                    path=path,
                    limit=MAX_MEMBERS,
                )
            target = folder / _checked_name(member, path)
            if member.is_folder:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            total += _copy(member, target, path)
            if total > MAX_TOTAL_BYTES:
                raise DocumentError(
                    "{path}: more than {limit} bytes unpacked; profile fewer steps",
                    path=path,
                    limit=MAX_TOTAL_BYTES,
                )
    # zipfile raises RuntimeError for an encrypted member, NotImplementedError for an
    # unknown compression method.
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        RuntimeError,
        NotImplementedError,
        ValueError,
    ) as error:
        kind = "zip" if path.suffix == ".zip" else "tar"
        raise DocumentError(
            "{path}: not a readable {kind} file: {error}; make it again",
            path=path,
            kind=kind,
            error=error,
        ) from error
    except OSError as error:
        raise DocumentError(
            "{path}: cannot be unpacked: {error}; check permissions and free disk",
            path=path,
            error=error,
        ) from error


def _zip_members(path: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            is_plain = stat.S_IFMT(info.external_attr >> 16) in (
                0,
                stat.S_IFREG,
                stat.S_IFDIR,
            )
            most = min(
                MAX_MEMBER_BYTES, _FREE_BYTES + MAX_RATIO * max(info.compress_size, 0)
            )
            # The separators of Windows, with which Compress-Archive of PowerShell 5
            # writes names.
            name = info.filename.replace("\\", "/")
            yield _Member(
                name,
                name.endswith("/"),
                is_plain,
                most,
                partial(archive.open, info),
            )


def _tar_members(path: Path) -> Iterator[_Member]:
    most = min(MAX_MEMBER_BYTES, _FREE_BYTES + MAX_RATIO * path.stat().st_size)
    with tarfile.open(path) as archive:
        for info in archive:
            # Only plain files are opened, and of those it returns no None.
            reader = partial(
                cast("Callable[[tarfile.TarInfo], IO[bytes]]", archive.extractfile),
                info,
            )
            yield _Member(
                info.name, info.isdir(), info.isreg() or info.isdir(), most, reader
            )


def _checked_name(member: _Member, path: Path) -> PurePosixPath:
    name = PurePosixPath(member.name)
    leads_out = (
        name.is_absolute()
        or ".." in name.parts
        or "\\" in member.name  # of a tar, which has no such separators
        or ":" in name.parts[0:1]
    )
    is_nameless = not name.parts and not member.is_folder
    if leads_out or is_nameless or not member.is_plain or len(name.parts) > MAX_DEPTH:
        raise DocumentError(
            "{path}: holds {name!r}, which is a link or leads out of the folder; pack the folder itself",
            path=path,
            name=member.name[:80],
        )
    return name


def _copy(member: _Member, target: Path, path: Path) -> int:
    """Write one file and return its size, counted here because the header may be wrong."""
    size = 0
    with member.open() as source, target.open("xb") as copy:
        while block := source.read(_BLOCK):
            size += len(block)
            if size > member.most:
                raise DocumentError(
                    "{path}: {name!r} unpacks to more than {limit} bytes; it is refused",
                    path=path,
                    name=member.name[:80],
                    limit=member.most,
                )
            copy.write(block)
    return size
