"""The result of `perfgate upgrade --bisect` in the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.bisection import BisectionDocument, PackageChange, TriedStack
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import counted, duration
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.locale import Language, speaking

_ANSWERS = {
    "slow": (phrase("slower"), "yellow"),
    "fast": (phrase("not slower"), "green"),
    "undecided": (phrase("not decided"), "yellow"),
    "impossible": (phrase("cannot be tried"), "dim"),
}
_SHOWN = 6
_LONGEST_REASON = 200


def render_bisection(document: BisectionDocument, console: Console, language: Language = "en") -> None:
    """Print the culprit, or why there is none, and what every tried stack answered."""
    with speaking(language):
        console.print(Text(result_line(document), "bold"))
        console.print(Text(_effort(document), "dim"))
        if document.followed:
            console.print(Text(_followed(document), "dim"))
        console.print(_tried(document))


def result_line(document: BisectionDocument) -> Words:
    """The result in one sentence."""
    blocks = [_names(document, block) for block in document.culprits]
    count = len(document.changes)
    if document.outcome == "none":
        return say("Nothing gets slower with {changes} together", changes=counted(count, "change"))
    if document.outcome == "impossible":
        return say("The new stack cannot be measured: {reason}", reason=_reason(document.tried[0]))
    if document.outcome == "undecided":
        left = _names(document, document.suspects)
        if not blocks:
            return say("Not decided: a gate stayed inconclusive; what makes it slower is among {left}", left=left)
        return say(
            "Not decided: {culprit} makes it slower together with others, and a gate about {left} stayed inconclusive",
            culprit=blocks[0],
            left=left,
        )
    if document.cumulative:
        return _slow_release(document)
    if len(blocks) > 1:
        return say("Slower only together: {culprits}", culprits=Words(" + ".join(blocks)))
    if len(document.culprits[0]) > 1:
        return say("One of these makes it slower, which cannot be tried apart: {culprit}", culprit=blocks[0])
    return say("{culprit} makes it slower, alone", culprit=blocks[0])


def _slow_release(document: BisectionDocument) -> Words:
    first, last = (document.changes[position] for position in (document.culprits[0][0], document.culprits[0][-1]))
    package, before, after = (Words(clean(str(text))) for text in (first.package, first.before, last.after))
    if first == last:
        return say("Slower since {package} {after}; {before} is not", package=package, after=after, before=before)
    return say(
        "{package} {after} is slower and {before} is not; the releases between cannot be tried",
        package=package,
        after=after,
        before=before,
    )


def _effort(document: BisectionDocument) -> str:
    skipped = sum(stack.answer == "impossible" for stack in document.tried)
    facts = [counted(document.gates, "gate"), say("in {duration}", duration=duration(document.duration))]
    if skipped:
        facts.append(say("{stacks} could not be tried", stacks=counted(skipped, "stack")))
    return " · ".join(facts)


def _followed(document: BisectionDocument) -> Words:
    listed = Words(clean(", ".join(document.followed[:_SHOWN])))
    return say("decided by exact counters that regress with all changes together: {counters}", counters=listed)


def _tried(document: BisectionDocument) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    for column in (say("old stack with"), "", say("documents")):
        table.add_column(column, overflow="fold")
    for number, stack in enumerate(document.tried, start=1):
        word, style = _ANSWERS[stack.answer]
        answer = Text(say(word), style)
        if stack.reason:
            answer.append(f": {_reason(stack)}")
        elif stack.repeated:
            answer.append(f" ({say('measured twice')})")
        table.add_row(str(number), Text(_applied(document, stack)), answer, Text(clean(stack.folder or "–")))
    return table


def _applied(document: BisectionDocument, stack: TriedStack) -> Words:
    return _names(document, stack.changes[-1:] if document.cumulative else stack.changes)


def _names(document: BisectionDocument, positions: Iterable[int]) -> Words:
    names = [_name(document.changes[position], cumulative=document.cumulative) for position in positions]
    listed = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return Words(f"{listed}{say(' and {more} more', more=more)}" if more > 0 else listed)


def _name(change: PackageChange, *, cumulative: bool) -> str:
    if cumulative:
        return clean(f"{change.package} {change.after}")
    return clean(f"{change.package} {change.before or say('none')} → {change.after}")


def _reason(stack: TriedStack) -> Words:
    return Words(clean(stack.reason or "", limit=_LONGEST_REASON))
