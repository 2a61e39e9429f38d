"""The findings about many ranks, the answer first: the same sentences in the terminal and on the page."""

from __future__ import annotations

from perfgate.document.trace import DelayRow, RanksDocument
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import amount, counted, percent, whole
from perfgate.judging.report.text.words import phrase
from perfgate.locale import translate

_LISTED_BAD = 3  # unreadable recordings listed by name, at most
_SLOW_RANK = phrase("{rank} is slow: {share} longer on its own than the middle one, most of it {part}")
_DELAYS_STEP = phrase(
    "{rank} delays the others by {time} a step, {share} of the job: {why}; waiting for it: {waiting}, most in {collective}"
)
_DELAYS = phrase(
    "{rank} delays the others by {time} in all, {share} of the job: {why}; waiting for it: {waiting}, most in {collective}"
)
_ONCE = phrase(
    "{rank} hiccups: it comes {time} late to {collective} in step {step}, {share} of the job: {why}; waiting for it: {waiting}"
)
_ONCE_SOMEWHERE = phrase(
    "{rank} hiccups: it comes {time} late to {collective} once, {share} of the job: {why}; waiting for it: {waiting}"
)
_NO_DELAY = phrase("no rank delays the others by a hundredth of the job: {ranks}, {collectives}")
_ALIKE = phrase("no rank is slow: {ranks} within 5 % of the middle one")
_TOO_FEW = phrase("fewer than two ranks have steps, so none can be compared")
_SLOW_STAGE = phrase(
    "stage {stage} of the pipeline is slow: it computes {time} a step, {share} longer than the middle stage"
)
_SLOW_LINK = phrase(
    "{link} from rank {source} to {target} is slow: {size} of {operation} at {speed}; links like it carry {middle}"
)
_SLOW_LOCAL_LINK = phrase(
    "{link} from position {source} to {target} of group {group} is slow: {size} of {operation} at {speed}; links like it "
    "carry {middle}"
)
_LINKS_ALIKE = phrase("no link is slow: {links}")
_NO_LINKS = phrase("no links are recorded")
_APART = phrase(
    "ranks come {time} apart to the middle one of {count} collectives; {worst} to {collective}, number {number}, {rank} last"
)
_UNJOINED = phrase("{collectives} left out: the recordings do not record their group")
_LEFT_OUT = phrase("{left_out} of {all} left out: {reasons}")
_MISSING = phrase("not recorded: rank {ranks}")
_REPEATED = phrase(
    "rank {rank} has {recordings}: cycles of one process, or a wrong rank in one; only {chosen} is compared, not {others}"
)
_ENDED_EARLY = phrase("{rank} ends in step {last}, before the others")
_PARTS = {"computing": phrase("computing"), "free": phrase("free time")}
_WHY = {
    "computing": phrase("its device computes longer"),
    "free": phrase("its device has nothing to do meanwhile, so look at its host"),
}


def rank_answers(document: RanksDocument, *, shown: int) -> list[tuple[str, bool]]:
    """Which rank the others wait for and why, which stage or link is slow, and which parts of the recordings are missing.

    With each sentence comes whether it names something slow.
    """
    return [
        *_of_ranks(document, shown),
        *[
            _answer(
                _SLOW_STAGE,
                bad=True,
                stage=slow.stage,
                time=amount(slow.computing, "s"),
                share=percent(slow.behind),
            )
            for slow in document.slow_stages[:shown]
        ],
        *_of_links(document, shown),
        *_of_collectives(document),
        *_of_recordings(document),
    ]


def _of_ranks(document: RanksDocument, shown: int) -> list[tuple[str, bool]]:
    if document.delays:
        return [_delay(row) for row in document.delays[:shown]]
    timed = sum(row.own is not None for row in document.ranks)
    if document.collectives and not document.slow_ranks:
        collectives = counted(document.collectives, "collective")
        return [_answer(_NO_DELAY, ranks=counted(len(document.ranks), "rank"), collectives=collectives)]
    if not document.slow_ranks:
        return [_answer(_ALIKE, ranks=counted(timed, "rank")) if timed > 1 else _answer(_TOO_FEW)]
    return [
        _answer(
            _SLOW_RANK,
            bad=True,
            rank=rank_name(slow.rank, slow.device),
            share=percent(slow.behind),
            part=translate(_PARTS[slow.part]),
        )
        for slow in document.slow_ranks[:shown]
    ]


def _delay(row: DelayRow) -> tuple[str, bool]:
    common = {
        "rank": rank_name(row.rank, row.device),
        "share": percent(row.share),
        "collective": clean(row.collective),
        "waiting": counted(row.waiting - 1, "rank"),
        "why": translate(_WHY[row.why]),
    }
    if row.once:
        sentence = _ONCE_SOMEWHERE if row.step is None else _ONCE
        return _answer(sentence, bad=True, time=amount(row.worst, "s"), step=row.step, **common)
    if row.per_step is None:
        return _answer(_DELAYS, bad=True, time=amount(row.total, "s"), **common)
    return _answer(_DELAYS_STEP, bad=True, time=amount(row.per_step, "s"), **common)


def _of_links(document: RanksDocument, shown: int) -> list[tuple[str, bool]]:
    if not document.slow_links:
        return [_answer(_LINKS_ALIKE, links=counted(document.links, "link")) if document.links else _answer(_NO_LINKS)]
    return [
        _answer(
            _SLOW_LINK if link.group is None else _SLOW_LOCAL_LINK,
            bad=True,
            link=clean(link.link),
            source=link.source,
            target=link.target,
            group=clean(link.group or ""),
            size=amount(link.size, "B"),
            operation=clean(link.operation),
            speed=amount(link.bandwidth, "B/s"),
            middle=amount(link.middle, "B/s"),
        )
        for link in document.slow_links[:shown]
    ]


def _of_collectives(document: RanksDocument) -> list[tuple[str, bool]]:
    answers = []
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
    if document.unjoined:
        answers.append(_answer(_UNJOINED, collectives=counted(document.unjoined, "collective")))
    return answers


def _of_recordings(document: RanksDocument) -> list[tuple[str, bool]]:
    """Gaps in the recordings, which may be why no rank is named."""
    answers = []
    if document.left_out:
        reasons = [clean(one.reason) for one in document.left_out[:_LISTED_BAD]]
        recordings = len({row.path for row in document.ranks}) + len(document.left_out)
        everything = counted(recordings, "recording")
        answers.append(
            _answer(_LEFT_OUT, bad=True, left_out=len(document.left_out), all=everything, reasons="; ".join(reasons))
        )
    answers += [
        _answer(
            _REPEATED,
            bad=True,
            rank=one.rank,
            recordings=counted(1 + len(one.others), "recording"),
            chosen=clean(one.chosen),
            others=", ".join(clean(path) for path in one.others[:_LISTED_BAD]),
        )
        for one in document.repeated
    ]
    if document.missing:
        answers.append(_answer(_MISSING, bad=True, ranks=", ".join(map(str, document.missing))))
    answers += [
        _answer(_ENDED_EARLY, bad=True, rank=rank_name(one.rank, one.device), last=one.last)
        for one in document.ended_early
    ]
    return answers


def _answer(sentence: str, *, bad: bool = False, **values: object) -> tuple[str, bool]:
    return translate(sentence).format(**values), bad


def rank_name(rank: int | None, device: int | None) -> str:
    """The name of a row."""
    return f"rank {rank}" if rank is not None else "all" if device is None else f"device {device}"
