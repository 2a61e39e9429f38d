"""The options of commands that measure: of a check, and the steps of the checklist."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.catalogue.lookup import CARDS
from perfgate.config import GateSettings
from perfgate.document.comparison import Comparison
from perfgate.document.decision import Comparing
from perfgate.document.run import RunDocument
from perfgate.errors import EXIT_FAIL, EXIT_MEASURING, EXIT_PASS, UsageError
from perfgate.locale import Language
from perfgate.measuring.checklist import step_numbers

AVAILABLE_STEPS = step_numbers()
# The steps that summarize a run; a check with little time measures only these on both
# sides.
FIRST_STEPS = (1, 2, 3, 4, 5)
# At most three digits: larger numbers are not steps, and a range up to one could fill
# the memory.
_STEP_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")


# Whether the comparisons so far, at one of the looks of the policy, answer the question
# of a check.
Decided = Callable[[Sequence[Comparison], Sequence[int]], bool]


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """Which change is checked, and by which settings.

    ``work_tree`` takes uncommitted changes too (``perfgate local``), and ``head`` a
    revision that is not checked out; ``comparing`` ``stack`` takes one commit for both
    sides (``perfgate upgrade``), and ``base_python`` and ``head_python`` are the
    interpreters named for them. ``always`` also measures a change that the path filter
    would skip. The budgets of perfgate.toml are multiplied by ``budgets``.
    """

    base: str | None = None
    head: str | None = None
    work_tree: bool = False
    allow_dirty: bool = False
    comparing: Comparing = "code"
    base_python: Path | None = None
    head_python: Path | None = None
    workloads: tuple[str, ...] = ()
    device: str | None = None
    always: bool = False
    budgets: float = 1.0

    @property
    def command(self) -> str:
        """The command with these options."""
        if self.comparing == "stack":
            return "upgrade"
        return "local" if self.work_tree else "check"


@dataclass(frozen=True)
class CheckOptions(ChangeOptions):
    """The options of a check: how the change is measured, and where the results go.

    Pairs are added to the newest result in the folder ``append_from`` that is
    compatible. ``steps`` of the checklist run on both sides, None is all;
    ``checklist_budget`` are the seconds for their turns. After ``time_budget`` seconds
    no new part begins. Without ``cost`` no pairs are measured once counters fail the
    gate. With ``decided`` pairs end when it holds, not when the verdict is clear, and
    none are profiled.
    """

    out: Path
    append_from: Path | None = None
    steps: tuple[int, ...] | None = None
    checklist_budget: float | None = None
    time_budget: float = math.inf
    cost: bool = True
    decided: Decided | None = None
    language: Language = "en"

    def checklist_seconds(self, gate: GateSettings) -> float:
        """The seconds for turns of the checklist of a workload."""
        if self.checklist_budget is None:
            return gate.checklist_budget
        return self.checklist_budget


def parse_steps(text: str | None) -> tuple[int, ...]:
    """Read ``1,3-5`` or slugs; None means every step.

    Raises UsageError that lists the steps.
    """
    if text is None:
        return AVAILABLE_STEPS
    slugs = {card.slug: number for number, card in CARDS.items()}
    chosen: set[int] = set()
    for part in text.split(","):
        word = part.strip()
        bounds = _STEP_RANGE.fullmatch(word)
        if word in slugs:
            chosen.add(slugs[word])
        elif bounds:
            chosen.update(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
        elif word:
            raise UsageError(
                "--steps does not know {word!r}; write numbers, ranges or names, e.g. 1,3-5 or latency,batch",
                word=word,
            )
    missing = sorted(chosen - set(AVAILABLE_STEPS))
    if missing or not chosen:
        there = ", ".join(
            f"{number} {CARDS[number].slug}" for number in AVAILABLE_STEPS
        )
        raise UsageError(
            "--steps: no step {missing}; there are {there}",
            missing=", ".join(map(str, missing)) or "named",
            there=there,
        )
    return tuple(sorted(chosen))


def exit_code(run: RunDocument) -> int:
    """The documented exit code: 4 when something could not be measured, 1 when a
    correctness check failed.
    """
    steps = {step.status for step in run.checklist.steps}
    checks = {check.status for check in run.checklist.correctness}
    unmeasured = run.pairs.failed or "error" in steps or "error" in checks
    if unmeasured or any(workload.error for workload in run.workloads):
        return EXIT_MEASURING
    if "failed" in checks:
        return EXIT_FAIL
    return EXIT_PASS
