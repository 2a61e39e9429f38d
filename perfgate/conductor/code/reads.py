"""Which files of a checkout are read while it is measured, by their access times.

The kernel moves a file's access time for any reader: Python, a C++ loader that maps it
into memory, a server in another language. So no code has to run inside the measured
processes. Linux mounts with ``relatime`` by default: there a read is visible if the
file or its metadata changed since it was last read, or that was a day ago (mount(8)).
That is so of every file of a new checkout.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

# The shortest time after which relatime shows a read again (fs/inode.c,
# relatime_need_update).
_DAY = 86_400
# The kernel's clock of files ticks up to every 10 ms: a read in the same tick as the
# write leaves no trace.
_TICK_SECONDS = 0.05


def watch_reads(root: Path, files: Iterable[str]) -> Callable[[], list[str]] | None:
    """Watch ``files`` below ``root`` from now on; None if the file system keeps no
    access times.

    The result is a function that lists the files read since, and files of unknown
    state, sorted. A deleted file is left out.
    """
    if not _shows_reads(root):
        return None
    before: dict[str, int | None] = {}
    for file in filter(
        str.isprintable, files
    ):  # a document cannot hold a name that is not text
        with suppress(OSError):  # e.g. left out of a sparse checkout
            path = root / file
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                # A submodule: a read of a file in it does not move the folder's time.
                if any(path.iterdir()):
                    before[file] = None
                continue
            if not _would_move(status):
                # After a recent read, setting its times to their current values makes
                # the next read visible.
                with suppress(OSError):  # another user's file
                    os.utime(
                        path,
                        ns=(status.st_atime_ns, status.st_mtime_ns),
                        follow_symlinks=False,
                    )
                status = path.lstat()
            # The access time that the next read moves.
            before[file] = status.st_atime_ns if _would_move(status) else None

    def files_read() -> list[str]:
        read = []
        for file, then in before.items():
            with suppress(OSError):  # it was deleted
                if then is None or (root / file).lstat().st_atime_ns != then:
                    read.append(file)
        return sorted(read)

    return files_read


def _would_move(status: os.stat_result) -> bool:
    is_unread = status.st_atime_ns <= max(status.st_mtime_ns, status.st_ctime_ns)
    return is_unread or status.st_atime < time.time() - _DAY


def _shows_reads(root: Path) -> bool:
    """Whether reading a new file next to the checkout moves its access time: not with
    ``noatime``.
    """
    try:
        with tempfile.NamedTemporaryFile(prefix=".perfgate-", dir=root) as file:
            file.write(b"x")
            file.flush()
            probe = Path(file.name)
            before = probe.stat().st_atime_ns
            time.sleep(_TICK_SECONDS)
            probe.read_bytes()
            return probe.stat().st_atime_ns != before
    except OSError:
        return False
