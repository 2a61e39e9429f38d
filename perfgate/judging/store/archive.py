"""An export as a folder or tar file, which is there whole or not at all."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from perfgate.errors import StoreRefusedError, UsageError

TAR = ".tar"


def write_export(files: Iterable[tuple[str, bytes]], target: Path) -> None:
    """Write files below a folder, or into a tar file if ``target`` ends in .tar, first
    under a temporary name.

    Raises UsageError if the target exists, StoreRefusedError if it cannot be written.
    """
    refuse_existing(target)
    temporary = target.with_name(f".{target.name}-{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == TAR:
            _write_tar(files, temporary)
        else:
            _write_folder(files, temporary)
        refuse_existing(target)
        temporary.rename(target)
    except OSError as error:
        raise StoreRefusedError(
            "{path} cannot be written: {why}; free space there, or choose another place",
            path=target,
            why=error.strerror or error,
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):
            temporary.unlink()


def refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise UsageError(
            "{path} exists already; remove it, or name another folder or file",
            path=target,
        )


def _write_folder(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    folder.mkdir()
    for name, data in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _write_tar(files: Iterable[tuple[str, bytes]], path: Path) -> None:
    """The same files give the same bytes: times, owners and modes of this machine are
    left out.
    """
    with path.open("xb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, data in files:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        file.flush()
        os.fsync(file.fileno())
