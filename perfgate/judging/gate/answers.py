"""Answers of a server that need not all be the same text: as many of head's must be base's as base's are its own.

Rounding differs with what else is in a batch, so that a server on a card seldom writes every text again. Both sides answer the
same requests in every start. Of each request it is asked whether base's answer is that of base's start before, and whether
head's is: under equal code either may be what differs alike often (a sign test).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
from scipy.special import betainc, betaincinv

from perfgate.catalogue.names import JOB_OUTPUT, SAME_TEXT
from perfgate.document.decision import Comparison
from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.judging.gate.comparison import Place, comparison, relative_change, rounded

_CONFIDENCE = 0.95


class ComparedAnswers(NamedTuple):
    """Of so many answers of base: how many another start of base, and how many the head, wrote alike; and either alone."""

    answers: int
    base_alike: int
    head_alike: int
    base_alone: int
    head_alone: int

    def p_fewer(self, looks: int) -> float:
        """The p-value of "no fewer of head's answers are alike", corrected for so many looks."""
        # At least so many of the differing ones where each falls on either side with 1/2: a tail of the binomial distribution.
        tail = float(betainc(self.base_alone, self.head_alone + 1, 0.5)) if self.base_alone else 1.0
        return min(1.0, looks * tail)

    def rows(self, place: Place, *, differs: bool) -> Iterator[Comparison]:
        """Yield the shares, which inform, and where head's is shown to be smaller, that its output differs."""
        if differs:
            counts = {"head": self.answers - self.head_alike, "base": self.answers - self.base_alike}
            reason = Message("gate.other-answers", {"answers": self.answers, **counts})
            yield comparison(place, JOB_OUTPUT, "check", "regressed", gating=True, base=1.0, head=0.0, reason=reason)
        base, head = (rounded(count / self.answers) for count in (self.base_alike, self.head_alike))
        row = comparison(place, SAME_TEXT, "turns", "informs", gating=False, base=base, head=head)
        if base:
            low, high = self._interval()
            interval = rounded(low / base), rounded(high / base)
            delta = relative_change(base, head)
            row = msgspec.structs.replace(row, delta=delta, interval=interval, confidence=_CONFIDENCE)
        yield row

    def _interval(self) -> tuple[float, float]:
        """Bounds of the difference of the shares, from the exact binomial bounds of what either side alone has alike."""
        (low_head, high_head), (low_base, high_base) = (
            _clopper_pearson(count, self.answers) for count in (self.head_alone, self.base_alone)
        )
        return low_head - high_base, high_head - low_base


def compare_answers(base: Iterable[Turn], head: Iterable[Turn]) -> ComparedAnswers | None:
    """Compare the answers of starts that follow each other; None where no two starts have them."""
    before, after = ({turn.start: turn.texts for turn in turns if turn.texts} for turns in (base, head))
    alike = [
        (of_base == of_start_before, of_head == of_base)
        for previous, start in pairwise(sorted(before))
        if start in after
        for of_start_before, of_base, of_head in zip(before[previous], before[start], after[start])
    ]
    if not alike:
        return None
    return ComparedAnswers(
        answers=len(alike),
        base_alike=sum(of_base for of_base, _ in alike),
        head_alike=sum(of_head for _, of_head in alike),
        base_alone=sum(of_base and not of_head for of_base, of_head in alike),
        head_alone=sum(of_head and not of_base for of_base, of_head in alike),
    )


def _clopper_pearson(count: int, of: int) -> tuple[float, float]:
    """Bounds of a share, each missed with half of what ``_CONFIDENCE`` leaves, shared by the two that make a difference."""
    error = (1 - _CONFIDENCE) / 4
    low = float(betaincinv(count, of - count + 1, error)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - error)) if count < of else 1.0
    return low, high
