"""What measuring needs to be allowed to do, tried out: a scratch home, worktrees, pinning, the machine lock."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from perfgate.conductor.machine.lock import machine_lock
from perfgate.document.doctor import FitnessCheck, FitnessStatus
from perfgate.document.message import Message, MessageValue, quote, reason_of
from perfgate.errors import MeasuringError, RepositoryError
from perfgate.git.commands import run_git
from perfgate.git.repository import Repository
from perfgate.system.folders import remove_folder

# rev-parse --path-format, by which worktrees are placed, came with 2.31 (git's release notes).
OLDEST_GIT = (2, 31)
_AUTHOR = {f"GIT_{role}_{field}": "perfgate" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


def try_everything(scratch: Path, lock: Path) -> list[FitnessCheck]:
    """One check a permission; ``scratch`` is where workers get their homes, ``lock`` the machine's lock."""
    return [try_scratch(scratch), try_pinning(), try_git(), try_worktrees(scratch), try_lock(lock)]


def try_scratch(folder: Path) -> FitnessCheck:
    name = "scratch home"
    try:
        home = Path(tempfile.mkdtemp(prefix="perfgate-", dir=folder))
        try:
            (home / "written").write_text("by perfgate doctor")
        finally:
            remove_folder(home)
    except OSError as error:
        refused = _message("scratch-refused", folder=str(folder), error=str(error.strerror))
        return FitnessCheck(name, "unfit", refused, _message("scratch-remedy"))
    return FitnessCheck(name, "ok", _message("scratch", folder=str(folder)))


def try_pinning() -> FitnessCheck:
    """Pin this process to each CPU of its mask in turn, and give it the mask back."""
    mask = os.sched_getaffinity(0)
    try:
        for cpu in sorted(mask):
            os.sched_setaffinity(0, {cpu})
    except OSError as error:
        refused = _message("pinning-refused", error=str(error.strerror))
        return FitnessCheck("pinning", "unfit", refused, _message("pinning-remedy"))
    finally:
        os.sched_setaffinity(0, mask)
    return FitnessCheck("pinning", "ok", _message("pinning"))


def try_git() -> FitnessCheck:
    try:
        return judge_git(run_git(Path.cwd(), ["--version"], {}).output)
    except RepositoryError as error:
        return FitnessCheck("git", "unfit", reason_of(error), _message("git-remedy"))


def judge_git(version: str) -> FitnessCheck:
    numbers = re.search(r"(\d+)\.(\d+)", version)
    status: FitnessStatus = "attention"
    if numbers is not None:
        status = "unfit" if (int(numbers[1]), int(numbers[2])) < OLDEST_GIT else "ok"
    return FitnessCheck("git", status, quote(version), None if status == "ok" else _message("git-remedy"))


def try_worktrees(scratch: Path) -> FitnessCheck:
    """Check out a commit of a scratch repository the way a gate checks out base and head."""
    try:
        with tempfile.TemporaryDirectory(prefix="perfgate-doctor-", dir=scratch) as folder:
            clone = Path(folder)
            for arguments in (
                ["init", "--quiet"],
                ["commit", "--quiet", "--allow-empty", "--no-gpg-sign", "-m", "one"],
            ):
                result = run_git(clone, arguments, _AUTHOR)
                if result.code:
                    raise RepositoryError(f"git {arguments[0]} failed: {result.errors}")
            repository = Repository(clone)
            with repository.worktrees({"base": repository.head()}, link=[]):
                return FitnessCheck("worktrees", "ok", _message("worktrees"))
    except (OSError, RepositoryError) as error:
        return FitnessCheck("worktrees", "unfit", reason_of(error), _message("worktrees-remedy"))


def try_lock(path: Path) -> FitnessCheck:
    """Take the machine's lock and give it back; who holds it is worth a word, one that cannot be opened is unfit."""
    name = "machine lock"
    holder: list[str] = []
    try:
        with machine_lock(path, purpose="perfgate doctor", say=holder.append, timeout=0.0):
            return FitnessCheck(name, "ok", _message("lock", path=str(path)))
    except MeasuringError as error:
        if holder:
            return FitnessCheck(name, "attention", quote(holder[0]), _message("lock-held-remedy"))
        return FitnessCheck(name, "unfit", reason_of(error), _message("lock-remedy"))


def _message(name: str, **values: MessageValue) -> Message:
    return Message(f"fitness.{name}", values)
