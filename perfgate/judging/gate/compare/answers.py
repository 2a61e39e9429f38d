"""The rule for answers of a server: head must agree with base as often as each side
agrees with itself.

Under equal code both comparisons of an answer are equally likely to differ (a sign
test). The test runs on both sides: a head that reproduces its own texts more often than
base matches them gives different answers too.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from scipy.special import betainc, betaincinv

from perfgate.catalogue.names import JOB_OUTPUT
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.message import Message
from perfgate.judging.gate.compare.comparison import (
    JudgedNumber,
    differing_output,
    informing,
)
from perfgate.judging.gate.evidence.numbers import Levels, Number
from perfgate.judging.gate.evidence.quads import AlikeAnswers, AnswerCounts
from perfgate.judging.gate.evidence.values import relative_change, rounded

_CONFIDENCE = 0.95


def p_of_alarm(counts: AnswerCounts, looks: int) -> float:
    """The p-value of "as many answers match across sides as within either", corrected
    for both sides and for ``looks``.
    """
    return min(1.0, looks * len(counts) * min(map(_p_fewer, counts)))


def _p_fewer(side: AlikeAnswers) -> float:
    """The p-value of "no fewer answers match the other side's"."""
    if not side.own_alone:
        return 1.0
    # Chance of at least this many on one side if each differing answer falls on either
    # side with 1/2: a binomial tail.
    return float(betainc(side.own_alone, side.other_alone + 1, 0.5))


def judge_answers(judged: JudgedNumber, counts: AnswerCounts) -> Iterator[Comparison]:
    """Yield a regression of head's output if too few answers agree across sides, and
    the shares, which only inform.
    """
    if judged.is_alarm:
        yield differing_output(judged.number.place, JOB_OUTPUT, _other_answers(counts))
    yield _shares(judged.number, counts.base)


def _other_answers(counts: AnswerCounts) -> Message:
    name = "base"
    side = counts.base
    if _p_fewer(counts.base) > _p_fewer(counts.head):
        name = "head"
        side = counts.head
    answers = counts.base.answers
    numbers = {
        "answers": answers,
        "differ": answers - side.other,
        "own": answers - side.own,
    }
    return Message("gate.other-answers", {"side": name, **numbers})


def _shares(number: Number, counts: AlikeAnswers) -> Paired:
    """The shares of base's answers that equal its own and head's.

    They differ by the answers that agree on one side only; their exact binomial bounds
    bound the difference.
    """
    answers = counts.answers
    base = rounded(counts.own / answers)
    head = rounded(counts.other / answers)
    row = informing(number, Levels(base, head))
    if not base:
        return row
    low_head, high_head = _clopper_pearson(counts.other_alone, answers)
    low_base, high_base = _clopper_pearson(counts.own_alone, answers)
    return replace(
        row,
        delta=relative_change(base, head),
        interval=(
            rounded((low_head - high_base) / base),
            rounded((high_head - low_base) / base),
        ),
        confidence=_CONFIDENCE,
    )


def _clopper_pearson(count: int, of: int) -> tuple[float, float]:
    """Bounds of a share; the error that ``_CONFIDENCE`` leaves is split over the two
    ends of the two shares of a difference.
    """
    error = (1 - _CONFIDENCE) / 4
    low = 0.0
    if count:
        low = float(betaincinv(count, of - count + 1, error))
    high = 1.0
    if count < of:
        high = float(betaincinv(count + 1, of - count, 1 - error))
    return low, high
