"""The table of `perfgate trend` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.trend import TrendCause, TrendDocument
from perfgate.judging.report.text.dates import day
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.numbers import beyond, counted
from perfgate.judging.report.text.svg import sparkline
from perfgate.judging.report.text.words import phrase, say
from perfgate.judging.report.view.trend_rows import (
    ChangeView,
    biased_machine_lines,
    bisect_command,
    change_row,
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
_LONGEST_AUTHOR, _LONGEST_SUBJECT = 30, 60
_STYLES = {"worse": "red", "better": "green", "changed": "yellow"}


def render_trend(document: TrendDocument, console: Console, language: Language) -> None:
    """Print the moved and the open metrics, one row per cause, with the evidence behind them."""
    with speaking(language):
        causes = sort_causes(document)
        console.print(Text(clean(f"{document.project}: {headline(document)}"), "bold"))
        rows = []
        for cause in (*causes.new_worse, *causes.new_better, *causes.new_other):
            rows.append((say("new"), cause))
        for cause in causes.still_open:
            rows.append((say("open"), cause))
        for cause in causes.ended:
            rows.append((say("settled"), cause))
        listed, more = rows[:_MOST_ROWS], beyond(rows, _MOST_ROWS)
        if listed:
            console.print(_table(document, listed, blocks=24 if console.width >= _WIDE else 10))
        if more:
            console.print(say("… {count} more in trend.json", count=more))
        _print_commands([cause for _, cause in listed], document, console)
        for line in _facts(document):
            console.print(Text(line, "dim"))


def _print_commands(causes: Sequence[TrendCause], document: TrendDocument, console: Console) -> None:
    """Print the command that finds the commit of each open regression, one a line and never wrapped, ready to copy."""
    commands: dict[str, None] = {}
    for cause in causes:
        command = bisect_command(cause, moved_by(cause, document)[0])
        if command:
            commands[command] = None
    if commands:
        console.print(say("To find the commit:"))
    for command in commands:
        console.print(Text(f"  {clean(command)}"), soft_wrap=True)


def _table(document: TrendDocument, rows: Sequence[tuple[str, TrendCause]], *, blocks: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("", say("metric"), say("change"), say("since"), say("how sure"), say("history")):
        # Metrics are search terms and stay whole; a truncated history would show the past only.
        table.add_column(title, no_wrap=title in (say("metric"), say("history")))
    for word, cause in rows:
        moved, *further = moved_by(cause, document)
        row = change_row(moved)
        change = Text(row.change, _STYLES[moved.change.direction]).append(f"\n{row.span}", "dim")
        history = Text(sparkline(row.history, blocks))
        name = _name(row, cause, len(further))
        table.add_row(Text(word, "bold"), name, change, _since(row), Text(row.evidence), history)
    return table


def _name(row: ChangeView, cause: TrendCause, further: int) -> Text:
    name = Text(clean(row.metric)).append(f"\n{clean(row.place)}", "dim")
    if further:
        name.append(f"\n{say('and {count}', count=counted(further, 'more metric'))}", "dim")
    triage = triage_view(cause.triage)
    if triage is not None:
        author = clean(triage.author, limit=_LONGEST_AUTHOR)
        name.append(f"\n{say('{state} by {author}', state=triage.state, author=author)}", "dim")
    return name


def _since(row: ChangeView) -> Text:
    since = Text(f"{row.when} {clean(row.bad)}")
    if row.commit.subject:
        since.append(f"\n{clean(row.commit.subject, limit=_LONGEST_SUBJECT)}", "dim")
    elif row.source.commit_count > 1:
        since.append(f"\n{say('one of {commits}', commits=counted(row.source.commit_count, 'commit'))}", "dim")
    return since


def _facts(document: TrendDocument) -> list[str]:
    lines: list[str] = [searched(document)]
    gates = gates_line(document)
    if gates:
        lines.append(gates)
    lines += biased_machine_lines(document)
    needed = counted(document.searched.versions_needed, "version")
    for entry in document.searched.not_looked_at:
        if document.searched.looked_at and entry.reason == "too_short":
            sentence = phrase("{count} series are too short: a time needs {needed} on one testbed.")
            lines.append(say(sentence, count=entry.series, needed=needed))
            break
    if len(document.testbeds) > 1 and document.testbeds[-1].runs < document.searched.versions_needed:
        sentence = phrase("The testbed is a new one since {since}; its series start anew.")
        lines.append(say(sentence, since=day(document.testbeds[-1].first_seen)))
    return lines
