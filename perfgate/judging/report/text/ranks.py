"""What there is to say of many ranks, the answer first: the same sentences in the terminal and on the page."""

from __future__ import annotations

from typing import NamedTuple

from perfgate.document.trace import RanksDocument
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import amount, counted, percent, whole
from perfgate.judging.report.text.words import phrase
from perfgate.locale import translate

_LATE = 0.5  # who comes last to so many of the collectives is named
_SLOW_RANK = phrase("{rank} is slow: {share} longer on its own than the middle one, most of it {part}")
_LAST = phrase("{rank} comes last to {share} of its collectives, on average {time} after the first")
_ALIKE = phrase("no rank is slow: {ranks} within 5 % of the middle one")
_TOO_FEW = phrase("fewer than two ranks have steps, so none can be compared")
_SLOW_LINK = phrase("{link} from rank {source} to {target} is slow: {speed}, the middle one of its kind {middle}")
_LINKS_ALIKE = phrase("no link is slow: {links}")
_NO_LINKS = phrase("no links are recorded")
_APART = phrase(
    "ranks come {time} apart to the middle one of {count} collectives; {worst} to {collective}, number {number}, {rank} last"
)
_PARTS = {"computing": phrase("computing"), "free": phrase("free time")}


class Answer(NamedTuple):
    """A sentence, and whether it names something slow."""

    words: str
    bad: bool


def rank_answers(document: RanksDocument, *, shown: int) -> list[Answer]:
    """Which ranks and links are slow, each with its reason, and how far apart the ranks come to their collectives."""
    answers = []
    rows = {(row.rank, row.device): row for row in document.ranks}
    for slow in document.slow_ranks[:shown]:
        name, share = rank_name(slow.rank, slow.device), percent(slow.behind)
        answers.append(_answer(_SLOW_RANK, bad=True, rank=name, share=share, part=translate(_PARTS[slow.part])))
        row = rows[slow.rank, slow.device]
        if row.last is not None and row.late is not None and row.last >= _LATE:
            answers.append(_answer(_LAST, rank=name, share=percent(row.last), time=amount(row.late, "s")))
    if not document.slow_ranks:
        timed = sum(row.own is not None for row in document.ranks)
        answers.append(_answer(_ALIKE, ranks=counted(timed, "rank")) if timed > 1 else _answer(_TOO_FEW))
    answers += [
        _answer(
            _SLOW_LINK,
            bad=True,
            link=clean(link.link),
            source=link.source,
            target=link.target,
            speed=amount(link.bandwidth, "B/s"),
            middle=amount(link.middle, "B/s"),
        )
        for link in document.slow_links[:shown]
    ]
    if not document.slow_links:
        answers.append(
            _answer(_LINKS_ALIKE, links=counted(document.links, "link")) if document.links else _answer(_NO_LINKS)
        )
    if document.skew is not None:
        worst = document.skews[0]
        answers.append(
            _answer(
                _APART,
                time=amount(document.skew, "s"),
                count=whole(document.collectives),
                worst=amount(worst.skew, "s"),
                collective=clean(worst.name),
                number=worst.number + 1,
                rank=rank_name(worst.last, None),
            )
        )
    return answers


def _answer(sentence: str, *, bad: bool = False, **values: object) -> Answer:
    return Answer(translate(sentence).format(**values), bad)


def rank_name(rank: int | None, device: int | None) -> str:
    """What a row is called."""
    return f"rank {rank}" if rank is not None else "all" if device is None else f"device {device}"
