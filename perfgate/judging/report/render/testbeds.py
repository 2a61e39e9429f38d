"""The comment on a change that several testbeds judged: one verdict, a table with a column each, then the comment of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfgate.document.comparison import Bound
from perfgate.document.decision import DecisionDocument, Verdict
from perfgate.judging.report.render.comment import render_section, tidied
from perfgate.judging.report.sections.verdict import SIGNS, title_values
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text.names import place, title_of
from perfgate.judging.report.text.numbers import DASH
from perfgate.judging.report.text.templates import Values, line, render
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.headline import deciding_times
from perfgate.judging.report.view.rows import label
from perfgate.judging.report.view.summary import CommentContext, Summary
from perfgate.locale import Language, speaking

# The rows of the table; the first that fits is used.
_MOST_ROWS = (4, 1)
_MOST_NAMES = 4
# For the title, the table and the last line.
_HEAD = 9_000
# Testbeds that need a reader come first.
_READING_ORDER: tuple[Verdict, ...] = ("FAIL", "INCONCLUSIVE", "WARN", "PASS", "SKIPPED")


# A metric that several testbeds have in common, as the table names it: its name, its place, and whether it is a rule.
_Number = tuple[str, str, bool]


class MatrixColumn(NamedTuple):
    """A testbed's decision in words. ``section`` is its comment without title, None if it would be too long."""

    name: Words
    verdict: Verdict
    device: str | None
    headline: Words
    section: str | None
    cells: dict[_Number, Values]


def render_column(name: str, decision: DecisionDocument, context: CommentContext, *, budget: int) -> MatrixColumn:
    """Word a testbed's decision for the joint comment; its ``name`` has been checked to need no escaping."""
    summary = Summary(decision, context)
    with speaking(context.language):
        decide = {id(comparison) for comparison in deciding_times(summary)}
        cells: dict[_Number, Values] = {}
        for one in reversed(summary.metrics):
            cells[title_of(one), place(one.workload, one.shape), isinstance(one, Bound)] = {
                # None if the change says it all.
                "label": None if one.outcome == "unchanged" else label(one, summary),
                "change": formats.change(one),
                "moved": one.outcome in ("regressed", "improved"),
                # A time that decides a verdict.
                "decides": id(one) in decide,
            }
        return MatrixColumn(
            name=Words(name),
            verdict=decision.verdict,
            device=decision.device if summary.is_measured else None,
            headline=line("comment/headline.md.j2", "markdown", title_values(summary)),
            section=render_section(decision, context, budget=budget),
            cells=dict(reversed(cells.items())),
        )


def section_budget(columns: int, budget: int) -> int:
    """The characters that each of several testbeds may have of a comment."""
    return (budget - _HEAD) // columns


def render_joint_comment(
    columns: Sequence[MatrixColumn], verdict: Verdict, context: CommentContext, *, budget: int
) -> str:
    """The Markdown of the comment, with the sections in the order in which they need a reader.

    If it has more than ``budget`` characters, rows of the table are left out.
    """
    with speaking(context.language):
        texts = (_joint_comment(columns, verdict, context, rows) for rows in _MOST_ROWS)
        return next((text for text in texts if len(text) <= budget), _joint_comment(columns, verdict, context, 0))


def _joint_comment(columns: Sequence[MatrixColumn], verdict: Verdict, context: CommentContext, most_rows: int) -> str:
    # The metrics that moved on any testbed, in the reading order of the testbeds; without any, those that decide.
    cells = [entry for column in _ordered(columns) for entry in column.cells.items()]
    moved = [number for number, cell in cells if cell["moved"]]
    numbers = list(dict.fromkeys(moved or [number for number, cell in cells if cell["decides"]]))
    values = {
        "sign": Words(SIGNS[verdict]),
        "title": _title(columns, verdict),
        "columns": [column._asdict() | {"sign": Words(SIGNS[column.verdict])} for column in _ordered(columns)],
        "table": [column._asdict() | {"sign": Words(SIGNS[column.verdict])} for column in columns],
        "rows": [(number, [column.cells.get(number) for column in columns]) for number in numbers[:most_rows]],
        "more": max(0, len(numbers) - most_rows),
        "no_value": DASH,
        "artifact_url": context.artifact_url,
        "job_url": context.job_url,
    }
    return f"{context.marker}\n\n{tidied(render('testbeds/comment.md.j2', 'markdown', values))}\n"


def render_joint_status(columns: Sequence[MatrixColumn], verdict: Verdict, language: Language) -> str:
    """The text of the commit status: the verdict, and the testbeds that have it."""
    with speaking(language):
        return _title(columns, verdict)


def _title(columns: Sequence[MatrixColumn], verdict: Verdict) -> Words:
    names = [column.name for column in columns if column.verdict == verdict]
    values = {
        "verdict": Words(verdict),
        "names": names[:_MOST_NAMES],
        "more": max(0, len(names) - _MOST_NAMES),
        "count": len(names),
        "total": len(columns),
    }
    return line("testbeds/title.j2", "plain", values)


def _ordered(columns: Sequence[MatrixColumn]) -> list[MatrixColumn]:
    return sorted(columns, key=lambda column: _READING_ORDER.index(column.verdict))
