"""Commands: the lines of Python that a run executes, a nearly exact count if two runs of a side agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfgate.catalogue.names import COMMAND_LINES
from perfgate.document.comparison import Comparison, Exact
from perfgate.document.decision import Policy
from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.judging.gate.compare.comparison import compared
from perfgate.judging.gate.compare.counts import Count, Range
from perfgate.judging.gate.evidence.executed_lines import FEWEST_COUNTED, counted_lines
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import tolerance
from perfgate.judging.gate.evidence.values import rounded


def compare_lines(
    place: ShapePlace, base: Iterable[Turn], head: Iterable[Turn], policy: Policy, *, of_stacks: bool
) -> Iterator[Comparison]:
    """Compare the two closest runs of base and head: any difference left is beyond their variation.

    Two sides that ran no Python are not compared. If one did, and the other did not or was not counted, the verdict is left
    open. If the runs of a side differ by more than is tolerated, the counts inform, and so do those ``of_stacks``: two Pythons
    or two versions of a library have other lines.
    """
    before, after = counted_lines(base), counted_lines(head)
    if min(len(before), len(after)) < FEWEST_COUNTED or not any((*before, *after)):
        return
    if min(*before, *after) <= 0:
        reason = Message("gate.lines-of-one-side")
        yield compared(Exact, place, COMMAND_LINES, reason=reason)
        return
    allowed = tolerance(policy, COMMAND_LINES, *place)
    base_range, head_range = Range.of(map(rounded, before)), Range.of(map(rounded, after))
    count = Count(place, COMMAND_LINES, base_range, head_range, allowed, fewer=allowed)
    spread = max(base_range.most / base_range.least - 1, head_range.most / head_range.least - 1)
    if of_stacks:
        yield count.comparison("informs", gating=False, reason=Message("gate.lines-of-stacks"))
    elif spread > allowed:
        reason = Message("gate.lines-vary", {"spread": rounded(spread)})
        yield count.comparison("informs", gating=False, reason=reason)
    else:
        yield count.comparison()
