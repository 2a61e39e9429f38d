"""A decision or a run in the terminal: short, readable in 80 columns, plain text if piped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfgate.document.decision import DecisionDocument, Suggestion
from perfgate.document.run import RunDocument
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import first_line, title_of
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.blocks import blocks_with_more
from perfgate.judging.report.view.card import card_lines
from perfgate.judging.report.view.checklist import job_lines, recorded_lines, run_title, step_rows, terminal_notes
from perfgate.judging.report.view.coverage import coverage_line
from perfgate.judging.report.view.facts import base_line, counts_line, worded_failures
from perfgate.judging.report.view.findings import changed_findings
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.remedy import remedy_lines
from perfgate.judging.report.view.rows import grouped, row, stored_row, worded_causes, worst_cause
from perfgate.judging.report.view.suggestions import introduced, suggestion_lines
from perfgate.judging.report.view.summary import CommentContext, Summary
from perfgate.locale import Language, speaking

_VERDICT_STYLES = {"PASS": "bold green", "FAIL": "bold red", "WARN": "bold yellow", "INCONCLUSIVE": "bold yellow"}
_LABEL_STYLES = {"FAIL": "red", "WARN": "yellow", phrase("worse"): "yellow", phrase("better"): "green"}
_STATUS_STYLES = {"ok": "green", "attention": "yellow", "error": "bold red", "invalid": "red"}
LET_THROUGH = phrase("undecided, so the push proceeds; --strict would block it")
_SHOWN = 12
_SHOWN_RECORDED = 8
_SHOWN_STORED = 4
_SHOWN_COUNTS = 4
_SHOWN_SUGGESTIONS = 3
# Long enough to keep the remedy at the end of a message.
_LONGEST_MESSAGE = 400
_TRACEBACK_LINES = 8


def render_terminal(
    decision: DecisionDocument, console: Console, language: Language = "en", *, folder: str | None = None
) -> None:
    """Print a decision: verdict, facts, moved metrics, causes, remedy. ``folder`` is the one of ``CommentContext``."""
    with speaking(language):
        _print_decision(decision, console, folder)


def render_line(decision: DecisionDocument, console: Console, language: Language = "en", *, after: str = "") -> None:
    """Print a decision on one line: the title of its comment, then ``after``."""
    with speaking(language):
        title = headline(Summary(decision, CommentContext(marker=""), _SHOWN), "plain")
        console.print(Text(f"perfgate: {title}{f' ({say(after)})' if after else ''}"), soft_wrap=True)


def render_run(run: RunDocument, console: Console, language: Language = "en") -> None:
    """Print a run: each step with its status, key values and findings."""
    with speaking(language):
        _print_run(run, console)


def render_suggestions(
    suggestions: Sequence[Suggestion], console: Console, language: Language = "en", *, only_measured: bool = False
) -> None:
    """Print all suggestions; ``only_measured`` if they are only those that a step tried."""
    with speaking(language):
        _print_suggestions(suggestions, console)
        if suggestions:
            return
        if only_measured:
            console.print(say("Nothing that the checklist tried was measured to be faster."))
        else:
            console.print(say("No suggestions: no step has a finding that perfgate has advice for."))


def render_first_suggestions(
    suggestions: Sequence[Suggestion], console: Console, language: Language = "en", *, folder: str
) -> None:
    """Print the most promising suggestions on a run stored in ``folder``, and how to see the rest."""
    with speaking(language):
        _print_suggestions(suggestions[:_SHOWN_SUGGESTIONS], console)
        if (hidden := len(suggestions) - _SHOWN_SUGGESTIONS) > 0:
            more = numbers.counted(hidden, "more suggestion")
            rest = say("… {more}: perfgate advise {folder}", more=more, folder=Words(clean(folder)))
            console.print(Text(f"  {rest}", "dim"))


def _print_decision(decision: DecisionDocument, console: Console, folder: str | None) -> None:
    summary = Summary(decision, CommentContext(marker="", folder=folder), _SHOWN)
    words = headline(summary, "plain")
    if (cause := worst_cause(summary)) is not None:
        in_short = line("shared/cause_in_short.j2", "plain", {"cause": cause})
        words = say("{title}: {cause}", title=words, cause=in_short)
    title = Text(words, "bold")
    title.stylize(_VERDICT_STYLES.get(decision.verdict, "bold"), 0, len(decision.verdict))  # the verdict comes first
    console.print(title)
    if summary.is_measured:
        console.print(Text(counts_line(summary, "plain")))
    if (covered := coverage_line(summary, "plain")) is not None:
        console.print(Text(covered))
    console.print(Text(base_line(summary, "plain"), "dim"))
    for card in card_lines(summary)[:_SHOWN]:
        console.print(Text(line("shared/card.j2", "plain", {"card": card})))
    _print_moved(summary, console)
    _print_notes(summary, console)
    _print_causes(summary, console)
    if summary.verdict in {"FAIL", "WARN"}:
        operators = worded_causes(summary.causes[:6])
        behind = [line("shared/cause.j2", "plain", {"cause": cause}) for cause in operators]
        _print_lines(say("Contributing operators"), behind, console)
    _print_findings(summary, console)
    _print_recorded(summary, console)
    _print_suggestions(introduced(decision.suggestions)[:_SHOWN], console)
    _print_failures(summary, console)
    _print_lines("", remedy_lines(summary, "plain"), console)
    _print_stored(summary, console)


def _print_notes(summary: Summary, console: Console) -> None:
    for warning in terminal_notes(summary.decision.warnings)[:_SHOWN]:
        console.print(Text(f"{say('note:')} {clean(word(warning))}", "yellow"))
    for change in summary.telling_harness_changes[:_SHOWN]:
        where = f" ({', '.join(change.lines[:_SHOWN])})" if change.lines else ""
        told_change = clean(f"{change.workload}: {word(change.message)}{where}", limit=_LONGEST_MESSAGE)
        console.print(Text(f"{say('workload file')}, {told_change}", "yellow"))


def _print_run(run: RunDocument, console: Console) -> None:
    console.print(Text(run_title(run), "bold"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column(say("step"))
    table.add_column(say("status"), no_wrap=True)
    table.add_column(say("values and findings"))
    for step in step_rows(run):
        status = Text(step.status, _STATUS_STYLES.get(step.key, "dim"))
        table.add_row(str(step.number), clean(step.name), status, Text("\n".join(step.notes)))
    if run.workloads or not run.jobs:
        console.print(table)
    for text in (*recorded_lines(run), *job_lines(run)):
        console.print(Text(text))
    broken = [(failed.workload, failed.error) for failed in run.failed_pairs][:_SHOWN]
    broken += [(workload.name, workload.error) for workload in run.workloads if workload.error is not None][:_SHOWN]
    for name, error in broken:
        failure = clean(f"{name}: {first_line(word(error.message))}", limit=_LONGEST_MESSAGE)
        console.print(Text(f"{say('error in workload')} {failure}", "bold red"))
    for warning in run.warnings[:_SHOWN]:
        console.print(Text(f"{say('note:')} {clean(word(warning))}", "yellow"))


def _print_moved(summary: Summary, console: Console) -> None:
    """Print both sides of the moved metrics: failures first, improvements last."""
    regressed = sorted(summary.regressed, key=lambda comparison: not comparison.gating)
    # PASS and FAIL rest on other metrics; the report lists the undecided ones.
    undecided = [] if summary.verdict in {"PASS", "FAIL"} else summary.inconclusive
    rows = grouped(row(comparison, summary) for comparison in (*regressed, *undecided, *summary.improved))
    listed = rows[: summary.detail]
    if not listed:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column(say("metric"))
    for side in ("base", "head"):
        table.add_column(side, justify="right", no_wrap=True)
    table.add_column(say("change"))
    for words in listed:
        one, label = words.comparison, words.label
        name = Words(clean(title_of(one)))
        metric = Text(say("calls to {metric}", metric=name) if one.is_of_operator else name)
        metric.append("\n").append(line("shared/places.j2", "plain", {"places": words.places}), "dim")
        style = next((style for word, style in _LABEL_STYLES.items() if label == say(word)), "dim")
        table.add_row(Text(label, style), metric, *map(Text, (*formats.sides(one), formats.change(one))))
    console.print(Padding(table, (1, 0)))
    hidden = len(rows) - len(listed)
    if hidden:
        console.print(Text(say("… {count} more in decision.json", count=hidden), "dim"))


def _print_causes(summary: Summary, console: Console) -> None:
    listed, more = blocks_with_more(summary)
    for number, block in enumerate(listed, start=1):
        title = line("shared/block.j2", "plain", {"block": block})
        console.print(Padding(Text(f"{number}. {title}", "bold"), (1 if number == 1 else 0, 0, 0, 0)))
        if block.cause and block.cause["code"]:
            console.print(Padding(Text(clean(block.cause["code"]), "cyan"), (0, 0, 0, 6)))
        cost, moved, also = (
            line(f"shared/{part}.j2", "plain", {"block": block, "counts": block.counts, "most": _SHOWN_COUNTS})
            for part in ("block_cost", "block_counts", "also")
        )
        moves = say("Also changed:") if block.in_title else say("Changed:")
        labelled = [
            (say("Cost:"), cost),
            (moves, moved if block.cause or block.cost.slower else ""),
            (say("Also on other lines:"), also),
            (say("If intended:"), block.accept.here or block.accept.command),
        ]
        lines = [f"{label} {text}" for label, text in labelled if text]
        if block.worst.accepted and not block.in_title:
            lines.append(say("Accepted by {accepted}", accepted=Words(clean(block.worst.accepted))))
        _print_lines("", lines, console)
    if more:
        console.print(Text(f"  {say('… {count} more in decision.json', count=more)}", "dim"))


def _print_findings(summary: Summary, console: Console) -> None:
    titles = say("New in the checklist"), say("No longer in the checklist")
    for title, found in zip(titles, changed_findings(summary)):
        rows = [line("shared/finding.j2", "plain", {"row": row}) for row in found[: summary.detail]]
        _print_lines(title, rows, console)


def _print_recorded(summary: Summary, console: Console) -> None:
    """Print the longest recorded times; the comment and the page have the rest."""
    title = say("Recorded, not compared; to compare, measure with perfgate check")
    rows = [comparison for comparison in summary.recorded if comparison.unit == "s"]
    _print_lines(title, [line("shared/recorded.j2", "plain", {"row": row}) for row in rows[:_SHOWN_RECORDED]], console)
    if len(rows) > _SHOWN_RECORDED:
        console.print(Text(f"  {say('… {count} more in decision.json', count=len(rows) - _SHOWN_RECORDED)}", "dim"))


def _print_stored(summary: Summary, console: Console) -> None:
    """Print main's stored runs last: they did not influence the verdict."""
    known = [comparison for comparison in summary.decision.stored if comparison.typical is not None]
    beside = sorted(known, key=lambda comparison: comparison.outside is None)[:_SHOWN_STORED]
    rows = [line("shared/stored.j2", "plain", {"row": stored_row(comparison)}) for comparison in beside]
    _print_lines(say("Main's stored runs"), rows, console)
    if rows:
        console.print(Text(f"  {line('shared/stored_note.j2', 'plain', {})}", "dim"))


def _print_suggestions(suggestions: Iterable[Suggestion], console: Console) -> None:
    for number, suggestion in enumerate(suggestions):
        words, *to_copy = suggestion_lines(suggestion)
        _print_lines(say("Try") if number == 0 else "", [words], console)
        for text in to_copy:
            console.print(Padding(Text(text, "cyan"), (0, 0, 0, 6)))


def _print_failures(summary: Summary, console: Console) -> None:
    for words in worded_failures(summary.decision.failures)[:3]:
        title = say(
            "error in the {side}: {what} of {workload} ({kind})",
            side=words["side"],
            what=Words(clean(words["what"])),
            workload=Words(clean(words["workload"])),
            kind=words["kind"],
        )
        console.print(Text(title, "bold red"))
        text = (words["text"] or "").rstrip()
        # A traceback ends with the message; a log does not contain it.
        if words["message"] not in text:
            console.print(Text(f"  {clean(words['message'], limit=_LONGEST_MESSAGE)}"))
        for text_line in text.splitlines()[-_TRACEBACK_LINES:]:
            console.print(Text(f"  {clean(text_line)}"))


def _print_lines(title: str, lines: Iterable[str], console: Console) -> None:
    listed = list(lines)
    if listed and title:
        console.print(Text(title, "bold"))
    for text in listed:
        console.print(Padding(Text(f"• {text}"), (0, 0, 0, 2)))


_FOLD = re.compile(r"<details><summary>(.*?)</summary>.*?</details>", re.DOTALL)
_TAG = re.compile(r"</?sub>|<!--.*?-->", re.DOTALL)


def preview_comment(comment: str, console: Console) -> None:
    """Print a comment of ours; the content of its folds is left to the file."""
    folded = _FOLD.sub(lambda fold: f"▸ {fold.group(1)}\n", comment)
    console.print(Markdown(_TAG.sub("", folded)))
