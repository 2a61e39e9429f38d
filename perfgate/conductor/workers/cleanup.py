"""Traces that user code may leave behind, and the scratch folder it works in.

Left behind are processes that outlived their worker, folders that resist being removed,
and planted links. The scratch folder's lock ends with its process, so the next process
sweeps the folders of killed processes.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from perfgate.document.message import Message
from perfgate.errors import MeasuringError
from perfgate.system.folders import remove_folder
from perfgate.system.logs import one_line
from perfgate.system.processes import kill_children, name_of

SCRATCH_PREFIX = "perfgate-scratch-"
_UNLOCKED_PREFIX = "perfgate-new-"
# A side cannot create entries directly in this folder (perfgate.system.walls), which
# programs rarely do here.
_SELDOM_USED = "/var/tmp"  # noqa: S108 - mkdtemp makes a new folder
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KILL_ROUNDS = 20
_MOST_NAMES = 5


# --- processes


def kill_leftovers(scratch: Path, *, spare: Sequence[int]) -> list[str]:
    """Kill the processes that a killed fork server could not, and return their names.

    They are our children now, because we adopt orphans, except ``spare``, which we had
    before; and all processes with a HOME in ``scratch``, from before we did. Processes
    started through a service (systemd-run, docker, cron) are out of reach.
    """
    names = kill_children(spare=spare)
    killed: dict[int, str] = {}
    for _ in range(_KILL_ROUNDS):  # a process may fork while we look
        pids = set(_processes_at_home(scratch)) - {os.getpid()}
        if not pids:
            break
        for pid in pids:
            killed.setdefault(pid, name_of(pid))
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return [*names, *killed.values()]


def _processes_at_home(scratch: Path) -> Iterator[int]:
    marker = b"HOME=" + os.fsencode(scratch)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to someone else
            environment = (folder / "environ").read_bytes().split(b"\0")
            if any(
                entry == marker or entry.startswith(marker + b"/")
                for entry in environment
            ):
                yield int(folder.name)


def leftover_notes(workers: Iterable[Sequence[str]]) -> list[Message]:
    """The notes for documents on processes that workers left running, each by its name;
    none without any.
    """
    names = list(chain.from_iterable(workers))
    if not names:
        return []
    counts = Counter(one_line(name, limit=40) or "?" for name in names)
    listed = []
    for name, count in counts.most_common(_MOST_NAMES):
        listed.append(f"{name} ×{count}" if count > 1 else name)
    if len(counts) > _MOST_NAMES:
        listed.append("…")
    return [Message("notes.processes-left", {"count": len(names), "names": listed})]


# --- files


def unsafe_entries(out: Path) -> list[Path]:
    """Entries of a folder that must not be uploaded with it: links that lead out of it,
    any .git, pipes and the like.
    """
    root = out.resolve()
    entries = []
    for parent, folders, files in os.walk(root):
        for name in sorted([*folders, *files]):
            path = Path(parent, name)
            if name == ".git" or _leads_out(path, root):
                entries.append(path)
        folders[:] = [name for name in folders if name != ".git"]
    return entries


def _leads_out(path: Path, root: Path) -> bool:
    """Whether reading a path reads outside ``root``: a link elsewhere, or no regular
    file.
    """
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return root not in path.resolve().parents
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def remove_unsafe_entries(out: Path) -> list[str]:
    """Remove them from a folder that had none before user code ran, and return their
    names in it.
    """
    entries = unsafe_entries(out)
    for path in entries:
        remove(path)
    return [str(path.relative_to(out.resolve())) for path in entries]


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder and everything in it."""
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink()


# --- the scratch folder


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder and remove it at the end; folders of processes that have ended
    are removed first.

    Raises MeasuringError if none can be made.
    """
    try:
        is_chosen = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
        parent = (
            _SELDOM_USED
            if not is_chosen and os.access(_SELDOM_USED, os.W_OK | os.X_OK)
            else None
        )
        unlocked = Path(tempfile.mkdtemp(prefix=_UNLOCKED_PREFIX, dir=parent))
    except OSError as error:
        raise MeasuringError(
            "no scratch folder can be made ({error}); free space, or set TMPDIR to another folder",
            error=error.strerror or error,
        ) from error
    for folder in unlocked.parent.glob(f"{SCRATCH_PREFIX}*"):
        _sweep(folder)
    lock = os.open(unlocked, _FOLDER_FLAGS)
    try:
        # Locked before it has the name by which it is swept.
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratch = unlocked.rename(
            unlocked.with_name(unlocked.name.replace(_UNLOCKED_PREFIX, SCRATCH_PREFIX))
        )
        try:
            yield scratch
        finally:
            remove_folder(scratch)
    finally:
        os.close(lock)


def _sweep(folder: Path) -> None:
    """Remove a folder of this user that no process has locked."""
    try:
        lock = os.open(folder, _FOLDER_FLAGS)
    except OSError:  # gone in the meantime, a link, or another user's
        return
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
    except BlockingIOError:
        return
    finally:
        os.close(lock)
