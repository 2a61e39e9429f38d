"""Answers of a server that need not all be the same text: as many of head's must be base's as either side's are its own.

Rounding differs with what else is in a batch, so that a server on a card seldom writes every text again. Both sides answer the
same requests in every start. Of each request it is asked whether base's answer is that of base's start before, and whether
head's is: under equal code either may be what differs alike often (a sign test). The same is asked of head's own answers: a
head that writes its texts again where base did not, and not those of base, gives other answers too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from scipy.special import betainc, betaincinv

from perfgate.catalogue.names import JOB_OUTPUT, SAME_TEXT
from perfgate.document.decision import Comparison
from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.judging.gate.comparison import ShapePlace, comparison, relative_change, rounded

_CONFIDENCE = 0.95


class AlikeAnswers(NamedTuple):
    """Of so many answers of a side: how many its start before, and how many the other side, wrote alike; and either alone."""

    answers: int
    own: int
    other: int
    own_alone: int
    other_alone: int

    @property
    def p_fewer(self) -> float:
        """The p-value of "no fewer of the other side's answers are alike"."""
        # At least so many of the differing ones where each falls on either side with 1/2: a tail of the binomial distribution.
        return float(betainc(self.own_alone, self.other_alone + 1, 0.5)) if self.own_alone else 1.0


class ComparedAnswers(NamedTuple):
    """The answers of base beside those of the head, and of the head beside those of base."""

    base: AlikeAnswers
    head: AlikeAnswers

    def p_fewer(self, looks: int) -> float:
        """The p-value of "as many answers are alike on both sides as on either", corrected for both and so many looks."""
        return min(1.0, looks * len(self) * min(side.p_fewer for side in self))

    def rows(self, place: ShapePlace, *, differs: bool) -> Iterator[Comparison]:
        """Yield the shares, which inform, and where too few are alike on both sides, that the head's output differs."""
        answers = self.base.answers
        if differs:
            steadier = "base" if self.base.p_fewer <= self.head.p_fewer else "head"
            side = getattr(self, steadier)
            counts = {"answers": answers, "differ": answers - side.other, "side": steadier, "own": answers - side.own}
            reason = Message("gate.other-answers", counts)
            yield comparison(place, JOB_OUTPUT, "check", "regressed", gating=True, base=1.0, head=0.0, reason=reason)
        base, head = (rounded(count / answers) for count in (self.base.own, self.base.other))
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
            _clopper_pearson(count, self.base.answers) for count in (self.base.other_alone, self.base.own_alone)
        )
        return low_head - high_base, high_head - low_base


def compare_answers(base: Iterable[Turn], head: Iterable[Turn]) -> ComparedAnswers | None:
    """Compare the answers of starts that follow each other; None where no two starts have them."""
    before, after = ({turn.start: turn.texts for turn in turns if turn.texts} for turns in (base, head))
    of_base, of_head = _alike(before, after), _alike(after, before)
    return None if of_base is None or of_head is None else ComparedAnswers(of_base, of_head)


def _alike(answers: Mapping[int, Sequence[str]], others: Mapping[int, Sequence[str]]) -> AlikeAnswers | None:
    alike = [
        (text == text_before, text_of_other == text)
        for previous, start in pairwise(sorted(answers))
        if start in others
        for text_before, text, text_of_other in zip(answers[previous], answers[start], others[start])
    ]
    if not alike:
        return None
    return AlikeAnswers(
        answers=len(alike),
        own=sum(own for own, _ in alike),
        other=sum(other for _, other in alike),
        own_alone=sum(own and not other for own, other in alike),
        other_alone=sum(other and not own for own, other in alike),
    )


def _clopper_pearson(count: int, of: int) -> tuple[float, float]:
    """Bounds of a share, each missed with half of what ``_CONFIDENCE`` leaves, shared by the two that make a difference."""
    error = (1 - _CONFIDENCE) / 4
    low = float(betaincinv(count, of - count + 1, error)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - error)) if count < of else 1.0
    return low, high
