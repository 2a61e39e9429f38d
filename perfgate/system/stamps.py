"""The kernel's metadata of files: it reveals whether one was written, replaced or
restored without reading any.

No call sets the time of an inode's last change (inode(7), "ctime"; utimensat(2) sets
the other two), so a file that is written and then put back with its old size and times
has another one. A folder's own metadata reveals added and removed entries.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

# Files that Python imports, or reads before it imports anything.
_IMPORTABLE = (".py", ".pyc", ".pyd", ".pth", ".so", ".zip", ".egg-link")
_MOST_READS = 3


# Inode, mode, size, time of the last write and of the last change; of a link also the
# same numbers of its target.
Stamp = tuple[int, ...]
Stamps = dict[str, Stamp]
# Numbers of a file itself.
STATE_LENGTH = 5


def without_change_time(stamp: Stamp) -> Stamp:
    """A stamp without the times of the last change, of a link's target neither."""
    return tuple(
        number
        for at, number in enumerate(stamp)
        if at % STATE_LENGTH != STATE_LENGTH - 1
    )


def is_folder(stamp: Stamp) -> bool:
    return stat.S_ISDIR(stamp[1])


def is_link(stamp: Stamp) -> bool:
    return stat.S_ISLNK(stamp[1])


def stamp_of(path: Path, *, follow: bool = False) -> Stamp | None:
    """The stamp of one file, link or folder, as ``stamps_below`` has it; None if it is
    missing or unreadable.
    """
    try:
        status = path.stat(follow_symlinks=follow)
    except OSError:
        return None
    return _stamp(status, path)


def is_library(name: str) -> bool:
    return name.endswith(".so") or ".so." in name


def is_importable(name: str) -> bool:
    return name.endswith(_IMPORTABLE)


def is_visible_code(path: str) -> bool:
    """Whether ``stamps_of_code`` covers a file, by its path in the folder."""
    return is_importable(path) and all(map(_is_visible, path.split("/")))


def stamps_below(
    folder: Path, *, most: int, without: frozenset[str] = frozenset()
) -> Stamps | None:
    """Everything in a folder by its path there, the folder itself as ``.``; None beyond
    ``most`` entries.

    Folders directly in it that are called as in ``without`` are left out. A missing or
    unreadable folder is empty. A file is ``.`` alone.
    """
    stamps = {}
    with suppress(OSError):
        stamps["."] = _stamp(folder.stat(), folder)
    for name, stamp in _walk(folder, lambda name: name not in without):
        stamps[name] = stamp
        if len(stamps) > most:
            return None
    return stamps


def stamps_of_code(folder: Path, *, most: int) -> Stamps | None:
    """The files below a folder that can be imported; hidden folders are left out, and
    so are times of folders.

    For a folder in which people and programs work, such as a clone that is installed in
    place.
    """
    stamps = {}
    for name, stamp in _walk(folder, _is_visible, is_importable):
        if not is_folder(stamp):
            stamps[name] = stamp
            if len(stamps) > most:
                return None
    return stamps


def folders_of_code(folder: Path) -> Stamps:
    """The folders in which ``stamps_of_code`` looks: each changes with every entry that
    is added, removed or renamed.
    """
    return {
        **folder_itself(folder),
        **dict(_walk(folder, _is_visible, lambda _: False)),
    }


def folder_itself(folder: Path) -> Stamps:
    stamp = stamp_of(folder, follow=True)
    return {".": stamp} if stamp else {}


def stamps_in(folder: Path, wanted: Callable[[str], bool]) -> Stamps:
    """The files directly in a folder with ``wanted`` names."""
    return dict(_walk(folder, lambda _: False, wanted))


def _is_visible(name: str) -> bool:
    return not name.rpartition("/")[2].startswith(".")


def _walk(
    folder: Path,
    enters: Callable[[str], bool],
    wanted: Callable[[str], bool] = lambda _: True,
) -> Iterator[tuple[str, Stamp]]:
    """The folders that it ``enters`` by their path below, and the files in them with
    ``wanted`` names.
    """
    below = [""]
    while below:
        prefix = below.pop()
        for entry in _entries(f"{folder}/{prefix}"):
            name = prefix + entry.name
            try:
                # By the folder's own record of its entries: those that are left out are
                # not read.
                if entry.is_dir(follow_symlinks=False):
                    if not enters(name):
                        continue
                    below.append(f"{name}/")
                elif not wanted(entry.name):
                    continue
                status = entry.stat(follow_symlinks=False)
            except OSError:  # it has gone in the meantime, which its folder shows
                continue
            yield name, _stamp(status, entry)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder; of a missing or unreadable one there are none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # Of an open folder: the kernel looks its entries up there, and not along the
        # whole path each time.
        yield from _read_entries(descriptor)
    finally:
        os.close(descriptor)


def _read_entries(descriptor: int) -> list[os.DirEntry[str]]:
    """The entries of an open folder.

    It is read anew if that fails midway, as it may while other processes write there.
    """
    for _ in range(_MOST_READS):
        try:
            with os.scandir(descriptor) as entries:
                return list(entries)
        except OSError:
            continue
    return []


def _stamp(status: os.stat_result, entry: os.DirEntry[str] | Path) -> Stamp:
    stamp = (
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
    if stat.S_ISLNK(status.st_mode):
        with suppress(OSError):  # it leads nowhere
            return stamp + _stamp(entry.stat(), entry)
    return stamp
