"""What ``perfgate check``, ``perfgate local`` and ``perfgate upgrade`` can be asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from perfgate.document.decision import Comparing
from perfgate.jobs.check.environments import NONE_GIVEN, GivenInterpreters
from perfgate.locale import Language

DEFAULT_HEAD_STEPS = (1, 2, 3, 4)


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
