"""What a command that measures is asked for: the options of a check, and steps of the checklist."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfgate.catalogue.lookup import CARDS
from perfgate.document.decision import Comparing
from perfgate.document.run import RunDocument
from perfgate.errors import EXIT_FAIL, EXIT_MEASURING, EXIT_PASS, UsageError
from perfgate.locale import Language
from perfgate.measuring.checklist import step_numbers

AVAILABLE_STEPS = step_numbers()
# What describes a run at a glance, and what a check measures of both sides where its time is short.
FIRST_STEPS = (1, 2, 3, 4, 5)
# Three digits: a larger number is no step, and a range of it would fill the memory.
_STEP_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")


class GivenInterpreters(NamedTuple):
    """The interpreters named on the command line; None where none is."""

    base: Path | None = None
    head: Path | None = None


NONE_GIVEN = GivenInterpreters()


@dataclass(frozen=True)
class CheckOptions:
    """What the command line asks for.

    ``work_tree`` measures uncommitted changes too (``perfgate local``); ``append`` adds pairs to those of an earlier job in
    ``out``, where there are any. ``append_from`` is a folder with what earlier attempts of a CI job left: pairs are added to
    theirs where they fit, else everything is measured anew. ``interpreters`` are those named for the sides; ``comparing``
    the stack takes one commit for both sides (``perfgate upgrade``). ``steps`` of the checklist run on both sides, None is all;
    ``checklist_budget`` are the seconds for their turns, None is what perfgate.toml says. Comment and report are written in
    ``language``. ``head`` is another revision than the one that is checked out; ``always`` measures also what the path filter
    would skip. After ``time_budget`` seconds nothing new is begun. The budgets of perfgate.toml are multiplied by ``budgets``.
    """

    out: Path
    base: str | None = None
    head: str | None = None
    always: bool = False
    time_budget: float = math.inf
    budgets: float = 1.0
    workloads: tuple[str, ...] = ()
    steps: tuple[int, ...] | None = None
    checklist_budget: float | None = None
    quick: bool = False
    work_tree: bool = False
    allow_dirty: bool = False
    device: str | None = None
    append: bool = False
    append_from: Path | None = None
    interpreters: GivenInterpreters = NONE_GIVEN
    comparing: Comparing = "code"
    language: Language = "en"


def parse_steps(text: str | None) -> tuple[int, ...]:
    """Read ``1,3-5`` or slugs; None means every step there is. Raises UsageError that lists the steps."""
    if text is None:
        return AVAILABLE_STEPS
    slugs = {card.slug: number for number, card in CARDS.items()}
    chosen: set[int] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        bounds = _STEP_RANGE.fullmatch(word)
        if word in slugs:
            chosen.add(slugs[word])
        elif bounds:
            chosen.update(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
        else:
            raise UsageError(
                "--steps does not know {word!r}; write numbers, ranges or names, e.g. 1,3-5 or latency,batch",
                word=word,
            )
    missing = sorted(chosen - set(AVAILABLE_STEPS))
    if missing or not chosen:
        there = ", ".join(f"{number} {CARDS[number].slug}" for number in AVAILABLE_STEPS)
        raise UsageError(
            "--steps: no step {missing}; there are {there}",
            missing=", ".join(map(str, missing)) or "named",
            there=there,
        )
    return tuple(sorted(chosen))


def exit_code(run: RunDocument) -> int:
    """The documented exit code: 4 when something could not be measured, 1 when a correctness check failed."""
    failed = any(step.status == "error" for step in run.steps) or any(workload.error for workload in run.workloads)
    if failed or run.failed_pairs or any(check.status == "error" for check in run.correctness):
        return EXIT_MEASURING
    return EXIT_FAIL if any(check.status == "failed" for check in run.correctness) else EXIT_PASS
