"""Run git: the one door to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from perfgate.errors import RepositoryError
from perfgate.system.interrupts import safe_point

TICK_SECONDS = 0.2
# A whole id of a commit, by SHA-1 or SHA-256: not the name of anything else.
COMMIT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# All files that two commits do not share, a renamed one under both names. A .gitmodules can ask that changes of a submodule
# are shown nowhere.
NAMES_OF_CHANGED = ("diff", "--name-only", "-z", "--no-renames", "--ignore-submodules=none")
# What ties git to one clone (git rev-parse --local-env-vars). A hook that runs perfgate has them set, and `worktree add`
# would write the caller's index through GIT_INDEX_FILE.
_TIES = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE",
    "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INTERNAL_SUPER_PREFIX",
})  # fmt: skip
# Hooks must not run, whatever the command: they may be the change's own code, in our environment.
_OPTIONS = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
# Optional locks: `git status` would write a refreshed index, and the index is the user's.
_SETTINGS = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat"}


class GitResult(NamedTuple):
    """How a git command ended: exit code, standard output without the last newline, its complaints on one line."""

    code: int
    output: str
    errors: str


class GitBytes(NamedTuple):
    """How a git command ended whose output is data: exit code, standard output to the byte, its complaints on one line."""

    code: int
    output: bytes
    errors: str


def run_git(
    folder: Path,
    arguments: Sequence[str],
    extra: Mapping[str, str],
    *,
    stop_when_interrupted: bool = True,
    limit_seconds: float | None = None,
) -> GitResult:
    """Run git in a folder. Raises RepositoryError when there is no git, or none that ends within ``limit_seconds``.

    It runs in a session of its own, so that ctrl-C reaches us alone; then it is ended at the next safe point.
    """
    done = exchange_with_git(
        folder, arguments, extra, stop_when_interrupted=stop_when_interrupted, limit_seconds=limit_seconds
    )
    return GitResult(done.code, _text(done.output).rstrip("\n"), done.errors)


def exchange_with_git(
    folder: Path,
    arguments: Sequence[str],
    extra: Mapping[str, str],
    *,
    feed: bytes = b"",
    stop_when_interrupted: bool = True,
    limit_seconds: float | None = None,
) -> GitBytes:
    """Run git as ``run_git`` does, with ``feed`` as its standard input, and return its output as it is."""
    inherited = {name: value for name, value in os.environ.items() if name not in _TIES}
    try:
        process = subprocess.Popen(
            ["git", *_OPTIONS, *arguments],
            cwd=folder,
            env={**inherited, **_SETTINGS, **extra},
            stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise RepositoryError("git is not installed or not on PATH") from None
    try:
        _begin_to_feed(process, feed)
        output, errors = _communicate(process, stop_when_interrupted, limit_seconds)
    except BaseException:
        _kill(process)
        raise
    return GitBytes(process.returncode, output, " ".join(_text(errors).split()))


def _begin_to_feed(process: subprocess.Popen[bytes], feed: bytes) -> None:
    """Let a thread write what git reads.

    ``communicate`` would send no more of it once it has timed out (CPython 3.11, subprocess.Popen._communicate).
    """
    pipe, process.stdin = process.stdin, None
    if pipe is not None:
        threading.Thread(target=_feed, args=(pipe, feed), daemon=True).start()


def _feed(pipe: IO[bytes], feed: bytes) -> None:
    with suppress(BrokenPipeError), pipe:  # git may end before it has read all
        pipe.write(feed)


def _communicate(
    process: subprocess.Popen[bytes], stop_when_interrupted: bool, limit_seconds: float | None
) -> tuple[bytes, bytes]:
    started = time.monotonic()
    while True:
        if stop_when_interrupted:
            safe_point()
        try:
            return process.communicate(timeout=TICK_SECONDS)
        except subprocess.TimeoutExpired:
            if limit_seconds is not None and time.monotonic() - started > limit_seconds:
                raise RepositoryError(f"git gave no answer in {limit_seconds:.0f} s") from None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
