"""The arguments of a flow that reach outside the process, and its display of progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from perfgate.conductor.workers.foresight import Foresight
from perfgate.document.bisection import BisectionDocument
from perfgate.document.budget import PlacePattern
from perfgate.document.decision import DecisionDocument
from perfgate.errors import UsageError
from perfgate.flows.shared.options import CheckOptions
from perfgate.judging.forge.forge import (
    CiEvent,
    Forge,
    Sleep,
    WallClock,
    connect,
    find_token,
)
from perfgate.judging.forge.runner import (
    SUMMARY_VARIABLE,
    append_to,
    log_lines,
    summary_path,
)


@dataclass(frozen=True)
class Doors:
    """The process's environment, its output, its clock (seconds since the epoch)."""

    environ: Mapping[str, str]
    say: Callable[[str], None]
    sleep: Sleep
    clock: WallClock

    @classmethod
    def of_this_process(cls, say: Callable[[str], None]) -> Doors:
        return cls(os.environ, say, time.sleep, time.time)

    def say_foreign(self, text: str) -> None:
        """Print a text with foreign input, so that the CI host executes none of it."""
        self.say(log_lines(text, self.environ))

    def summarise(self, text: str) -> None:
        """Add a text to the summary on the job's page, if the CI host has one."""
        summary = summary_path(self.environ)
        if summary is not None:
            append_to(summary, text + "\n", SUMMARY_VARIABLE)

    def now(self) -> str:
        """The time by this clock, in UTC, ISO 8601."""
        return datetime.fromtimestamp(self.clock(), timezone.utc).isoformat()

    def connect(self, event: CiEvent) -> Forge | None:
        """The forge of an event, with the job's token; None without one."""
        token = find_token(event.forge, self.environ)
        if token:
            return connect(event, token, sleep=self.sleep, clock=self.clock)
        return None


def given_file(path: Path | None, variable: str, option: str) -> Path:
    """The file that GitHub's runner names in a variable.

    Raises UsageError if it is not set, because an option needs it.
    """
    if path is None:
        raise UsageError(
            "{option} needs the file that GitHub's runner names in {variable}, which is not set here",
            option=option,
            variable=variable,
        )
    return path


class Progress(Protocol):
    """The display of progress: ``status`` replaces the last line, ``note`` stays,
    ``expect`` gives the time left.
    """

    def status(self, text: str) -> None:
        """Show the current activity; the next status may replace it at once."""

    def note(self, text: str) -> None:
        """Print a line that stays."""

    def expect(self, foresight: Foresight) -> None:
        """Replace the estimate of the time left."""


class Quiet:
    """Shows no progress."""

    def status(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def expect(self, foresight: Foresight) -> None:
        pass


class Remembering:
    """Passes progress on, and remembers the notes: the report lists the problems too."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.notes: list[str] = []

    def status(self, text: str) -> None:
        self._progress.status(text)

    def expect(self, foresight: Foresight) -> None:
        self._progress.expect(foresight)

    def note(self, text: str) -> None:
        self.notes.append(str(text))  # in English, as documents quote an activity
        self._progress.note(text)


# The function that measures a change: `check_change`, passed as an argument to the
# flows that need it.
Check = Callable[[Path, CheckOptions, Progress], DecisionDocument]


class Bisect(Protocol):
    """The function that finds the commit of a regression by gates, passed as an
    argument as ``Check`` is.
    """

    def __call__(
        self,
        directory: Path,
        good: str,
        bad: str,
        options: CheckOptions,
        check: Check,
        progress: Progress,
        *,
        metric: PlacePattern | None,
    ) -> tuple[BisectionDocument, DecisionDocument | None]:
        """The search, and the decision of the gate that shows its result."""
