"""Commands: the lines of Python that a run executes, a nearly exact count if two runs of a side agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfgate.catalogue.names import COMMAND_LINES
from perfgate.document.comparison import Comparison, Outcome
from perfgate.document.decision import Policy
from perfgate.document.job import PYTHON_LINES, Turn
from perfgate.document.message import Message
from perfgate.judging.gate.compare.comparison import exact
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import tolerance
from perfgate.judging.gate.evidence.values import relative_change, rounded

# The fewest runs of a side that show whether the count repeats.
FEWEST_COUNTED = 2


def compare_lines(
    place: ShapePlace, base: Iterable[Turn], head: Iterable[Turn], policy: Policy, *, of_stacks: bool
) -> Iterator[Comparison]:
    """Compare the two closest runs of base and head: any difference left is beyond their variation.

    Nothing is compared if neither side ran Python. If one did, and the other did not or was not counted, the verdict is left
    open. If the runs of a side differ by more than is tolerated, the counts inform, and so do those ``of_stacks``: two Pythons
    or two versions of a library have other lines.
    """
    before, after = (counted_lines(turns) for turns in (base, head))
    if min(len(before), len(after)) < FEWEST_COUNTED or not any((*before, *after)):
        return
    if min(*before, *after) <= 0:
        reason = Message("gate.lines-of-one-side")
        yield exact(place, COMMAND_LINES, "inconclusive", gating=True, reason=reason)
        return
    allowed = tolerance(policy, COMMAND_LINES, *place)
    spread = max(max(side) / min(side) - 1 for side in (before, after))
    closest = _closest(before, after)
    change = relative_change(*closest) or 0.0
    informs = Message("gate.lines-vary", {"spread": rounded(spread)}) if spread > allowed else None
    if of_stacks:
        informs = Message("gate.lines-of-stacks")
    outcome: Outcome = "unchanged" if informs is None else "informs"
    if informs is None and abs(change) > allowed:
        outcome = "regressed" if change > 0 else "improved"
    yield exact(
        place,
        COMMAND_LINES,
        outcome,
        gating=informs is None,
        base=rounded(closest[0]),
        head=rounded(closest[1]),
        allowed=allowed,
        reason=informs,
    )


def counted_lines(turns: Iterable[Turn]) -> list[int]:
    return [turn.counters[PYTHON_LINES] for turn in turns if PYTHON_LINES in turn.counters]


def _closest(before: list[int], after: list[int]) -> tuple[int, int]:
    """The counts of base and head that differ least; equal ones if their ranges overlap."""
    if min(after) > max(before):
        return max(before), min(after)
    return (min(before), max(after)) if max(after) < min(before) else (max(before), max(before))
