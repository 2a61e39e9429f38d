"""The table of `perfgate trend` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.trend import TrendCause, TrendDocument
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import counted
from perfgate.judging.report.text.sparkline import sparkline
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.trend_rows import (
    bisect_command,
    change_row,
    day,
    gates_line,
    headline,
    moved_by,
    searched,
    sort_causes,
    triage_view,
)
from perfgate.locale import Language, speaking

_MOST_ROWS = 40
_WIDE = 120  # columns from which there is room for the longer history
_STYLES = {"worse": "red", "better": "green", "changed": "yellow"}


def render_trend(document: TrendDocument, console: Console, language: Language) -> None:
    """Print the moved and the open metrics, one row per cause, with the evidence behind them."""
    with speaking(language):
        _render(document, console)


def _render(document: TrendDocument, console: Console) -> None:
    causes = sort_causes(document)
    console.print(Text(clean(f"{document.project}: {headline(document)}"), "bold"))
    groups = (
        (say("new"), [*causes.new_worse, *causes.new_better, *causes.new_other]),
        (say("open"), causes.still_open),
        (say("settled"), causes.ended),
    )
    rows = [(word, cause) for word, group in groups for cause in group]
    if rows:
        console.print(_table(document, rows[:_MOST_ROWS], blocks=24 if console.width >= _WIDE else 10))
    if len(rows) > _MOST_ROWS:
        console.print(say("… {count} more in trend.json", count=len(rows) - _MOST_ROWS))
    # The command that finds the commit of each open regression, one a line and never wrapped, ready to copy.
    causes_shown = (cause for _, cause in rows[:_MOST_ROWS])
    commands = [cmd for cause in causes_shown if (cmd := bisect_command(cause, moved_by(cause, document)[0]))]
    if commands:
        console.print(say("To find the commit:"))
    for command in dict.fromkeys(commands):
        console.print(Text(f"  {clean(command)}"), soft_wrap=True)
    for line in _facts(document):
        console.print(Text(line, "dim"))


def _table(document: TrendDocument, rows: Sequence[tuple[str, TrendCause]], *, blocks: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("", say("metric"), say("change"), say("since"), say("how sure"), say("history")):
        # Metrics are search terms and stay whole; a truncated history would show the past only.
        table.add_column(title, no_wrap=title in (say("metric"), say("history")))
    for word, cause in rows:
        moved, *others = moved_by(cause, document)
        row = change_row(moved)
        history = Text(sparkline([point.value for point in moved.series.points], blocks))
        name = Text(clean(row["metric"])).append(f"\n{clean(row['place'])}", "dim")
        if others:
            name.append(f"\n{say('and {count}', count=counted(len(others), 'more metric'))}", "dim")
        change = Text(row["change"], _STYLES[moved.change.direction]).append(f"\n{row['span']}", "dim")
        since = Text(f"{row['when']} {clean(row['bad'])}")
        if row["subject"]:
            since.append(f"\n{clean(row['subject'], limit=60)}", "dim")
        elif moved.change.commit_count > 1:
            since.append(
                Text(f"\n{say('one of {commits}', commits=counted(moved.change.commit_count, 'commit'))}", "dim")
            )
        if (triage := triage_view(cause.triage)) is not None:
            by = say("{state} by {author}", state=triage["state"], author=Words(clean(triage["author"], limit=30)))
            name.append(f"\n{by}", "dim")
        table.add_row(Text(word, "bold"), name, change, since, Text(row["evidence"]), history)
    return table


def _facts(document: TrendDocument) -> list[str]:
    lines: list[str] = [searched(document), *filter(None, [gates_line(document)])]
    short = next((entry for entry in document.not_looked_at if entry.reason == "too_short"), None)
    if document.looked_at and short is not None:
        needed = counted(document.versions_needed, "version")
        lines.append(
            say(
                "{count} series are too short: a time needs {needed} on one testbed.", count=short.series, needed=needed
            )
        )
    if len(document.testbeds) > 1 and document.testbeds[-1].runs < document.versions_needed:
        lines.append(
            say(
                "The testbed is a new one since {since}; its series start anew.",
                since=day(document.testbeds[-1].first_seen),
            )
        )
    return lines
