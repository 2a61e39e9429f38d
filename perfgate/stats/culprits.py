"""Find which of several changes makes something slow, from answers about sets of them.

A pure search: it knows neither packages nor commits, and asks for as few answers as it
can, as each is a gate of minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

# Of a set of changes, applied together to the old state; an `impossible` set cannot be
# tried: it does not install, or not run.
Answer = Literal["slow", "fast", "undecided", "impossible"]
Trial = Callable[[frozenset[int]], Answer]
Outcome = Literal["none", "found", "undecided", "impossible"]

# From this many impossible changes in a row on, all of the row are taken as impossible.
_ROW = 3
# A single set may be noisy; then its neighbours decide. If more sets than this are
# undecided, the machine is noisy.
_MOST_UNDECIDED = 2


class Culprits(NamedTuple):
    """The result of a search.

    ``blocks`` hold the changes that are slow together, and not slow when one block is
    left out: the first tips the scales, and further blocks are only present if it needs
    them. A block has several changes if no set that separates them can be tried. With
    the outcome ``undecided`` the ``suspects`` hold the rest, and with ``none`` or
    ``impossible``, the answer about all changes together, there are no blocks.
    """

    outcome: Outcome
    blocks: tuple[tuple[int, ...], ...] = ()
    suspects: tuple[int, ...] = ()

    @property
    def changes(self) -> frozenset[int]:
        """All changes of the blocks."""
        return frozenset(itertools.chain(*self.blocks))


def find_culprits(count: int, trial: Trial, *, cumulative: bool) -> Culprits:
    """Find the culprits among ``count`` changes.

    The empty set, the old state, is never tried.

    No set is tried twice, except for an undecided one on which alone the result
    depends. The changes stand in an order. Halving finds the first number of them that
    is slow, and so the change that tips the scales; alone it is asked about too. If it
    is not slow alone, it needs others before it, which are found in the same way, with
    it in every set. A single culprit among n changes takes log2(n) + 2 trials at most.
    ``cumulative`` changes contain those before them, as commits and releases do: only
    the first changes are tried, never one alone.
    """
    ask = _Answers(trial)
    whole = ask(frozenset(range(count)))
    if whole == "fast":
        return Culprits("none")
    if whole == "impossible":
        return Culprits("impossible")
    if whole == "undecided":
        return Culprits("undecided", suspects=tuple(range(count)))
    culprits = Culprits("found")
    before = count
    alone: Answer = "fast"
    while alone != "slow":
        edge = _Edge(0, before, is_open=True)
        if alone != "undecided":
            edge = _find_edge(before, culprits.changes, ask, alone)
        block = tuple(range(edge.fast, edge.slow))
        if edge.is_open:
            return culprits._replace(outcome="undecided", suspects=block)
        culprits = culprits._replace(blocks=(*culprits.blocks, block))
        if cumulative:
            break
        before, alone = edge.fast, ask(culprits.changes)
    return culprits


class _Answers:
    """The answers so far.

    A set that was undecided ``again`` is not tried a third time.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._answers: dict[frozenset[int], Answer] = {}
        self.again: set[frozenset[int]] = set()

    def __call__(self, changes: frozenset[int]) -> Answer:
        if changes not in self._answers:
            self._answers[changes] = self._trial(changes)
        return self._answers[changes]

    def anew(self, changes: frozenset[int]) -> Answer:
        self.again.add(changes)
        del self._answers[changes]
        return self(changes)


class _Edge(NamedTuple):
    """The first ``fast`` changes are not slow, the first ``slow`` are; ``is_open`` if a
    further answer would be needed.
    """

    fast: int
    slow: int
    is_open: bool


def _find_edge(
    count: int, always: frozenset[int], ask: _Answers, alone: Answer
) -> _Edge:
    """Halve the first ``count`` changes, which are slow with the changes that are
    ``always`` applied; these ``alone`` are not.

    If these alone are impossible, they need some of the others, and a set without them
    is impossible too. An undecided set is passed over like a set that cannot be tried,
    and tried anew once if no other is left: its neighbours may tell enough.
    """
    fast, slow = 0, count
    skipped: set[int] = set()
    undecided: set[int] = set()

    def applied(size: int) -> frozenset[int]:
        return always | frozenset(range(size))

    while len(undecided) <= _MOST_UNDECIDED:
        middle = _next(fast, slow, skipped)
        if middle is not None:
            answer = ask(applied(middle))
        else:
            unclear = [
                size
                for size in undecided
                if fast < size < slow and applied(size) not in ask.again
            ]
            if not unclear:
                break
            middle = min(unclear)
            answer = ask.anew(applied(middle))
            undecided.discard(middle)
        if answer == "undecided":
            undecided.add(middle)
        if answer == "undecided" or answer == "impossible" != alone:
            skipped.add(middle)
        elif answer == "slow":
            slow = middle
        else:
            fast = middle
    is_open = len(undecided) > _MOST_UNDECIDED or any(
        fast < size < slow for size in undecided
    )
    return _Edge(fast, slow, is_open)


def _next(fast: int, slow: int, impossible: Iterable[int]) -> int | None:
    """The number of changes to try next; None where no other is worth it.

    Far from the middle halves badly, but what cannot be tried has neighbours: a commit
    that does not build is followed by others until it is repaired. So a quarter of what
    is left is given up rather than trying one after the other. After three the ends of
    the row are searched, and where it fills all that is left, the rest of it is not
    tried.
    """
    inside = sorted(size for size in impossible if fast < size < slow)
    if len(inside) > _ROW:
        before, after = inside[0] - fast, slow - inside[-1]
        if before == after == 1:
            return None
        if before >= after:
            return fast + before // 2
        return slow - after // 2
    quarter = (slow - fast) // 4

    def cost(size: int) -> int:
        away = min((abs(size - other) for other in inside), default=quarter)
        return abs(2 * size - fast - slow) - 4 * min(away, quarter)

    sizes = [size for size in range(fast + 1, slow) if size not in impossible]
    return min(sizes, key=cost, default=None)
