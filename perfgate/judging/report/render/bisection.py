"""The result of a bisection in the terminal, of commits or of packages."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.bisection import BisectionDocument, BisectionTrial, CommitChange, PackageChange
from perfgate.errors import EXIT_INCONCLUSIVE, EXIT_MEASURING, EXIT_PASS
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import counted, duration, percent
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.locale import Language, speaking

_ANSWERS = {
    "slow": (phrase("slower"), "yellow"),
    "fast": (phrase("not slower"), "green"),
    "undecided": (phrase("not decided"), "yellow"),
    "impossible": (phrase("cannot be tried"), "dim"),
}
_CODES = {"none": EXIT_PASS, "found": EXIT_PASS, "undecided": EXIT_INCONCLUSIVE, "impossible": EXIT_MEASURING}
_SHOWN = 6
_ID = 10
_LONGEST_REASON = 200


def bisection_code(document: BisectionDocument) -> int:
    """The documented exit code."""
    return _CODES[document.outcome]


def render_bisection(document: BisectionDocument, console: Console, language: Language = "en") -> None:
    """Print the culprit, or why there is none, and the result of every stack tried."""
    with speaking(language):
        console.print(Text(result_line(document), "bold"))
        console.print(Text(_effort(document), "dim"))
        for line in (_followed(document), _certainty(document), _confirmed(document)):
            if line:
                console.print(Text(line, "dim"))
        console.print(_tried(document))


def result_line(document: BisectionDocument) -> Words:
    """The result in one sentence."""
    if document.good:
        return _commit_line(document, document.good)
    blocks = [_names(document, block) for block in document.culprits]
    count = len(document.changes)
    if document.outcome == "none":
        return say("Nothing gets slower with {changes} together", changes=counted(count, "change"))
    if document.outcome == "impossible":
        return say("The new stack cannot be measured: {reason}", reason=_reason(document.tried[0]))
    if document.outcome == "undecided":
        left = _names(document, document.suspects)
        if not blocks:
            return say("Not decided: a gate stayed inconclusive; the culprit is among {left}", left=left)
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


def _commit_line(document: BisectionDocument, good: str) -> Words:
    bad = _id(document.commit)
    if document.outcome == "none":
        return say("{bad} is not slower than {good}", bad=bad, good=_id(good))
    if document.outcome == "impossible":
        return say("{bad} cannot be measured: {reason}", bad=bad, reason=_reason(document.tried[0]))
    if document.outcome == "undecided":
        left = _names(document, document.suspects)
        return say("Not decided: a gate stayed inconclusive; the culprit is among {left}", left=left)
    commits = [change for at in document.culprits[0] if isinstance(change := document.changes[at], CommitChange)]
    last = commits[-1]
    if len(commits) == 1:
        author, subject = Words(clean(last.author)), Words(clean(last.subject))
        return say(
            "Slower since {commit}, by {author}: {subject}", commit=_id(last.commit), author=author, subject=subject
        )
    return say(
        "{bad} is slower and {good} is not; the commits between cannot be tried",
        bad=_id(last.commit),
        good=_id(commits[0].before),
    )


def _slow_release(document: BisectionDocument) -> Words:
    block = [document.changes[position] for position in document.culprits[0]]
    first, last = (change for change in (block[0], block[-1]) if isinstance(change, PackageChange))
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
    skipped = sum(trial.answer == "impossible" for trial in document.tried)
    stored = sum(trial.answered_by == "store" for trial in document.tried)
    facts = [counted(document.gates, "gate"), say("in {duration}", duration=duration(document.duration))]
    if document.good:
        searched = counted(len(document.changes) + document.irrelevant, "commit")
        facts.insert(
            0, say("{commits}, {left} of them change nothing that runs", commits=searched, left=document.irrelevant)
        )
    if stored:
        facts.append(say("{answers} from stored runs", answers=counted(stored, "answer")))
    if skipped:
        facts.append(
            say("{states} could not be tried", states=counted(skipped, "commit" if document.good else "stack"))
        )
    return " · ".join(facts)


def _followed(document: BisectionDocument) -> Words | None:
    listed = Words(clean(", ".join(document.followed[:_SHOWN])))
    return (
        say("decided by the metrics that regress with all changes together: {metrics}", metrics=listed)
        if listed
        else None
    )


def _certainty(document: BisectionDocument) -> Words | None:
    if document.outcome != "found" or not document.followed:
        return None
    if document.error == 0:
        return say("exact counts decided: noise had no part in it")
    return say(
        "noise makes this wrong with a probability of {error} at most", error=percent(max(document.error, 0.0005))
    )


def _confirmed(document: BisectionDocument) -> Words | None:
    if document.confirmation is None:
        return None
    if document.confirmation.answer == "slow":
        return say("confirmed by a gate against the commit before it, which follows")
    return say("a gate against the commit before it alone shows no regression: others before it may be needed")


def _tried(document: BisectionDocument) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    for column in (say("commit") if document.good else say("old stack with"), "", say("documents")):
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


def _applied(document: BisectionDocument, stack: BisectionTrial) -> Words:
    return _names(document, stack.changes[-1:] if document.cumulative else stack.changes, full=True)


def _names(document: BisectionDocument, positions: Iterable[int], *, full: bool = False) -> Words:
    names = [_name(document.changes[position], cumulative=document.cumulative, full=full) for position in positions]
    listed = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return Words(f"{listed}{say(' and {more} more', more=more)}" if more > 0 else listed)


def _name(change: PackageChange | CommitChange, *, cumulative: bool, full: bool) -> str:
    if isinstance(change, CommitChange):
        return clean(f"{_id(change.commit)} {change.subject}") if full else _id(change.commit)
    if cumulative:
        return clean(f"{change.package} {change.after}")
    return clean(f"{change.package} {change.before or say('none')} → {change.after}")


def _id(commit: str) -> Words:
    return Words(clean(commit[:_ID]))


def _reason(stack: BisectionTrial) -> Words:
    return Words(clean(stack.reason or "", limit=_LONGEST_REASON))
