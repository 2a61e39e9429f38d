"""What a job is given: the ways out of the process, and where it says what goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfgate.conductor.workers.foresight import Foresight
from perfgate.document.decision import DecisionDocument
from perfgate.flows.shared.options import CheckOptions
from perfgate.judging.forge.forge import Clock, Sleep


@dataclass(frozen=True)
class Doors:
    """The process's environment, its output, its clock (seconds since the epoch)."""

    environ: Mapping[str, str]
    say: Callable[[str], None]
    sleep: Sleep
    clock: Clock


class Progress(Protocol):
    """Where a flow says what goes on: ``status`` replaces the last line, ``note`` stays, ``expect`` is how long it takes."""

    def status(self, text: str) -> None:
        """Say what is being waited for; it may be replaced at once."""

    def note(self, text: str) -> None:
        """Say something that stays."""

    def expect(self, foresight: Foresight) -> None:
        """Say what is known of the time left, in the place of what was known before."""


# What measures a change: `check_change`, which a job gets as an argument where it needs one.
Check = Callable[[Path, CheckOptions, Progress], DecisionDocument]
