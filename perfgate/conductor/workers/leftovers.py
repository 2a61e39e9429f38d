"""What user code may leave behind: processes that outlived their worker, folders that resist being removed, planted links."""

from __future__ import annotations

import os
import signal
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfgate.conductor.workers.logs import one_line
from perfgate.system.folders import remove_folder
from perfgate.system.processes import kill_children, name_of

_ROUNDS = 20
_NAMED = 5


def kill_leftovers(scratch: Path, *, spare: Sequence[int]) -> list[str]:
    """Kill what a killed fork server could not, and return the names of those processes.

    They are our children now, for we adopt orphans, but for ``spare``, which we had before; and whoever has a HOME in
    ``scratch``, from a time before we did. What a service started for them (systemd-run, docker, cron) is out of reach.
    """
    names = kill_children(spare=spare)
    killed: dict[int, str] = {}
    for _ in range(_ROUNDS):  # a process may fork while we look
        found = set(_processes_at_home(scratch)) - {os.getpid()}
        if not found:
            break
        for pid in found:
            killed.setdefault(pid, name_of(pid))
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
    return [*names, *killed.values()]


def left_processes(workers: Iterable[Sequence[str]]) -> list[str]:
    """Return what a document says of the processes that workers left running, each by its name; nothing where none did."""
    left = [list(names) for names in workers if names]
    if not left:
        return []
    counts = Counter(one_line(name, limit=40) or "?" for names in left for name in names)
    named = [f"{name} ×{count}" if count > 1 else name for name, count in counts.most_common(_NAMED)]
    total = sum(counts.values())
    processes = "1 process" if total == 1 else f"{total} processes"
    more = ", …" if len(counts) > _NAMED else ""
    return [f"left {processes} running, now killed: {', '.join(named)}{more}"]


def stowaways(out: Path) -> list[Path]:
    """Return what in a folder must not be uploaded with it: links that lead out of it, any .git, pipes and the like."""
    root = out.resolve()
    found = []
    for parent, folders, files in os.walk(root):
        for name in sorted([*folders, *files]):
            path = Path(parent, name)
            if name == ".git" or _leads_out(path, root):
                found.append(path)
        folders[:] = [name for name in folders if name != ".git"]
    return found


def sweep_out(out: Path) -> list[str]:
    """Remove the stowaways of a folder that had none before user code ran, and return their names in it."""
    found = stowaways(out)
    for path in found:
        remove(path)
    return [str(path.relative_to(out.resolve())) for path in found]


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder and everything in it."""
    remove_folder(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _leads_out(path: Path, root: Path) -> bool:
    """Tell whether whoever reads a path reads what does not lie below ``root``: a link elsewhere, or no file at all."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return root not in path.resolve().parents
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _processes_at_home(scratch: Path) -> list[int]:
    marker = b"HOME=" + os.fsencode(scratch)
    return [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if any(entry == marker or entry.startswith(marker + b"/") for entry in _environment(folder))
    ]


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to someone else
        return []
