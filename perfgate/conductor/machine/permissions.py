"""What measuring needs to be allowed to do, tried out: a scratch home, worktrees, pinning, the machine lock."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from perfgate.conductor.machine.lock import machine_lock
from perfgate.document.doctor import FitnessCheck
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
    """Make a home for a worker and write into it."""
    try:
        home = Path(tempfile.mkdtemp(prefix="perfgate-", dir=folder))
        try:
            (home / "written").write_text("by perfgate doctor")
        finally:
            remove_folder(home)
    except OSError as error:
        return FitnessCheck(
            "scratch home",
            "unfit",
            f"{folder} cannot be written: {error.strerror}",
            "set TMPDIR to a folder that the job may write to",
        )
    return FitnessCheck("scratch home", "ok", f"{folder} can be written")


def try_pinning() -> FitnessCheck:
    """Pin this process to each CPU of its mask in turn, and give it the mask back."""
    mask = os.sched_getaffinity(0)
    try:
        for cpu in sorted(mask):
            os.sched_setaffinity(0, {cpu})
    except OSError as error:
        return FitnessCheck(
            "pinning",
            "unfit",
            f"a CPU of the mask is refused: {error.strerror}",
            "allow sched_setaffinity in the container's seccomp profile; pairs share one CPU",
        )
    finally:
        os.sched_setaffinity(0, mask)
    return FitnessCheck("pinning", "ok", "processes can be pinned to a CPU")


def try_git() -> FitnessCheck:
    """Ask git for its version."""
    try:
        version = run_git(Path.cwd(), ["--version"], {}).output
    except RepositoryError as error:
        return FitnessCheck("git", "unfit", str(error), "install git")
    return judge_git(version)


def judge_git(version: str) -> FitnessCheck:
    """Judge what ``git --version`` says."""
    numbers = re.search(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return FitnessCheck("git", "attention", f"says {version!r}", "install git 2.31 or newer")
    if (int(numbers[1]), int(numbers[2])) < OLDEST_GIT:
        return FitnessCheck("git", "unfit", version, "install git 2.31 or newer")
    return FitnessCheck("git", "ok", version)


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
                pass
    except (OSError, RepositoryError) as error:
        return FitnessCheck(
            "worktrees",
            "unfit",
            str(error),
            "make git work in the temporary folder; base and head are checked out as worktrees",
        )
    return FitnessCheck("worktrees", "ok", "a commit can be checked out beside another")


def try_lock(path: Path) -> FitnessCheck:
    """Take the machine's lock and give it back; who holds it is worth a word, one that cannot be opened is unfit."""
    holder: list[str] = []
    try:
        with machine_lock(path, purpose="perfgate doctor", say=holder.append, timeout=0.0):
            pass
    except MeasuringError as error:
        if holder:
            return FitnessCheck("machine lock", "attention", holder[0], "let it end; a gate waits for it")
        return FitnessCheck("machine lock", "unfit", str(error), "set PERFGATE_LOCK to a file you can write")
    return FitnessCheck("machine lock", "ok", f"free ({path})")
