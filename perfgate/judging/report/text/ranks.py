"""The findings about many ranks, the answer first: the same sentences in the terminal
and on the page.
"""

from __future__ import annotations

from typing import NamedTuple

from perfgate.document.trace import (
    DelayRow,
    RankEntry,
    RanksDocument,
    SlowLinkRow,
    SlowRankRow,
    SlowStageRow,
)
from perfgate.judging.report.text.escape import MAX_ABOUT_FILE, clean
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.numbers import amount, counted, percent, whole
from perfgate.judging.report.text.words import phrase, phrases, say

_LISTED_BAD = 3  # unreadable recordings listed by name, at most
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
_SLOW_LINK = phrase(
    "{link} from rank {source} to {target} is slow: {size} of {operation} at {speed}; links like it carry {middle}"
)
_SLOW_LOCAL_LINK = phrase(
    "{link} from position {source} to {target} of group {group} is slow: {size} of {operation} at {speed}; links like it "
    "carry {middle}"
)
_PARTS = phrases({"computing": "computing", "free": "free time"})
_WHY = phrases(
    {
        "computing": "its device computes longer",
        "free": "its device has nothing to do meanwhile, so look at its host",
    }
)


class RankAnswer(NamedTuple):
    """A sentence about the ranks, and whether it names something slow or missing."""

    words: str
    is_bad: bool = False


def rank_answers(document: RanksDocument, *, shown: int) -> list[RankAnswer]:
    """Which rank the others wait for and why, which stage or link is slow, and which
    parts of the recordings are missing.
    """
    notes = [
        RankAnswer(_about_file(word(note)), is_bad=True)
        for note in document.notes[:shown]
    ]
    return [
        *notes,
        *_of_ranks(document, shown),
        *map(_slow_stage, document.slow_stages[:shown]),
        *_of_links(document, shown),
        *_of_collectives(document),
        *_of_recordings(document),
    ]


def _of_ranks(document: RanksDocument, shown: int) -> list[RankAnswer]:
    if document.delays:
        return list(map(_delay, document.delays[:shown]))
    if document.slow_ranks:
        return list(map(_slow_rank, document.slow_ranks[:shown]))
    if document.collectives:
        return [
            RankAnswer(
                say(
                    "no rank delays the others by a hundredth of the job: {ranks}, {collectives}",
                    ranks=counted(len(document.ranks), "rank"),
                    collectives=counted(document.collectives, "collective"),
                )
            )
        ]
    timed = sum(row.own is not None for row in document.ranks)
    if timed < 2:
        return [
            RankAnswer(say("fewer than two ranks have steps, so none can be compared"))
        ]
    return [
        RankAnswer(
            say(
                "no rank is slow: {ranks} within 5 % of the middle one",
                ranks=counted(timed, "rank"),
            )
        )
    ]


def _slow_rank(slow: SlowRankRow) -> RankAnswer:
    return RankAnswer(
        say(
            "{rank} is slow: {share} longer on its own than the middle one, most of it {part}",
            rank=name_of(slow),
            share=percent(slow.behind),
            part=say(_PARTS[slow.part]),
        ),
        is_bad=True,
    )


def _slow_stage(slow: SlowStageRow) -> RankAnswer:
    return RankAnswer(
        say(
            "stage {stage} of the pipeline is slow: it computes {time} a step, {share} longer than the middle stage",
            stage=slow.stage,
            time=amount(slow.computing, "s"),
            share=percent(slow.behind),
        ),
        is_bad=True,
    )


def _delay(row: DelayRow) -> RankAnswer:
    sentence = _DELAYS_STEP
    seconds = row.per_step
    if row.once and row.step is None:
        sentence = _ONCE_SOMEWHERE
        seconds = row.worst
    elif row.once:
        sentence = _ONCE
        seconds = row.worst
    elif row.per_step is None:
        sentence = _DELAYS
        seconds = row.total
    words = say(
        sentence,
        rank=name_of(row),
        time=amount(seconds, "s"),
        step=row.step or 0,
        share=percent(row.share),
        collective=clean(row.collective),
        waiting=counted(row.waiting, "rank"),
        why=say(_WHY[row.why]),
    )
    return RankAnswer(words, is_bad=True)


def _of_links(document: RanksDocument, shown: int) -> list[RankAnswer]:
    if document.slow_links:
        return list(map(_slow_link, document.slow_links[:shown]))
    if not document.links:
        return [RankAnswer(say("no links are recorded"))]
    return [
        RankAnswer(
            say("no link is slow: {links}", links=counted(document.links, "link"))
        )
    ]


def _slow_link(link: SlowLinkRow) -> RankAnswer:
    sentence = _SLOW_LINK
    if link.group is not None:
        sentence = _SLOW_LOCAL_LINK
    words = say(
        sentence,
        link=clean(link.link),
        source=link.source,
        target=link.target,
        group=clean(link.group or ""),
        size=amount(link.size, "B"),
        operation=clean(link.operation),
        speed=amount(link.bandwidth, "B/s"),
        middle=amount(link.middle, "B/s"),
    )
    return RankAnswer(words, is_bad=True)


def _of_collectives(document: RanksDocument) -> list[RankAnswer]:
    answers = []
    if document.skew is not None:
        worst = document.skews[0]
        words = say(
            "ranks come {time} apart to the middle one of {count} collectives; {worst} to {collective}, "
            "number {number}, {rank} last",
            time=amount(document.skew, "s"),
            count=whole(document.collectives),
            worst=amount(worst.skew, "s"),
            collective=clean(worst.name),
            number=worst.number + 1,
            rank=rank_name(worst.last, None),
        )
        answers.append(RankAnswer(words))
    if document.unjoined:
        answers.append(
            RankAnswer(
                say(
                    "{collectives} left out: the recordings do not record their group",
                    collectives=counted(document.unjoined, "collective"),
                )
            )
        )
    return answers


def _of_recordings(document: RanksDocument) -> list[RankAnswer]:
    """Gaps in the recordings, which may be why no rank is named."""
    words = []
    gaps = document.gaps
    left_out = gaps.left_out
    if left_out:
        reasons = [_about_file(entry.reason) for entry in left_out[:_LISTED_BAD]]
        recordings = counted(
            len({row.path for row in document.ranks}) + len(left_out), "recording"
        )
        words.append(
            say(
                "{left_out} of {all} left out: {reasons}",
                left_out=len(left_out),
                all=recordings,
                reasons="; ".join(reasons),
            )
        )
    for repeated in gaps.repeated:
        recordings = counted(1 + len(repeated.others), "recording")
        words.append(
            say(
                "rank {rank} has {recordings}: cycles of one process, or a wrong rank in one; only {chosen} is "
                "compared, not {others}",
                rank=repeated.rank,
                recordings=recordings,
                chosen=_about_file(repeated.chosen),
                others=", ".join(map(_about_file, repeated.others[:_LISTED_BAD])),
            )
        )
    if gaps.missing:
        words.append(
            say("not recorded: rank {ranks}", ranks=", ".join(map(str, gaps.missing)))
        )
    for ended in gaps.ended_early:
        words.append(
            say(
                "{rank} ends in step {last}, before the others",
                rank=name_of(ended),
                last=ended.last,
            )
        )
    return [RankAnswer(text, is_bad=True) for text in words]


def _about_file(text: str) -> str:
    return clean(text, limit=MAX_ABOUT_FILE)


def name_of(row: RankEntry) -> str:
    """The name of a row about a rank, or about a device of a recording without ranks."""
    return rank_name(row.rank, row.device)


def rank_name(rank: int | None, device: int | None) -> str:
    if rank is not None:
        return f"rank {rank}"
    if device is None:
        return "all"
    return f"device {device}"
