"""The result of a bisection, of commits, packages or environments: in the terminal, and as the answer to an order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.bisection import (
    BisectionDocument,
    BisectionTrial,
    CommitChange,
    EnvironmentChange,
    PackageChange,
)
from perfgate.errors import EXIT_INCONCLUSIVE, EXIT_MEASURING, EXIT_PASS
from perfgate.judging.report.render.comment import tidied
from perfgate.judging.report.text.escape import clean, code_span
from perfgate.judging.report.text.numbers import counted, duration, percent
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import EMPTY, Words, phrase, say
from perfgate.locale import Language, speaking

_Change = TypeVar("_Change", CommitChange, EnvironmentChange, PackageChange)
_STYLES = {"slow": "yellow", "fast": "green", "undecided": "yellow", "impossible": "dim"}
# More than any search has; the document of an untrusted job may list thousands.
_MOST_TRIALS = 40
_CODES = {"none": EXIT_PASS, "found": EXIT_PASS, "undecided": EXIT_INCONCLUSIVE, "impossible": EXIT_MEASURING}
_ANSWERS = {
    "slow": phrase("slower"),
    "fast": phrase("not slower"),
    "undecided": phrase("undecided"),
    "impossible": phrase("cannot be tried"),
}
# A gate of the culprit against the commit before it, by its answer.
_CONFIRMED = {
    "slow": phrase("confirmed by a gate against the preceding commit"),
    "fast": phrase(
        "a gate of this commit alone, against the preceding one, shows no regression: earlier commits may be needed as well"
    ),
}
_NOT_CONFIRMED = phrase("a gate of this commit alone, against the preceding one, was inconclusive")
_SHOWN = 6
_ID = 10
_LONGEST_REASON = 200
# A smaller one is stated as this.
_LEAST_ERROR = 0.0005


def bisection_code(document: BisectionDocument) -> int:
    """The documented exit code."""
    return _CODES[document.outcome]


def render_bisection(document: BisectionDocument, console: Console, language: Language = "en") -> None:
    """Print the culprit, or why there is none, and the result of every state tried."""
    with speaking(language):
        words = BisectionWords(document)
        console.print(Text(words.result, "bold"))
        for line in (words.effort, *words.certainty):
            console.print(Text(line, "dim"))
        console.print(_tried(document, words))


def render_bisection_answer(document: BisectionDocument | None, job_url: str | None, language: Language) -> str:
    """The Markdown of the comment that answers an order; without a document, that the measuring job left none."""
    with speaking(language):
        words, trials = None, []
        if document is not None:
            words = BisectionWords(document, code_span)
            trials = words.trials[:_MOST_TRIALS]
        return tidied(render("order/bisection.md.j2", "markdown", words=words, trials=trials, job_url=job_url))


def _tried(document: BisectionDocument, words: BisectionWords) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    for column in (words.state, "", say("documents")):
        table.add_column(column, overflow="fold")
    for number, (trial, row) in enumerate(zip(document.tried, words.trials), start=1):
        answer = Text(row.answer, _STYLES[trial.answer]).append(row.note)
        table.add_row(str(number), Text(row.state), answer, Text(clean(row.folder or "–")))
    return table


class TrialWords(NamedTuple):
    """A trial: the state, the answer with its reason if there is one, and the folder of its gate."""

    state: Words
    answer: Words
    note: Words
    folder: str


@dataclass(frozen=True)
class BisectionWords:
    """The sentences about a bisection; ``quote`` makes outside text safe for the medium."""

    document: BisectionDocument
    quote: Callable[[str], str] = clean

    @property
    def result(self) -> Words:
        """The result in one sentence."""
        document = self.document
        searched = document.searched
        if searched.good:
            return self._between(self._id(searched.good), self._id(searched.commit)) or self._slow_commit()
        first, last = searched.changes[0], searched.changes[-1]
        if isinstance(first, EnvironmentChange) and isinstance(last, EnvironmentChange):
            return self._between(self._quoted(first.before), self._quoted(last.after)) or self._slow_environment()
        return self._packages()

    @property
    def effort(self) -> Words:
        document = self.document
        answers = Counter(trial.answer for trial in document.tried)
        sources = Counter(trial.answered_by for trial in document.tried)
        skipped, stored, counted_alone = answers["impossible"], sources["store"], sources["count"]
        facts = [counted(document.gates, "gate"), say("in {duration}", duration=duration(document.duration))]
        if document.searched.good:
            irrelevant = document.searched.irrelevant
            commits = counted(len(document.searched.changes) + irrelevant, "commit")
            facts.insert(
                0, say("{commits}, of which {left} change nothing that runs", commits=commits, left=irrelevant)
            )
        if counted_alone:
            facts.append(say("{answers} by counters alone", answers=counted(counted_alone, "answer")))
        if stored:
            facts.append(say("{answers} from stored runs", answers=counted(stored, "answer")))
        if skipped:
            states = counted(skipped, "stack")
            if document.searched.good:
                states = counted(skipped, "commit")
            elif self._is_list:
                states = counted(skipped, "environment")
            facts.append(say("{states} could not be tried", states=states))
        return Words(" · ".join(facts))

    @property
    def certainty(self) -> list[Words]:
        """The followed metrics, the probability of a wrong result, and the gate of the culprit alone, if there are any."""
        document = self.document
        lines = []
        if document.followed:
            listed = Words(", ".join(map(self.quote, document.followed[:_SHOWN])))
            lines.append(
                say("decided by the metrics that regress with all changes together: {metrics}", metrics=listed)
            )
        if document.followed and document.outcome == "found":
            if document.error == 0:
                lines.append(say("decided by exact counts, so noise played no part"))
            else:
                error = percent(max(document.error, _LEAST_ERROR))
                lines.append(say("the probability that noise makes this wrong is at most {error}", error=error))
        if document.confirmation is not None:
            lines.append(say(_CONFIRMED.get(document.confirmation.answer, _NOT_CONFIRMED)))
        return lines

    @property
    def state(self) -> Words:
        """The noun for a trial."""
        if self.document.searched.good:
            return say("commit")
        if self._is_list:
            return say("environment")
        return say("old stack with")

    @property
    def trials(self) -> list[TrialWords]:
        """Every trial in its order."""
        return [self._trial(trial) for trial in self.document.tried]

    @property
    def _is_list(self) -> bool:
        return isinstance(self.document.searched.changes[0], EnvironmentChange)

    def _between(self, good: Words, bad: Words) -> Words | None:
        """The result between two commits or environments; None if the culprit is found."""
        if self.document.outcome == "none":
            return say("{bad} is not slower than {good}", bad=bad, good=good)
        if self.document.outcome == "impossible":
            return say("{bad} cannot be measured: {reason}", bad=bad, reason=self._reason(self.document.tried[0]))
        if self.document.outcome == "undecided":
            return self._undecided()
        return None

    def _undecided(self) -> Words:
        suspects = self._names(self.document.suspects)
        return say("Undecided: a gate stayed inconclusive; the culprit is among {left}", left=suspects)

    def _slow_commit(self) -> Words:
        commits = self._culprits(CommitChange)
        last = commits[-1]
        if len(commits) == 1:
            return say(
                "Slower since {commit}, by {author}: {subject}",
                commit=self._id(last.commit),
                author=self._quoted(last.author),
                subject=self._quoted(last.subject),
            )
        return say(
            "{bad} is slower and {good} is not; the commits between cannot be tried",
            bad=self._id(last.commit),
            good=self._id(commits[0].before),
        )

    def _slow_environment(self) -> Words:
        steps = self._culprits(EnvironmentChange)
        before, after = self._quoted(steps[0].before), self._quoted(steps[-1].after)
        if len(steps) == 1:
            return say("Slower since {after}; {before} is not", after=after, before=before)
        return say("{after} is slower and {before} is not; those between cannot be tried", after=after, before=before)

    def _culprits(self, kind: type[_Change]) -> list[_Change]:
        """The changes of the first block of culprits, which are all of one kind."""
        changes = self.document.searched.changes
        return [change for at in self.document.culprits[0] if isinstance(change := changes[at], kind)]

    def _packages(self) -> Words:
        document = self.document
        blocks = [self._names(block) for block in document.culprits]
        if document.outcome == "none":
            count = len(document.searched.changes)
            return say("Nothing gets slower with {changes} together", changes=counted(count, "change"))
        if document.outcome == "impossible":
            return say("The new stack cannot be measured: {reason}", reason=self._reason(document.tried[0]))
        if document.outcome == "undecided":
            if not blocks:
                return self._undecided()
            return say(
                "Undecided: {culprit} makes it slower together with others, and a gate on {left} stayed inconclusive",
                culprit=blocks[0],
                left=self._names(document.suspects),
            )
        if document.searched.cumulative:
            return self._slow_release()
        if len(blocks) > 1:
            return say("Slower only together: {culprits}", culprits=Words(" + ".join(blocks)))
        if len(document.culprits[0]) > 1:
            return say("One of these makes it slower, which cannot be tried apart: {culprit}", culprit=blocks[0])
        return say("{culprit} makes it slower, alone", culprit=blocks[0])

    def _slow_release(self) -> Words:
        steps = self._culprits(PackageChange)
        first, last = steps[0], steps[-1]
        package, before, after = map(self._quoted, (last.package, str(first.before), last.after))
        if first == last:
            return say("Slower since {package} {after}; {before} is not", package=package, after=after, before=before)
        return say(
            "{package} {after} is slower and {before} is not; the releases between cannot be tried",
            package=package,
            after=after,
            before=before,
        )

    def _trial(self, trial: BisectionTrial) -> TrialWords:
        note = EMPTY
        if trial.reason:
            note = Words(f": {self._reason(trial)}")
        elif trial.repeated:
            note = Words(f" ({say('measured twice')})")
        elif trial.answered_by == "count":
            note = Words(f" ({say('counted')})")
        applied = trial.changes
        if self.document.searched.cumulative:
            applied = applied[-1:]
        return TrialWords(self._names(applied, full=True), say(_ANSWERS[trial.answer]), note, trial.folder or "")

    def _names(self, positions: Iterable[int], *, full: bool = False) -> Words:
        names = [self._name(self.document.searched.changes[position], full=full) for position in positions]
        words, more = Words(", ".join(names[:_SHOWN])), len(names) - _SHOWN
        if more > 0:
            words = Words(words + say(" and {more} more", more=more))
        return words

    def _name(self, change: PackageChange | CommitChange | EnvironmentChange, *, full: bool) -> str:
        if isinstance(change, CommitChange):
            if full:
                return f"{self._id(change.commit)} {self.quote(change.subject)}"
            return self._id(change.commit)
        if isinstance(change, EnvironmentChange):
            return self.quote(change.after)
        if self.document.searched.cumulative:
            return self.quote(f"{change.package} {change.after}")
        return self.quote(f"{change.package} {change.before or say('none')} → {change.after}")

    def _id(self, commit: str) -> Words:
        return self._quoted(commit[:_ID])

    def _reason(self, trial: BisectionTrial) -> Words:
        return self._quoted(clean(trial.reason or "", limit=_LONGEST_REASON))

    def _quoted(self, text: str) -> Words:
        return Words(self.quote(text))
