"""The result of a bisection, of commits, packages or environments: in the terminal, and
as the answer to an order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

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
from perfgate.judging.report.text.words import EMPTY, Words, phrase, phrases, say
from perfgate.locale import Language, speaking

_Change = CommitChange | EnvironmentChange | PackageChange
_STYLES = {
    "slow": "yellow",
    "fast": "green",
    "undecided": "yellow",
    "impossible": "dim",
}
# More than any search has; the document of an untrusted job may list thousands.
_MOST_TRIALS = 40
_CODES = {
    "none": EXIT_PASS,
    "found": EXIT_PASS,
    "undecided": EXIT_INCONCLUSIVE,
    "impossible": EXIT_MEASURING,
}
_ANSWERS = phrases(
    {
        "slow": "slower",
        "fast": "not slower",
        "undecided": "undecided",
        "impossible": "cannot be tried",
    }
)
# A gate of the culprit against the commit before it, by its answer.
_CONFIRMED = phrases(
    {
        "slow": "confirmed by a gate against the preceding commit",
        "fast": "a gate of this commit alone, against the preceding one, shows no "
        "regression: earlier commits may be needed as well",
    }
)
_NOT_CONFIRMED = phrase(
    "a gate of this commit alone, against the preceding one, was inconclusive"
)
_NOT_GATED = phrase(
    "this commit alone, against the preceding one, cannot be measured: {reason}"
)
_SHOWN = 6
_ID = 10
_LONGEST_REASON = 200
# A smaller one is stated as this.
_LEAST_ERROR = 0.0005


def bisection_code(document: BisectionDocument) -> int:
    """The documented exit code."""
    return _CODES[document.outcome]


def render_bisection(
    document: BisectionDocument, console: Console, language: Language
) -> None:
    """Print the culprit, or why there is none, and the result of every state tried."""
    with speaking(language):
        words = BisectionWords(document)
        console.print(Text(words.result, "bold"))
        for line in (words.effort, *words.certainty):
            console.print(Text(line, "dim"))
        console.print(_tried(document, words))


def render_bisection_answer(
    document: BisectionDocument | None, job_url: str | None, language: Language
) -> str:
    """The Markdown of the comment that answers an order; without a document, that the
    measuring job left none.
    """
    with speaking(language):
        words = None
        trials = []
        if document is not None:
            words = BisectionWords(document, code_span)
            trials = words.trials[:_MOST_TRIALS]
        return tidied(
            render(
                "order/bisection.md.j2",
                "markdown",
                words=words,
                trials=trials,
                job_url=job_url,
            )
        )


def _tried(document: BisectionDocument, words: BisectionWords) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    for column in (words.state, "", say("documents")):
        table.add_column(column, overflow="fold")
    for number, (trial, row) in enumerate(zip(document.tried, words.trials), start=1):
        answer = Text(row.answer, _STYLES[trial.answer]).append(row.note)
        table.add_row(
            str(number), Text(row.state), answer, Text(clean(row.folder or "–"))
        )
    return table


class TrialWords(NamedTuple):
    """A trial: the state, the answer with its reason if there is one, and the folder of
    its gate.
    """

    state: Words
    answer: Words
    note: Words
    folder: str


class BisectionWords(NamedTuple):
    """The sentences about a bisection; ``quote`` makes outside text safe for the
    medium.
    """

    document: BisectionDocument
    quote: Callable[[str], str] = clean

    @property
    def result(self) -> Words:
        """The result in one sentence."""
        match self.document.outcome:
            case "none":
                return self._nothing()
            case "impossible":
                return self._impossible()
            case "undecided":
                return self._undecided()
        searched = self.document.searched
        if searched.good or searched.cumulative:
            return self._slow_since(
                [searched.changes[at] for at in self.document.culprits[0]]
            )
        return self._slow_together()

    @property
    def effort(self) -> Words:
        document = self.document
        answers = Counter(trial.answer for trial in document.tried)
        sources = Counter(trial.answered_by for trial in document.tried)
        skipped = answers["impossible"]
        stored = sources["store"]
        counted_alone = sources["count"]
        facts = [
            counted(document.gates, "gate"),
            say("in {duration}", duration=duration(document.duration)),
        ]
        if document.searched.good:
            irrelevant = document.searched.irrelevant
            facts.insert(
                0,
                say(
                    "{commits}, of which {left} change nothing that runs",
                    commits=counted(
                        len(document.searched.changes) + irrelevant, "commit"
                    ),
                    left=irrelevant,
                ),
            )
        if counted_alone:
            facts.append(
                say(
                    "{answers} by counters alone",
                    answers=counted(counted_alone, "answer"),
                )
            )
        if stored:
            facts.append(
                say("{answers} from stored runs", answers=counted(stored, "answer"))
            )
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
        """The followed metrics, the probability of a wrong result, and the gate of the
        culprit alone, if there are any.
        """
        document = self.document
        lines = []
        if document.followed:
            lines.append(
                say(
                    "decided by the metrics that regress with all changes together: {metrics}",
                    metrics=Words(
                        ", ".join(map(self.quote, document.followed[:_SHOWN]))
                    ),
                )
            )
        if document.followed and document.outcome == "found":
            if document.error == 0:
                lines.append(say("decided by exact counts, so noise played no part"))
            else:
                lines.append(
                    say(
                        "the probability that noise makes this wrong is at most {error}",
                        error=percent(max(document.error, _LEAST_ERROR)),
                    )
                )
        confirmation = document.confirmation
        if confirmation is not None and confirmation.reason:
            lines.append(say(_NOT_GATED, reason=self._reason(confirmation)))
        elif confirmation is not None:
            lines.append(say(_CONFIRMED.get(confirmation.answer, _NOT_CONFIRMED)))
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

    def _nothing(self) -> Words:
        searched = self.document.searched
        if searched.good:
            return self._not_slower(searched.good[:_ID], searched.commit[:_ID])
        if self._is_list:
            return self._not_slower(
                _old(searched.changes[0]), _new(searched.changes[-1])
            )
        return say(
            "Nothing gets slower with {changes} together",
            changes=counted(len(searched.changes), "change"),
        )

    def _not_slower(self, good: str, bad: str) -> Words:
        return say(
            "{bad} is not slower than {good}",
            bad=self._quoted(bad),
            good=self._quoted(good),
        )

    def _impossible(self) -> Words:
        searched = self.document.searched
        state = say("The new stack")
        if searched.good:
            state = self._quoted(searched.commit[:_ID])
        elif self._is_list:
            state = self._quoted(_new(searched.changes[-1]))
        return say(
            "{bad} cannot be measured: {reason}",
            bad=state,
            reason=self._reason(self.document.tried[0]),
        )

    def _undecided(self) -> Words:
        suspects = self._names(self.document.suspects)
        if not self.document.culprits:
            return say(
                "Undecided: a gate stayed inconclusive; the culprit is among {left}",
                left=suspects,
            )
        return say(
            "Undecided: {culprit} makes it slower together with others, and a gate on {left} stayed inconclusive",
            culprit=self._names(self.document.culprits[0]),
            left=suspects,
        )

    def _slow_since(self, steps: Sequence[_Change]) -> Words:
        """The first slow one of ordered commits, environments or releases."""
        before = self._quoted(_old(steps[0]))
        last = steps[-1]
        after = self._quoted(_new(last))
        if len(steps) > 1:
            return say(
                "{after} is slower and {before} is not; those between cannot be tried",
                after=after,
                before=before,
            )
        if isinstance(last, CommitChange):
            return say(
                "Slower since {commit}, by {author}: {subject}",
                commit=after,
                author=self._quoted(last.author),
                subject=self._quoted(last.subject),
            )
        return say("Slower since {after}; {before} is not", after=after, before=before)

    def _slow_together(self) -> Words:
        """The packages that make it slower, of a stack that is tried in any
        combination.
        """
        blocks = [self._names(block) for block in self.document.culprits]
        if len(blocks) > 1:
            return say(
                "Slower only together: {culprits}", culprits=Words(" + ".join(blocks))
            )
        if len(self.document.culprits[0]) > 1:
            return say(
                "One of these makes it slower, which cannot be tried apart: {culprit}",
                culprit=blocks[0],
            )
        return say("{culprit} makes it slower, alone", culprit=blocks[0])

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
        return TrialWords(
            self._names(applied, full=True),
            say(_ANSWERS[trial.answer]),
            note,
            trial.folder or "",
        )

    def _names(self, positions: Iterable[int], *, full: bool = False) -> Words:
        names = [
            self._name(self.document.searched.changes[position], full=full)
            for position in positions
        ]
        words = Words(", ".join(names[:_SHOWN]))
        more = len(names) - _SHOWN
        if more > 0:
            words = Words(words + say(" and {more} more", more=more))
        return words

    def _name(self, change: _Change, *, full: bool) -> str:
        if isinstance(change, PackageChange) and not self.document.searched.cumulative:
            return self.quote(
                f"{change.package} {change.before or say('none')} → {change.after}"
            )
        name = self.quote(_new(change))
        if full and isinstance(change, CommitChange):
            return f"{name} {self.quote(change.subject)}"
        return name

    def _reason(self, trial: BisectionTrial) -> Words:
        return self._quoted(clean(trial.reason or "", limit=_LONGEST_REASON))

    def _quoted(self, text: str) -> Words:
        return Words(self.quote(text))


def _old(change: _Change) -> str:
    """The state before a change."""
    if isinstance(change, CommitChange):
        return change.before[:_ID]
    return str(change.before)


def _new(change: _Change) -> str:
    """The state that a change makes."""
    match change:
        case CommitChange():
            return change.commit[:_ID]
        case PackageChange():
            return f"{change.package} {change.after}"
        case EnvironmentChange():
            return change.after
