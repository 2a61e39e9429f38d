"""What the page of a CI job shows besides the comment: a run's checklist, and why there is no verdict."""

from __future__ import annotations

from perfgate.document.run import RunDocument
from perfgate.judging.report.text.templates import Medium, line, render
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.checklist import run_title, step_rows
from perfgate.locale import Language, speaking

# Why there is no verdict, by the exit code of the command that measured.
_ENDS = {
    2: phrase("wrong use or configuration"),
    4: phrase("the measuring itself failed"),
    5: phrase("a bug in perfgate"),
    130: phrase("interrupted"),
}


def run_markdown(run: RunDocument, language: Language = "en") -> str:
    with speaking(language):
        values = {"title": run_title(run), "steps": [row._asdict() for row in step_rows(run)]}
        return render("ci/run.md.j2", "markdown", values)


def no_verdict(why: str, exit_code: int | None, language: Language = "en", *, medium: Medium = "plain") -> str:
    """One line: there is no verdict, why, and how the measuring ended."""
    with speaking(language):
        end = None if exit_code is None else say(_ENDS[exit_code]) if exit_code in _ENDS else Words("")
        values = {"why": why, "code": exit_code, "end": end}
        return line("ci/no_verdict.j2", medium, values)
