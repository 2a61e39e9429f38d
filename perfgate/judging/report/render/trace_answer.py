"""The first screen of a recording: sentences, the largest loss first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from perfgate.document.trace import AnswerDocument, AnswerTimeline, GapGroupRow, TopTimeline
from perfgate.judging.report.render.trace import print_notes, timeline_names
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.gap_causes import CAUSE_WORDS
from perfgate.judging.report.text.kernels import kernel_name
from perfgate.judging.report.text.numbers import amount, counted, percent
from perfgate.judging.report.text.words import phrase
from perfgate.locale import translate

_NAME = 56  # letters of a name in a sentence
_BUSY = phrase("the device is busy {share} of {time}")
_NO_DEVICE = phrase("nothing ran on a device")
_IDLE = phrase("idle {time} ({share}) in {gaps}: {where}; {why}")
_THEN = phrase("{where}, before {kernel}")
_UNKNOWN = phrase("the recording does not show the host then")
_HEAVY = phrase("{name}: {time}, {share} of the busy time, {count} ×")
_HOST = phrase("{name}: {time}, {share} of the host's self time, {count} ×")
_COMMUNICATION = phrase("communication {time}, {exposed} of it exposed")
_NO_COMMUNICATION = phrase("no communication")


def render_answer(document: AnswerDocument, console: Console) -> None:
    """Print what there is to know first of every timeline."""
    names = timeline_names([timeline.gaps for timeline in document.timelines])
    for timeline, name in zip(document.timelines, names):
        if name:
            console.print(Text(name, "bold"))
        for sentence, style in _sentences(timeline):
            console.print(Text(sentence, style))
    print_notes(document.notes, console)


def _sentences(timeline: AnswerTimeline) -> Iterator[tuple[str, str]]:
    gaps = timeline.gaps
    if gaps.window and gaps.busy is not None:
        share = percent(gaps.busy / gaps.window)
        yield translate(_BUSY).format(share=share, time=amount(gaps.window, "s")), "bold"
        yield from ((f"  {_idle(group)}", "") for group in gaps.groups)
    else:
        yield translate(_NO_DEVICE), "bold"
    yield from ((f"  {sentence}", "") for sentence in _heaviest(timeline.top))
    if timeline.communication is None or timeline.exposed is None:
        return
    if not timeline.communication:
        yield f"  {translate(_NO_COMMUNICATION)}", ""
        return
    times = {"time": amount(timeline.communication, "s"), "exposed": amount(timeline.exposed, "s")}
    yield f"  {translate(_COMMUNICATION).format(**times)}", ""


def _idle(group: GapGroupRow) -> str:
    inside = [clean(name, limit=2 * _NAME) for name in (group.operator, group.frame) if name]
    where = " · ".join(inside) or translate(_UNKNOWN)
    if group.ended_by:
        where = translate(_THEN).format(where=where, kernel=clean(kernel_name(group.ended_by, limit=_NAME)))
    return translate(_IDLE).format(
        time=amount(group.total, "s"),
        share=percent(group.share),
        gaps=counted(group.count, "gap"),
        where=where,
        why=translate(CAUSE_WORDS[group.cause]),
    )


def _heaviest(top: TopTimeline) -> Iterator[str]:
    words = translate(_HEAVY if top.side == "device" else _HOST)
    for row in top.rows:
        name, share = clean(kernel_name(row.name, limit=_NAME)), "–" if row.share is None else percent(row.share)
        yield words.format(name=name, time=amount(row.total, "s"), share=share, count=f"{row.count:,}")
