"""Zips of profiles: packed by us, and unpacked under limits, since somebody else may have made them."""

from __future__ import annotations

import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from perfgate.errors import DocumentError, MeasuringError
from perfgate.trace.ascend.layout import OUTPUT

MAX_MEMBERS = 20_000
MAX_MEMBER_BYTES = 2 << 30
MAX_TOTAL_BYTES = 4 << 30
MAX_DEPTH = 12
# Traces shrink to a twentieth, repeated tables to a hundredth; deflate itself ends at 1032.
MAX_RATIO = 400
_ABOUT = ("profiler_info*.json", "profiler_metadata.json")
_FREE_BYTES = 16 << 20
_BLOCK = 1 << 20


def pack(recording: Path, path: Path) -> None:
    """Put an analysed recording into one zip file, which appears under its name only when complete."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    files = [file for pattern in _ABOUT for file in recording.glob(pattern)]
    files += [file for file in (recording / OUTPUT).iterdir() if file.is_file()]
    try:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for file in sorted(files):
                archive.write(file, file.relative_to(recording).as_posix())
        aside.replace(path)
    except OSError as error:
        raise MeasuringError(f"{path} cannot be written: {error}; choose an --out folder with space") from error
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a folder with a zip's files, removed afterwards.

    Raises DocumentError for a damaged zip, one beyond the limits, and names or links that lead out of the folder; what is
    raised inside names the zip in place of the folder.
    """
    with tempfile.TemporaryDirectory(prefix="perfgate-") as name:
        folder = Path(name)
        try:
            _unpack(path, folder)
            yield folder
        except DocumentError as error:
            raise DocumentError(
                str(error).replace(f"{folder}/", f"{path}: ").replace(str(folder), str(path))
            ) from error


def _unpack(path: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise DocumentError(f"{path}: more than {MAX_MEMBERS} files; zip one profiler folder alone")
            total = 0
            for member in members:
                target = folder / _checked_name(member, path)
                if member.is_dir():
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                total += _copy(archive, member, target, path)
                if total > MAX_TOTAL_BYTES:
                    raise DocumentError(f"{path}: more than {MAX_TOTAL_BYTES} bytes unpacked; profile fewer steps")
    # RuntimeError is what an encrypted member raises, NotImplementedError one of an unknown method.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise DocumentError(f"{path}: is no zip that can be read: {error}; make it again") from error
    except OSError as error:
        raise DocumentError(f"{path}: cannot be unpacked: {error}; check permissions and free disk") from error


def _checked_name(member: zipfile.ZipInfo, path: Path) -> PurePosixPath:
    name = PurePosixPath(member.filename)
    mode = member.external_attr >> 16
    plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
    strange = name.is_absolute() or ".." in name.parts or "\\" in member.filename or ":" in name.parts[0:1]
    if not plain or strange or not name.parts or len(name.parts) > MAX_DEPTH:
        raise DocumentError(
            f"{path}: holds {member.filename[:80]!r}, which is a link or leads out of the folder; zip the folder itself"
        )
    return name


def _copy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, path: Path) -> int:
    """Write one file and return its size; what the header claims is not believed."""
    most = min(MAX_MEMBER_BYTES, _FREE_BYTES + MAX_RATIO * max(member.compress_size, 0))
    size = 0
    with archive.open(member) as source, target.open("xb") as copy:
        while block := source.read(_BLOCK):
            size += len(block)
            if size > most:
                raise DocumentError(
                    f"{path}: {member.filename[:80]!r} unpacks to more than {most} bytes; it is refused"
                )
            copy.write(block)
    return size
