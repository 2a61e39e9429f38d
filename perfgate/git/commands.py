"""Run git, always through here: GitPython starts every command, and this module bounds
it.

A command runs no hook and no shell, leaves the index alone, may be ended at any time,
and ends with us.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import IO, NamedTuple

from perfgate.errors import RepositoryError
from perfgate.system.interrupts import safe_point

TICK_SECONDS = 0.2
# A whole id of a commit, by SHA-1 or SHA-256: not the name of anything else.
COMMIT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# All files that two commits do not share, a renamed one under both names. A .gitmodules
# can ask that changes of a submodule are shown nowhere.
NAMES_OF_CHANGED = (
    "diff",
    "--name-only",
    "-z",
    "--no-renames",
    "--ignore-submodules=none",
)
_SETTINGS_OF_COMMANDS = (
    # Hooks must never run: they may be the change's own code, in our environment.
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    # A user may have chosen each of these to be different, for reading: with colors,
    # line numbers or signatures the output cannot be parsed, and paths that are
    # relative to the folder leave out the changes outside of it.
    "color.ui=false",
    "color.grep=false",
    "grep.lineNumber=false",
    "grep.column=false",
    "log.showSignature=false",
    "diff.relative=false",
)
_OPTIONS = tuple(
    chain.from_iterable(("-c", setting) for setting in _SETTINGS_OF_COMMANDS)
)
# Optional locks: `git status` would write a refreshed index, and the index is the
# user's.
_SETTINGS = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat"}


class GitResult(NamedTuple):
    """How a git command ended: exit code, standard output to the byte, its complaints
    on one line.
    """

    code: int
    data: bytes
    errors: str

    @property
    def output(self) -> str:
        """The standard output as text without the last newline."""
        return _text(self.data).rstrip("\n")

    @property
    def answer(self) -> str | None:
        """The output, None if the command failed."""
        return None if self.code else self.output


def run_git(
    folder: Path,
    arguments: Sequence[str],
    extra: Mapping[str, str] | None = None,
    *,
    feed: bytes = b"",
    stop_when_interrupted: bool = True,
    limit_seconds: float | None = None,
) -> GitResult:
    """Run git in a folder, with ``feed`` as its standard input and ``extra`` variables.

    Raises RepositoryError when there is no git, or none that ends within
    ``limit_seconds``. It runs in a new session, so that ctrl-C reaches us alone; then
    it is ended at the next safe point.
    """
    git = _library()
    if not folder.is_dir():
        # GitPython would run in the current folder instead.
        raise RepositoryError("{folder} does not exist", folder=folder)
    try:
        # The limits of GitPython's own waiting end with SIGKILL to a list of processes
        # taken earlier; a session is killed as a whole.
        running = git.Git(folder).execute(
            ["git", *_OPTIONS, *arguments],
            istream=subprocess.PIPE if feed else None,
            env={**_SETTINGS, **(extra or {})},
            as_process=True,
            start_new_session=True,
        )
    except git.GitCommandNotFound:
        raise RepositoryError("git is not installed or not on PATH") from None
    process: subprocess.Popen[bytes] = running.proc
    try:
        pipe, process.stdin = process.stdin, None
        if pipe is not None:
            # In a thread: ``communicate`` sends no more once it has timed out (CPython
            # 3.11, Popen._communicate).
            threading.Thread(target=_feed, args=(pipe, feed), daemon=True).start()
        output, errors = _communicate(process, stop_when_interrupted, limit_seconds)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return GitResult(process.returncode, output, " ".join(_text(errors).split()))


def entries_of(output: str) -> list[str]:
    """The entries of an output with ``-z``, each of which ends in a zero byte."""
    return list(filter(None, output.split("\0")))


def contents_of(batch: bytes) -> Iterator[tuple[str, bytes]]:
    """Parse the output of `git cat-file --batch`: a line of name, type and size, then
    the content and a newline.
    """
    place = 0
    while place < len(batch):
        end = batch.index(b"\n", place)
        name, _kind, size = batch[place:end].split(b" ")
        start = end + 1
        yield name.decode(), batch[start : start + int(size)]
        place = start + int(size) + 1


@cache
def _library() -> ModuleType:
    """GitPython, imported by the first command only: it takes some tenths of a second,
    and asks git for its version.
    """
    # Without git it would print a warning or refuse to be imported; a command reports
    # it better.
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import git

    return git


def _feed(pipe: IO[bytes], feed: bytes) -> None:
    with suppress(BrokenPipeError), pipe:  # git may end before it has read all
        pipe.write(feed)


def _communicate(
    process: subprocess.Popen[bytes],
    stop_when_interrupted: bool,
    limit_seconds: float | None,
) -> tuple[bytes, bytes]:
    started = time.monotonic()
    while True:
        if stop_when_interrupted:
            safe_point()
        try:
            return process.communicate(timeout=TICK_SECONDS)
        except subprocess.TimeoutExpired:
            if limit_seconds is not None and time.monotonic() - started > limit_seconds:
                raise RepositoryError(
                    "git gave no answer in {limit_seconds:.0f} s",
                    limit_seconds=limit_seconds,
                ) from None


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
