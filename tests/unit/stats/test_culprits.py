"""The search for culprits, over every single one, every pair, and answers that are missing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import combinations
from math import ceil, log2

import pytest

from perfgate.stats.culprits import Answer, Culprits, find_culprits
from tests.each import each


class Stack:
    """Changes of which those in ``culprits`` are slow together, and the sets that were tried."""

    def __init__(
        self, culprits: Collection[int], special: Callable[[frozenset[int]], Answer | None] | None = None
    ) -> None:
        self.culprits = frozenset(culprits)
        self.special = special or (lambda _: None)
        self.tried: list[frozenset[int]] = []

    def __call__(self, changes: frozenset[int]) -> Answer:
        self.tried.append(changes)
        return self.special(changes) or ("slow" if self.culprits <= changes else "fast")


@each("count", range(1, 17))
def test_find_culprits__each_single_change__named_in_log2_of_all_plus_two_trials(count: int) -> None:
    for culprit in range(count):
        stack = Stack([culprit])
        assert find_culprits(count, stack, cumulative=False) == Culprits("found", ((culprit,),))
        assert len(stack.tried) == len(set(stack.tried)) <= ceil(log2(count)) + 2
        assert frozenset() not in stack.tried


@each("count", range(1, 17))
def test_find_culprits__cumulative_changes__the_first_slow_one_and_only_first_ones_tried(count: int) -> None:
    for culprit in range(count):
        stack = Stack([culprit])
        assert find_culprits(count, stack, cumulative=True) == Culprits("found", ((culprit,),))
        assert len(stack.tried) <= ceil(log2(count)) + 1
        assert all(tried == frozenset(range(len(tried))) for tried in stack.tried)


@pytest.mark.parametrize("size", [2, 3])
def test_find_culprits__changes_that_are_slow_only_together__all_of_them_named(size: int) -> None:
    for count in range(size, 13):
        for culprits in combinations(range(count), size):
            stack = Stack(culprits)
            found = find_culprits(count, stack, cumulative=False)
            assert (found.outcome, found.changes, len(found.blocks)) == ("found", frozenset(culprits), size)
            assert len(stack.tried) <= 1 + size * (ceil(log2(count)) + 1)


@pytest.mark.parametrize("count", [1, 5, 16])
def test_find_culprits__two_that_are_each_slow__one_of_them_named(count: int) -> None:
    for culprits in combinations(range(count), 2):
        found = find_culprits(
            count,
            lambda changes: "slow" if changes & frozenset(culprits) else "fast",  # noqa: B023
            cumulative=False,
        )
        assert found == Culprits("found", ((culprits[0],),))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("fast", Culprits("none")),
        ("impossible", Culprits("impossible")),
        ("undecided", Culprits("undecided", suspects=(0, 1, 2, 3))),
    ],
)
def test_find_culprits__all_together_not_slow__one_trial_and_no_culprit(answer: Answer, expected: Culprits) -> None:
    stack = Stack([], lambda _: answer)
    assert find_culprits(4, stack, cumulative=False) == expected
    assert len(stack.tried) == 1


def test_find_culprits__one_release_cannot_be_installed__the_others_still_tell() -> None:
    for count in range(2, 17):
        for culprit in range(count):
            for skipped in range(1, count):
                if skipped in (culprit, culprit + 1):
                    continue
                stack = Stack([culprit], lambda changes, size=skipped: "impossible" if len(changes) == size else None)
                assert find_culprits(count, stack, cumulative=True) == Culprits("found", ((culprit,),))
                assert len(stack.tried) <= ceil(log2(count)) + 3


@pytest.mark.parametrize("start", [20, 60, 90, 100, 101, 110, 130, 169])
def test_find_culprits__thirty_commits_in_a_row_do_not_build__few_of_them_are_tried(start: int) -> None:
    trials = []
    for culprit in range(200):
        broken = range(start, start + 30)
        stack = Stack([culprit], lambda changes: "impossible" if len(changes) in broken else None)  # noqa: B023
        found = find_culprits(200, stack, cumulative=True)
        # The state with the culprit and the one before it are those with culprit and culprit + 1 changes.
        inside = start <= culprit + 1 and culprit < start + 30
        block = tuple(range(start - 1, start + 30)) if inside else (culprit,)
        assert found == Culprits("found", (block,))
        trials.append(len(stack.tried))
    assert sum(trials) / len(trials) <= 1.5 * log2(200)
    assert max(trials) <= 2.5 * log2(200)


def test_find_culprits__releases_around_the_slow_one_cannot_be_installed__all_named_as_one_block() -> None:
    # With 6, 7 or 8 of 16 releases nothing can be tried, and the seventh is slow.
    stack = Stack([6], lambda changes: "impossible" if len(changes) in (6, 7, 8) else None)
    assert find_culprits(16, stack, cumulative=True) == Culprits("found", ((5, 6, 7, 8),))


def test_find_culprits__culprit_cannot_be_installed_alone__named_first_and_then_what_it_needs() -> None:
    # 5 needs 2, as one package needs a version of another.
    stack = Stack([5], lambda changes: "impossible" if 5 in changes and 2 not in changes else None)
    assert find_culprits(8, stack, cumulative=False) == Culprits("found", ((5,), (2,)))


@each("count", range(2, 17))
def test_find_culprits__any_one_answer_undecided__never_guessed(count: int) -> None:
    for culprit in range(count):
        clear = Stack([culprit])
        find_culprits(count, clear, cumulative=False)
        for unclear in clear.tried:
            found = find_culprits(
                count,
                lambda changes: "undecided" if changes == unclear else "slow" if culprit in changes else "fast",  # noqa: B023
                cumulative=False,
            )
            # The neighbours of an undecided set may tell, unless it is the one that matters.
            assert found in (Culprits("found", ((culprit,),)), found._replace(outcome="undecided"))
            assert culprit in found.changes | set(found.suspects)


def test_find_culprits__few_noisy_commits_that_nobody_can_decide__passed_over() -> None:
    for culprit in range(64):
        noisy = {32, 17}
        stack = Stack([culprit], lambda changes: "undecided" if len(changes) in noisy else None)  # noqa: B023
        found = find_culprits(64, stack, cumulative=True)
        if noisy & {culprit, culprit + 1}:
            assert found.outcome == "undecided"
            assert culprit in found.suspects
        else:
            assert found == Culprits("found", ((culprit,),))


def test_find_culprits__undecided_beside_the_culprit__tried_anew_once_nothing_else_is_left() -> None:
    for culprit in range(1, 63):
        for unclear in (culprit, culprit + 1):
            stack = Stack(
                [culprit],
                lambda changes: "undecided" if len(changes) == unclear and stack.tried.count(changes) == 1 else None,  # noqa: B023
            )
            assert find_culprits(64, stack, cumulative=True) == Culprits("found", ((culprit,),))
            twice = {len(changes) for changes in stack.tried if stack.tried.count(changes) == 2}
            assert twice <= {unclear}
            assert len(stack.tried) <= len(set(stack.tried)) + 1


def test_find_culprits__every_answer_undecided__given_up_after_three() -> None:
    stack = Stack([40], lambda changes: "undecided" if len(changes) < 64 else None)
    assert find_culprits(64, stack, cumulative=True).outcome == "undecided"
    assert len(stack.tried) == 4
