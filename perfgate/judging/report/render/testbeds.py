"""The comment on a change that several testbeds judged: one verdict, a table with a
column each, then the comment of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfgate.document.comparison import Bound
from perfgate.document.decision import DecisionDocument, Verdict
from perfgate.judging.report.render.comment import render_section, tidied
from perfgate.judging.report.sections import SIGNS
from perfgate.judging.report.text import formats
from perfgate.judging.report.text.names import place_of, title_of
from perfgate.judging.report.text.numbers import DASH, beyond
from perfgate.judging.report.text.templates import line, render
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.causes import worst_cause
from perfgate.judging.report.view.headline import deciding_times, headline
from perfgate.judging.report.view.rows import label
from perfgate.judging.report.view.summary import CommentContext, Summary
from perfgate.locale import Language, speaking

# The rows of the table; the first that fits is used.
_MOST_ROWS = (4, 1, 0)
_MOST_NAMES = 4
# For the title, the table and the last line.
_HEAD = 9_000
# Testbeds that need a reader come first.
_READING_ORDER: tuple[Verdict, ...] = (
    "FAIL",
    "INCONCLUSIVE",
    "WARN",
    "PASS",
    "SKIPPED",
)


class SharedNumber(NamedTuple):
    """A metric that several testbeds have in common, as the table names it."""

    name: str
    place: str
    is_rule: bool


class MatrixCell(NamedTuple):
    """A metric of one testbed.

    ``label`` is None if the change is clear without it. ``decides`` marks a time that
    decides a verdict.
    """

    label: Words | None
    change: Words
    moved: bool
    decides: bool

    @property
    def has_change(self) -> bool:
        return self.change != DASH


class MatrixColumn(NamedTuple):
    """A testbed's decision in words.

    ``section`` is its comment without title, None if it would be too long.
    """

    name: Words
    verdict: Verdict
    device: str | None
    headline: Words
    section: str | None
    cells: dict[SharedNumber, MatrixCell]

    @property
    def sign(self) -> Words:
        return Words(SIGNS[self.verdict])

    @property
    def needs_reader(self) -> bool:
        return self.verdict not in ("PASS", "SKIPPED")


def render_column(
    name: str, decision: DecisionDocument, context: CommentContext, *, budget: int
) -> MatrixColumn:
    """Word a testbed's decision for the joint comment; its ``name`` has been checked to
    need no escaping.
    """
    summary = Summary(decision, "markdown", context)
    with speaking(context.language):
        cells: dict[SharedNumber, MatrixCell] = {}
        for comparison in summary.metrics:
            at = place_of(comparison)
            number = SharedNumber(
                title_of(comparison), at, isinstance(comparison, Bound)
            )
            first_word = None
            if comparison.outcome != "unchanged":
                first_word = label(comparison, summary)
            cell = MatrixCell(
                label=first_word,
                change=formats.change(comparison),
                moved=comparison.outcome in ("regressed", "improved"),
                decides=any(time is comparison for time in deciding_times(summary)),
            )
            cells.setdefault(number, cell)
        return MatrixColumn(
            name=Words(name),
            verdict=decision.verdict,
            device=decision.measured.device if summary.is_measured else None,
            headline=line(
                "comment/headline.md.j2",
                "markdown",
                headline=headline(summary),
                cause=worst_cause(summary),
            ),
            section=render_section(decision, context, budget=budget),
            cells=cells,
        )


def section_budget(columns: int, budget: int) -> int:
    """The characters that each of several testbeds may have of a comment."""
    return (budget - _HEAD) // columns


def render_joint_comment(
    columns: Sequence[MatrixColumn],
    verdict: Verdict,
    context: CommentContext,
    *,
    budget: int,
) -> str:
    """The Markdown of the comment, with the sections in the order in which they need a
    reader.

    If it has more than ``budget`` characters, rows of the table are left out.
    """
    text = ""
    with speaking(context.language):
        for rows in _MOST_ROWS:
            text = _joint_comment(columns, verdict, context, rows)
            if len(text) <= budget:
                break
    return text


def _joint_comment(
    columns: Sequence[MatrixColumn],
    verdict: Verdict,
    context: CommentContext,
    most_rows: int,
) -> str:
    ordered = sorted(columns, key=lambda column: _READING_ORDER.index(column.verdict))
    numbers = _numbers(ordered)
    text = render(
        "testbeds/comment.md.j2",
        "markdown",
        sign=Words(SIGNS[verdict]),
        title=_title(columns, verdict),
        columns=ordered,
        table=columns,
        numbers=numbers[:most_rows],
        more=beyond(numbers, most_rows),
        no_value=DASH,
        context=context,
    )
    return f"{context.marker}\n\n{tidied(text)}\n"


def _numbers(ordered: Sequence[MatrixColumn]) -> list[SharedNumber]:
    """The metrics that moved on any testbed, in the reading order of the testbeds;
    without any, those that decide.
    """
    moved: dict[SharedNumber, None] = {}
    deciding: dict[SharedNumber, None] = {}
    for column in ordered:
        for number, cell in column.cells.items():
            if cell.moved:
                moved[number] = None
            if cell.decides:
                deciding[number] = None
    return list(moved or deciding)


def render_joint_status(
    columns: Sequence[MatrixColumn], verdict: Verdict, language: Language
) -> str:
    """The text of the commit status: the verdict, and the testbeds that have it."""
    with speaking(language):
        return _title(columns, verdict)


def _title(columns: Sequence[MatrixColumn], verdict: Verdict) -> Words:
    names = [column.name for column in columns if column.verdict == verdict]
    return line(
        "testbeds/title.j2",
        "plain",
        verdict=Words(verdict),
        names=names[:_MOST_NAMES],
        more=beyond(names, _MOST_NAMES),
        is_everywhere=len(names) == len(columns),
        count=len(names),
        total=len(columns),
    )
