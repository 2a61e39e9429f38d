"""Nondeterministic answers of a server: how often they agree within a side and across sides.

Rounding depends on the other requests in a batch, so a server on a card seldom reproduces every text. Both sides answer the
same requests in every start. Each answer is compared with the same side's answer in the previous start and with the other
side's in the same start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from perfgate.document.job import Turn


class AlikeAnswers(NamedTuple):
    """Counts of a side's answers: equal to its previous start's, equal to the other side's, and equal to only one of these."""

    answers: int
    own: int
    other: int
    own_alone: int
    other_alone: int


class AnswerCounts(NamedTuple):
    """The answers of base compared with head's, and the answers of head compared with the answers of base."""

    base: AlikeAnswers
    head: AlikeAnswers


def answers_of(base: Iterable[Turn], head: Iterable[Turn]) -> AnswerCounts | None:
    """Compare the answers of consecutive starts; None if no two starts have them."""
    before = _texts_by_start(base)
    after = _texts_by_start(head)
    of_base = _alike(before, after)
    of_head = _alike(after, before)
    if of_base is None or of_head is None:
        return None
    return AnswerCounts(of_base, of_head)


def _texts_by_start(turns: Iterable[Turn]) -> dict[int, Sequence[str]]:
    return {turn.start: turn.texts for turn in turns if turn.texts}


def _alike(
    answers: Mapping[int, Sequence[str]], others: Mapping[int, Sequence[str]]
) -> AlikeAnswers | None:
    count = own = other = own_alone = other_alone = 0
    for previous, start in pairwise(sorted(answers)):
        if start not in others:
            continue
        for text_before, text, text_of_other in zip(
            answers[previous], answers[start], others[start]
        ):
            is_own = text == text_before
            is_other = text == text_of_other
            count += 1
            own += is_own
            other += is_other
            own_alone += is_own and not is_other
            other_alone += is_other and not is_own
    if not count:
        return None
    return AlikeAnswers(count, own, other, own_alone, other_alone)
