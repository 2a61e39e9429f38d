"""Nondeterministic answers of a server: head must agree with base as often as each side agrees with itself.

Rounding depends on the other requests in a batch, so a server on a card seldom reproduces every text. Both sides answer the
same requests in every start. Each answer of base is compared with base's answer in the previous start and with head's in the
same start: under equal code either is equally likely to be the one that differs (a sign test). The same test runs on head's
answers: a head that reproduces its own texts more often than base matches them gives different answers too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from scipy.special import betainc, betaincinv

from perfgate.catalogue.names import JOB_OUTPUT, SAME_TEXT
from perfgate.document.comparison import Comparison
from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.judging.gate.compare.comparison import differing_output, informing
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.values import relative_change, rounded

_CONFIDENCE = 0.95


class AlikeAnswers(NamedTuple):
    """Counts of a side's answers: equal to its previous start's, equal to the other side's, and equal to only one of these."""

    answers: int
    own: int
    other: int
    own_alone: int
    other_alone: int

    @property
    def p_fewer(self) -> float:
        """The p-value of "no fewer answers match the other side's"."""
        # Chance of at least this many on one side if each differing answer falls on either side with 1/2: a binomial tail.
        return float(betainc(self.own_alone, self.other_alone + 1, 0.5)) if self.own_alone else 1.0


class ComparedAnswers(NamedTuple):
    """The answers of base beside those of the head, and of the head beside those of base."""

    base: AlikeAnswers
    head: AlikeAnswers

    def p_fewer(self, looks: int) -> float:
        """The p-value of "as many answers match across sides as within either", corrected for both sides and for ``looks``."""
        return min(1.0, looks * len(self) * min(side.p_fewer for side in self))

    def rows(self, place: ShapePlace, *, differs: bool) -> Iterator[Comparison]:
        """Yield the shares, which only inform, and a regression of head's output if too few answers agree across sides."""
        answers = self.base.answers
        if differs:
            steadier = "base" if self.base.p_fewer <= self.head.p_fewer else "head"
            side = getattr(self, steadier)
            counts = {"answers": answers, "differ": answers - side.other, "side": steadier, "own": answers - side.own}
            reason = Message("gate.other-answers", counts)
            yield differing_output(place, JOB_OUTPUT, reason)
        base, head = (rounded(count / answers) for count in (self.base.own, self.base.other))
        row = informing(place, SAME_TEXT, base, head)
        if base:
            # The shares differ by the answers that agree on one side only; their exact binomial bounds bound the difference.
            (low_head, high_head), (low_base, high_base) = (
                _clopper_pearson(count, answers) for count in (self.base.other_alone, self.base.own_alone)
            )
            interval = rounded((low_head - high_base) / base), rounded((high_head - low_base) / base)
            delta = relative_change(base, head)
            row = msgspec.structs.replace(row, delta=delta, interval=interval, confidence=_CONFIDENCE)
        yield row


def compare_answers(base: Iterable[Turn], head: Iterable[Turn]) -> ComparedAnswers | None:
    """Compare the answers of consecutive starts; None if no two starts have them."""
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
    """Bounds of a share; the error that ``_CONFIDENCE`` leaves is split over the two ends of the two shares of a difference."""
    error = (1 - _CONFIDENCE) / 4
    low = float(betaincinv(count, of - count + 1, error)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - error)) if count < of else 1.0
    return low, high
