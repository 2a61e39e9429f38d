"""The comment on a change request, one text for every forge from the decision alone,
and the short replies to orders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal, NamedTuple

from perfgate.document.decision import DecisionDocument, Verdict
from perfgate.judging.report.sections import KEEP, SECTIONS, Section
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.blocks import listed_regressions
from perfgate.judging.report.view.summary import CommentContext, Summary
from perfgate.locale import Language, speaking

__all__ = [
    "CommentContext",
    "render_comment",
    "render_double",
    "render_section",
    "render_turn",
]

# Limits on the rows of a list; the first that fits the budget is used.
_DETAILS = (400, 120, 40, 12, 4)


class _Part(NamedTuple):
    """A section with its text, and the title of its fold; without one, it stays outside
    of folds.
    """

    section: Section
    text: str
    summary: str

    @property
    def fold(self) -> str:
        if self.summary:
            return self.section.fold
        return ""


def render_comment(
    decision: DecisionDocument, context: CommentContext, *, budget: int = 60_000
) -> str:
    """The Markdown of the comment, at most ``budget`` characters.

    Over the budget, whole folds are dropped first, from the bottom; then rows at the
    end of long lists, with their number. The title, the first rows of the table and the
    line with the links always stay. Raises ValueError for a marker that is not one line
    of HTML comment, or for a budget that is too small.
    """
    if (
        not (context.marker.startswith("<!--") and context.marker.endswith("-->"))
        or "\n" in context.marker
    ):
        raise ValueError(
            f"the marker must be one line of HTML comment, found {context.marker!r}"
        )
    with speaking(context.language):
        for detail in _DETAILS:
            summary = Summary(decision, "markdown", context, detail)
            text = _shortened(
                _parts(summary, SECTIONS), partial(_whole, summary), budget
            )
            if text is not None:
                return text
    raise ValueError(f"a budget of {budget} characters is too small for any comment")


def render_section(
    decision: DecisionDocument, context: CommentContext, *, budget: int
) -> str | None:
    """The comment without marker, title and last line, as a part of a joint one; None
    if ``budget`` is too small.
    """
    with speaking(context.language):
        for detail in _DETAILS:
            text = _shortened(
                _parts(Summary(decision, "markdown", context, detail), SECTIONS[1:]),
                _testbed_part,
                budget,
            )
            if text is not None:
                return text
    return None


def accepting_metrics(decision: DecisionDocument) -> list[list[str]]:
    """For each numbered cause of the comment, the metrics to accept for its
    regressions; empty if it cannot be accepted.
    """
    return [
        regression.accepts
        for regression in listed_regressions(Summary(decision, "plain"))
    ]


def render_turn(last: Verdict, verdict: Verdict, head: str, language: Language) -> str:
    """The reply that announces a verdict changed by the commit ``head``."""
    with speaking(language):
        words = render(
            "comment/turned.md.j2",
            "markdown",
            last=Words(last),
            verdict=Words(verdict),
            head=head[:12],
        )
        return words.strip()


def render_double(language: Language) -> str:
    """The text that replaces a second comment of ours that may not be deleted."""
    with speaking(language):
        return render("comment/double.md.j2", "markdown").strip()


def _parts(summary: Summary, sections: Sequence[Section]) -> list[_Part]:
    parts = []
    for section in sections:
        content = section.fill(summary)
        if content is None:
            continue
        text = tidied(content.text)
        if text:
            parts.append(_Part(section, text, content.summary))
    return parts


def _shortened(
    parts: list[_Part], whole: Callable[[list[_Part], list[Words]], str], budget: int
) -> str | None:
    """The text with as few sections dropped as the budget allows, None if it is still
    too long without all of them.

    ``whole`` builds it from the remaining parts and the titles of the omitted sections.
    """
    omitted = []
    droppable = [part.section for part in parts if part.section.drop != KEEP]
    droppable.sort(key=lambda section: section.drop)
    while True:
        remaining = []
        titles = []
        for part in parts:
            if part.section in omitted:
                titles.append(say(part.section.title))
            else:
                remaining.append(part)
        text = whole(remaining, titles)
        if len(text) <= budget:
            return text
        if not droppable:
            return None
        omitted.append(droppable.pop())


def _whole(summary: Summary, parts: list[_Part], omitted: list[Words]) -> str:
    end = render(
        "comment/end.md.j2",
        "markdown",
        omitted=omitted,
        context=summary.context,
        # Without a measurement, no report was written either.
        has_report=summary.is_measured,
    )
    texts = [summary.context.marker, *_folds(parts), tidied(end)]
    return "\n\n".join(filter(None, texts)) + "\n"


def _testbed_part(parts: list[_Part], omitted: list[Words]) -> str:
    """The comment of one testbed inside a joint comment."""
    end = render("testbeds/omitted.md.j2", "markdown", omitted=omitted).strip()
    return "\n\n".join(filter(None, [*_folds(parts), end]))


def _folds(parts: list[_Part]) -> list[str]:
    """The parts of each fold under one summary; a part without a fold as it is."""
    folds = []
    for _, group in groupby(parts, key=lambda part: part.fold or part.section.title):
        first, *following = group
        if not first.fold:
            folds.append(first.text)
            continue
        titles = [first.summary]
        texts = [first.text]
        for part in following:
            titles.append(part.summary)
            texts.append(f"**{part.summary}**\n\n{part.text}")
        summary = " · ".join(titles)
        folds.append(
            "\n\n".join(
                [f"<details><summary>{summary}</summary>", *texts, "</details>"]
            )
        )
    return folds


def tidied(text: str) -> str:
    """The text without blank lines at its ends, and with one at most between others."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return "\n".join(lines)


Outcome = Literal[
    "measuring",
    "bisecting",
    "accepted",
    "waiting",
    "unclear",
    "own_fork",
    "unnamed",
    "moved",
    "no_metric",
    "no_numbers",
    "outdated",
    "no_block",
    "not_of_main",
    "no_date",
    "past",
    "rerun",
    "repeat",
    "republish",
    "by_hand",
    "fork_by_hand",
    "refused_by_hand",
]


@dataclass(frozen=True)
class OrderAnswer:
    """The outcome of an order.

    ``head`` is the commit of the change, and ``named`` a different one that was
    requested or that perfgate's comment is about; ``close`` is the known metric most
    similar to an unknown one in ``metrics``, ``block`` the number of a cause, and
    ``until`` the last day of an acceptance. If the order has a word that is not a day,
    that is ``named``. ``command`` is the shell line to run by hand if neither the forge
    nor its CI can start it.
    """

    outcome: Outcome
    head: str = ""
    named: str = ""
    workload: str | None = None
    metrics: tuple[str, ...] = ()
    close: str | None = None
    block: int | None = None
    verdict: Verdict | None = None
    job_url: str | None = None
    until: str = ""
    command: str = ""


def render_answer(answer: OrderAnswer, language: Language) -> str:
    """The Markdown of a reply, one line."""
    with speaking(language):
        words = render(
            f"order/answer/{answer.outcome}.md.j2", "markdown", answer=answer
        )
        return words.strip()
