"""The result of a bisection in the terminal, and as the comment that answers an order."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.bisection import BisectionDocument
from perfgate.errors import EXIT_INCONCLUSIVE, EXIT_MEASURING, EXIT_PASS
from perfgate.judging.report.render.comment import tidied
from perfgate.judging.report.text.escape import clean, code_span
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import say
from perfgate.judging.report.view.bisection import BisectionWords
from perfgate.locale import Language, speaking

_STYLES = {"slow": "yellow", "fast": "green", "undecided": "yellow", "impossible": "dim"}
# More than any search has; the document of an untrusted job may list thousands.
_MOST_TRIALS = 40
_CODES = {"none": EXIT_PASS, "found": EXIT_PASS, "undecided": EXIT_INCONCLUSIVE, "impossible": EXIT_MEASURING}


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
        words = document and BisectionWords(document, code_span)
        trials = words.trials[:_MOST_TRIALS] if words else []
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
