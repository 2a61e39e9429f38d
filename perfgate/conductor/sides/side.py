"""One side of a job, of any kind, which takes turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from perfgate.conductor.sides.program import SideError, SideProgram
from perfgate.conductor.sides.stacks.stacks import (
    SideStacks,
    record_operators,
    sample_stacks,
)
from perfgate.document.job import JobNumber, ProfileUnit, TurnResult
from perfgate.document.message import MessageValue
from perfgate.document.run import ErrorKind
from perfgate.document.samples import SampleSet, pack
from perfgate.job_settings import JobReference
from perfgate.system.walls import Room

# Quantiles up to P99 hardly change with more than this many.
_MOST_SAMPLES = 1024


def times_of(metric: str, seconds: npt.ArrayLike) -> SampleSet:
    """The samples of a turn, or as many quantiles of them as are kept: a run may report
    a hundred thousand.
    """
    times = np.asarray(seconds, dtype=np.float64)
    if times.size > _MOST_SAMPLES:
        times = np.quantile(times, (np.arange(_MOST_SAMPLES) + 0.5) / _MOST_SAMPLES)
    return SampleSet(
        metric=metric,
        samples=pack(np.maximum(np.round(times * 1e9), 0).astype(np.int64)),
    )


class Side(Protocol):
    """Base or head of a job.

    It works only in its turn and does not know the other side.

    ``numbers`` are those that its turns have, known after the first; ``is_blurred`` is
    whether the token times of the last turn are unknown. Every method raises SideError,
    with the error and the end of the log.
    """

    @property
    def numbers(self) -> tuple[JobNumber, ...]: ...

    @property
    def is_blurred(self) -> bool: ...

    def start(self) -> None:
        """Start the processes; both sides are started before one of them is waited for."""

    def warm_up(self) -> None:
        """Wait until the processes are ready, and let them work until they are warm."""

    def turn(self, number: int) -> TurnResult:
        """Do the work of turn ``number``, the same for both sides."""

    def count(self) -> Mapping[str, int]:
        """Count, after the last turn, the code that a turn executes, if that takes a
        separate run; empty for most sides.
        """

    def profile(self, number: int) -> SideStacks | None:
        """Sample stacks and record operators of the side while it does the work of
        turns from ``number`` on.

        None where that is not possible.
        """

    def stop(self) -> None:
        """End every process; a side that is not running stays so."""


class SidePlan(NamedTuple):
    """How the sides of a kind of job take turns.

    A quad is ``turns`` turns, half of each side. Both sides are started afresh once the
    turns of a start have taken as long as the start itself, or three times as long
    after the first few starts, after ``fewest`` to ``most`` quads; if ``most`` is 0
    every turn is a separate process. The last quads before a look, or before the time
    is up, belong to the start before them if another start takes longer. With
    ``one_by_one`` a side is warm before the other is started.
    """

    turns: int
    fewest: int = 0
    most: int = 0
    one_by_one: bool = False


@dataclass(frozen=True)
class SidePlace:
    """The place of a side: its checkout, its environment and its log file.

    ``harness`` is the checkout with the recorded requests for both sides. ``alone``
    means that it has its devices for itself while it runs. ``left_behind`` gets the
    names of the processes that a run leaves running, one list a run. ``without`` are
    the fields left out of requests to either side; a side adds those that its server
    rejects. Its programs run within the walls of ``room``.
    """

    root: Path
    environment: Mapping[str, str]
    log: Path
    cpus: list[int] = field(default_factory=list)
    alone: bool = False
    left_behind: list[list[str]] = field(default_factory=list)
    harness: Path = Path()
    without: set[str] = field(default_factory=set)
    room: Room | None = None

    @property
    def profile(self) -> Path:
        """The folder of its profile, which is not there until there is one."""
        return self.log.with_suffix(".profile")

    def run(
        self,
        line: str,
        variables: Mapping[str, str],
        *,
        cpus: list[int] | None = None,
        log: Path | None = None,
    ) -> SideProgram:
        """Start a program in this place, with further environment variables."""
        return SideProgram(
            line,
            folder=self.root,
            environment={**self.environment, **variables},
            log=log or self.log,
            cpus=self.cpus if cpus is None else cpus,
            room=self.room,
        )


class ProgramSide:
    """A side with one program, which runs during one turn or several."""

    is_blurred = False

    def __init__(self, reference: JobReference, place: SidePlace) -> None:
        self._settings = reference.settings
        self._place = place
        self._program: SideProgram | None = None

    def count(self) -> Mapping[str, int]:
        return {}

    def stop(self) -> None:
        if self._program is not None:
            self._program.stop()
            self._program = None

    @property
    def _running(self) -> SideProgram:
        assert self._program is not None, (
            "a side is started before anything is asked of it"
        )
        return self._program

    def _failed(
        self, kind: ErrorKind, code: str, /, **values: MessageValue
    ) -> SideError:
        return self._running.failed(kind, code, **values)

    def _sample(
        self,
        work: Callable[[], int],
        per: ProfileUnit,
        *,
        begin: Callable[[Path], bool] = lambda _: False,
        end: Callable[[], None] = lambda: None,
    ) -> SideStacks | None:
        """Sample stacks and record operators of the program while ``work`` is done.

        ``begin`` and ``end`` switch its own profiler. Without operators the stacks
        count all the same. None if no program runs, e.g. because the time was up before
        the first start.
        """
        program = self._program
        if program is None:
            return None
        sampled = sample_stacks(
            self._place.profile, program.processes, work, per, program.cpu_meter().read
        )
        with suppress(SideError):
            return record_operators(
                sampled, program.processes, work, begin=begin, end=end
            )
        return sampled
