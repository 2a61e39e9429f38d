"""The search under noise: how often its result is wrong, over many searches with known noise."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from perfgate.document.bisection import EnvironmentChange
from perfgate.document.decision import DecisionDocument
from perfgate.flows.bisect.search import Search, States, TrialSides
from perfgate.flows.shared.options import CheckOptions
from perfgate.stats.culprits import Culprits, find_culprits
from tests.fakes.documents import make_comparison, make_decision
from tests.unit.flows.test_bisect_commits import Quiet

STATES, SEARCHES = 64, 300
SLOWDOWN = 0.04
_PASS = make_decision()


@dataclass
class NumberedStates(States):
    """States that are nothing but numbers."""

    changes: Sequence[EnvironmentChange] = tuple(
        EnvironmentChange(before=str(number), after=str(number + 1)) for number in range(STATES)
    )

    def sides(self, applied: frozenset[int], *, number: int) -> TrialSides:
        return TrialSides(head=str(max(applied)))

    def words(self, applied: frozenset[int]) -> str:
        return str(max(applied))


@dataclass(frozen=True)
class NoisyGate:
    """Gates states with a standard error of ``spread``; from ``culprit`` on they are slower."""

    culprit: int
    spread: float
    random: random.Random

    def __call__(self, directory: Path, options: CheckOptions, progress: Quiet) -> DecisionDocument:
        spread = self.spread / math.sqrt(options.budgets)
        delta = (SLOWDOWN if int(options.head or 0) >= self.culprit else 0.0) + self.random.gauss(0.0, spread)
        half, p = 2.576 * spread, 0.5 * math.erfc(delta / spread / math.sqrt(2))
        outcome = "regressed" if p <= 0.01 else "unchanged" if delta + half < SLOWDOWN else "inconclusive"
        compared = make_comparison(outcome=outcome, delta=delta, interval=(delta - half, delta + half), p_adjusted=p)
        return msgspec.structs.replace(_PASS, comparisons=[compared])


def searched(seed: int, spread: float, error: float) -> tuple[Culprits, Search, int]:
    random_ = random.Random(seed)
    culprit = random_.randrange(STATES)
    gate = NoisyGate(culprit, spread, random_)
    search = Search(Path(), CheckOptions(out=Path()), gate, Quiet(), NumberedStates(), error=error)  # type: ignore[arg-type]
    return find_culprits(STATES, search.ask, cumulative=True), search, culprit


@pytest.mark.parametrize("spread", [0.006, 0.010])
def test_search__many_under_noise__wrong_no_more_often_than_stated(spread: float) -> None:
    results = [searched(seed, spread, 0.05) for seed in range(SEARCHES)]
    found = [(result, culprit) for result, _, culprit in results if result.outcome == "found"]
    wrong = sum(result.blocks != ((culprit,),) for result, culprit in found)
    # What stays unclear is undecided and not guessed. 0.05 of 300 are 15; a search that takes each answer as it comes has 60.
    assert wrong <= 15
    assert len(found) >= (0.9 if spread < 0.01 else 0.1) * SEARCHES
    assert all(search.wrong() <= 0.05 for result, search, _ in results if result.outcome == "found")


def test_search__smaller_error_allowed__fewer_answers_are_taken() -> None:
    strict, lax = ([searched(seed, 0.008, error)[0].outcome for seed in range(60)] for error in (0.001, 0.2))
    assert strict.count("found") < lax.count("found")


def test_search__both_ends_may_differ_by_noise__measured_again_and_not_searched() -> None:
    asked: list[float] = []

    def gate(directory: Path, options: CheckOptions, progress: Quiet) -> DecisionDocument:
        asked.append(options.budgets)
        weak = make_comparison(outcome="regressed", delta=0.02, interval=(0.001, 0.039), p_adjusted=0.03)
        return msgspec.structs.replace(_PASS, comparisons=[weak])

    search = Search(Path(), CheckOptions(out=Path()), gate, Quiet(), NumberedStates(), error=0.05)  # type: ignore[arg-type]
    assert find_culprits(STATES, search.ask, cumulative=True).outcome == "undecided"
    assert asked == [1.0, 3.0]
