"""What ``perfgate check``, ``perfgate local`` and ``perfgate upgrade`` can be asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfgate.document.decision import Comparing, DecisionDocument
from perfgate.jobs.shared.doors import Progress
from perfgate.jobs.shared.steps import DEFAULT_HEAD_STEPS
from perfgate.locale import Language


class GivenInterpreters(NamedTuple):
    """The interpreters named on the command line; None where none is."""

    base: Path | None = None
    head: Path | None = None


NONE_GIVEN = GivenInterpreters()


@dataclass(frozen=True)
class CheckOptions:
    """What the command line asks for.

    ``work_tree`` measures uncommitted changes too (``perfgate local``); ``append`` adds pairs to those of an earlier job in
    ``out``, where there are any. ``interpreters`` are those named for the sides; ``comparing`` the stack takes one commit for
    both sides (``perfgate upgrade``). Comment and report are written in ``language``. ``head`` is another revision than the
    one that is checked out; ``always`` measures also what the path filter would skip. After ``time_budget`` seconds
    nothing new is begun.
    """

    out: Path
    base: str | None = None
    head: str | None = None
    always: bool = False
    time_budget: float = math.inf
    workloads: tuple[str, ...] = ()
    steps: tuple[int, ...] = DEFAULT_HEAD_STEPS
    quick: bool = False
    work_tree: bool = False
    allow_dirty: bool = False
    device: str | None = None
    append: bool = False
    interpreters: GivenInterpreters = NONE_GIVEN
    comparing: Comparing = "code"
    language: Language = "en"


# What measures a change: `check_change`, which a job gets as an argument where it needs one.
Check = Callable[[Path, CheckOptions, Progress], DecisionDocument]
