"""A decision or a run in the terminal: short, readable in 80 columns, plain text if
piped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from perfgate.document.decision import DecisionDocument, Suggestion
from perfgate.document.run import ErrorDetail, RunDocument
from perfgate.judging.report import sections
from perfgate.judging.report.render.tables import Table
from perfgate.judging.report.sections import Section
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.escape import MAX_ABOUT_FILE, clean
from perfgate.judging.report.text.media import (
    BOLD,
    COMMAND,
    COMMAND_END,
    END,
    plain_line,
)
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import first_line, named, title_of
from perfgate.judging.report.text.names import listed as named_places
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import EMPTY, phrase, say
from perfgate.judging.report.view.blocks import (
    RegressionBlock,
    blocks_with_more,
    suggestion_lines,
)
from perfgate.judging.report.view.card import card_lines
from perfgate.judging.report.view.causes import worst_cause
from perfgate.judging.report.view.checklist import notes_except, stored_row
from perfgate.judging.report.view.facts import base_line, counts_line
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.rows import grouped, row
from perfgate.judging.report.view.run_steps import (
    job_lines,
    recorded_lines,
    run_title,
    step_rows,
)
from perfgate.judging.report.view.summary import CommentContext, Summary
from perfgate.locale import Language, speaking

_VERDICT_STYLES = {
    "PASS": "bold green",
    "FAIL": "bold red",
    "WARN": "bold yellow",
    "INCONCLUSIVE": "bold yellow",
}
_LABEL_STYLES = {
    "FAIL": "red",
    "WARN": "yellow",
    phrase("worse"): "yellow",
    phrase("better"): "green",
}
_STATUS_STYLES = {
    "ok": "green",
    "attention": "yellow",
    "error": "bold red",
    "invalid": "red",
}
LET_THROUGH = phrase("undecided, so the push proceeds; --strict would block it")
# The selection of workloads, which repeats the command line.
_NOT_SELECTED = "notes.not-selected"
_INDENT = 2
_SHOWN = 12
_SHOWN_RECORDED = 8
_SHOWN_STORED = 4
_SHOWN_COUNTS = 4
_SHOWN_SUGGESTIONS = 3
# The sections of the comment below the table.
_SECTIONS = (
    sections.notes,
    sections.harness,
    sections.causes,
    sections.why,
    sections.findings,
    sections.suggestions,
    sections.failures,
    sections.remedy,
)
# The titles of early lines.
_CERTAIN = phrase(
    "FAIL – {workload}, for certain: no time can change this; pairs now measure what it costs"
)
_OPEN = phrase(
    "{workload}: exact counts grew, which fails unless calls are shown not to be slower; pairs now measure that"
)
_ALONE = phrase(
    "FAIL – {workload}, by exact counts: calls are too slow to be timed, so no time can excuse them"
)
# The content of a fold, and the tags, that a preview leaves out.
_FOLD = re.compile(r"<details><summary>(.*?)</summary>.*?</details>", re.DOTALL)
_TAG = re.compile(r"</?sub>|<!--.*?-->", re.DOTALL)
# Long enough to keep the remedy at the end of a message.
_LONGEST_MESSAGE = 400


def render_terminal(
    decision: DecisionDocument,
    console: Console,
    language: Language,
    *,
    folder: str | None = None,
) -> None:
    """Print a decision: verdict, facts, moved metrics, causes, remedy.

    ``folder`` is described in ``CommentContext``.
    """
    with speaking(language):
        decision = msgspec.structs.replace(
            decision, warnings=notes_except(_NOT_SELECTED, decision.warnings)
        )
        summary = Summary(decision, "terminal", CommentContext(folder=folder), _SHOWN)
        _print_title(summary, console)
        if summary.is_measured:
            console.print(Text(counts_line(summary)))
        _print_section(sections.coverage, summary, console)
        console.print(Text(base_line(summary), "dim"))
        for card in card_lines(summary)[:_SHOWN]:
            console.print(Text(line("shared/card.j2", "plain", card=card)))
        _print_moved(summary, console)
        for section in _SECTIONS:
            _print_section(section, summary, console)
        _print_recorded(summary, console)
        _print_stored(summary, console)


def render_line(
    decision: DecisionDocument,
    console: Console,
    language: Language,
    *,
    after: str = "",
) -> None:
    """Print a decision on one line: the title of its comment, then ``after``."""
    with speaking(language):
        title = headline(Summary(decision, "plain", detail=_SHOWN))
        words = f"perfgate: {title}"
        if after:
            words += f" ({say(after)})"
        console.print(Text(words), soft_wrap=True)


def render_run(run: RunDocument, console: Console, language: Language = "en") -> None:
    """Print a run: each step with its status, key values and findings."""
    with speaking(language):
        console.print(Text(run_title(run), "bold"))
        table = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column(say("step"), overflow="fold")
        table.add_column(say("status"), no_wrap=True)
        table.add_column(say("values and findings"), overflow="fold")
        for step in step_rows(run):
            status = Text(step.status, _STATUS_STYLES.get(step.key, "dim"))
            table.add_row(
                str(step.number), clean(step.name), status, Text("\n".join(step.notes))
            )
        if run.workloads or not run.jobs.records:
            console.print(table)
        for text in (*recorded_lines(run), *job_lines(run)):
            console.print(Text(text))
        for name, error in _broken(run):
            failure = clean(
                f"{name}: {first_line(word(error.message))}", limit=_LONGEST_MESSAGE
            )
            console.print(Text(f"{say('error in workload')} {failure}", "bold red"))
        for warning in run.warnings[:_SHOWN]:
            words = clean(word(warning), limit=MAX_ABOUT_FILE)
            console.print(Text(f"{say('note:')} {words}", "yellow"))


def render_suggestions(
    suggestions: Sequence[Suggestion],
    console: Console,
    language: Language,
    *,
    only_measured: bool,
) -> None:
    """Print all suggestions; ``only_measured`` if they are only those that a step
    tried.
    """
    with speaking(language):
        _print_suggestions(suggestions, console)
        if suggestions:
            return
        if only_measured:
            console.print(
                say("Nothing that the checklist tried was measured to be faster.")
            )
        else:
            console.print(
                say(
                    "No suggestions: no step has a finding that perfgate has advice for."
                )
            )


def render_first_suggestions(
    suggestions: Sequence[Suggestion],
    console: Console,
    language: Language,
    *,
    folder: str,
) -> None:
    """Print the most promising suggestions on a run stored in ``folder``, and how to
    see the rest.
    """
    with speaking(language):
        _print_suggestions(suggestions[:_SHOWN_SUGGESTIONS], console)
        hidden = len(suggestions) - _SHOWN_SUGGESTIONS
        if hidden > 0:
            rest = say(
                "… {more}: perfgate advise {folder}",
                more=numbers.counted(hidden, "more suggestion"),
                folder=clean(folder),
            )
            console.print(Text(f"  {rest}", "dim"))


def _print_title(summary: Summary, console: Console) -> None:
    words: str = headline(summary)
    cause = worst_cause(summary)
    if cause is not None:
        words = say("{title}: {cause}", title=words, cause=plain_line(cause))
    title = Text(words, "bold")
    verdict = summary.verdict
    title.stylize(
        _VERDICT_STYLES.get(verdict, "bold"), 0, len(verdict)
    )  # the verdict comes first
    console.print(title)


def _print_section(section: Section, summary: Summary, console: Console) -> None:
    """Print a section of the comment below its title."""
    content = section.fill(summary)
    if content is None:
        return
    if content.summary:
        console.print(Text(content.summary, "bold"))
    print_words(content.text, console)


def _broken(run: RunDocument) -> Iterator[tuple[str, ErrorDetail]]:
    """The first failed pairs and workloads with their errors."""
    for failed in run.pairs.failed[:_SHOWN]:
        yield failed.workload, failed.error
    count = 0
    for workload in run.workloads:
        if workload.error is not None and count < _SHOWN:
            count += 1
            yield workload.name, workload.error


def _print_moved(summary: Summary, console: Console) -> None:
    """Print both sides of the moved metrics: failures first, improvements last."""
    regressed = sorted(summary.regressed, key=lambda comparison: not comparison.gating)
    # PASS and FAIL rest on other metrics; the report lists undecided metrics.
    undecided = summary.inconclusive
    if summary.verdict in {"PASS", "FAIL"}:
        undecided = []
    moved = [*regressed, *undecided, *summary.improved]
    rows = grouped([row(comparison, summary) for comparison in moved])
    listed = rows[: summary.detail]
    if not listed:
        return
    table = Table("", "metric", "base>", "head>", "change")
    styles = {say(label): style for label, style in _LABEL_STYLES.items()}
    for words in listed:
        comparison = words.comparison
        metric = Text(plain_line(named(comparison, placeless=True)))
        metric.append("\n").append(plain_line(named_places(words.places)), "dim")
        table.add_row(
            Text(words.label, styles.get(words.label, "dim")),
            metric,
            *map(Text, (*formats.sides(comparison), formats.change(comparison))),
        )
    console.print(Padding(table, (1, 0)))
    _print_more(len(rows) - len(listed), console)


def _print_recorded(summary: Summary, console: Console) -> None:
    """Print the longest recorded times; the comment and the page have the rest."""
    title = say("Recorded, not compared; to compare, measure with perfgate check")
    rows = []
    for comparison in summary.recorded:
        if comparison.unit == "s":
            rows.append(line("shared/recorded.j2", "plain", row=comparison))
    _print_lines(title, rows[:_SHOWN_RECORDED], console)
    _print_more(len(rows) - _SHOWN_RECORDED, console, indent="  ")


def _print_more(hidden: int, console: Console, *, indent: str = "") -> None:
    if hidden > 0:
        console.print(
            Text(
                f"{indent}{say('… {count} more in decision.json', count=hidden)}", "dim"
            )
        )


def _print_stored(summary: Summary, console: Console) -> None:
    """Print main's stored runs last: they did not influence the verdict."""
    typical = [
        comparison
        for comparison in summary.decision.checklist.stored
        if comparison.typical is not None
    ]
    beside = sorted(typical, key=lambda comparison: comparison.outside is None)[
        :_SHOWN_STORED
    ]
    rows = [
        line("shared/stored.j2", "plain", row=stored_row(comparison))
        for comparison in beside
    ]
    _print_lines(say("Main's stored runs"), rows, console)
    if rows:
        console.print(Text(f"  {line('shared/stored_note.j2', 'plain')}", "dim"))


def _print_suggestions(suggestions: Iterable[Suggestion], console: Console) -> None:
    title = say("Try")
    for suggestion in suggestions:
        words, *to_copy = suggestion_lines(suggestion)
        _print_lines(title, [words], console)
        title = EMPTY
        for text in to_copy:
            _print_command(text, console, "cyan")


def _print_lines(title: str, lines: Iterable[str], console: Console) -> None:
    listed = list(lines)
    if listed and title:
        console.print(Text(title, "bold"))
    for text in listed:
        console.print(Padding(Text(f"• {text}"), (0, 0, 0, 2)))


def preview_comment(comment: str, console: Console) -> None:
    """Print a comment of ours; the content of its folds is left to the file."""
    folded = _FOLD.sub(lambda fold: f"▸ {fold.group(1)}\n", comment)
    console.print(Markdown(_TAG.sub("", folded)))


_SHOWN_COUNTS = 4


def early_lines(
    decision: DecisionDocument,
    workload: str,
    *,
    certain: bool,
    has_pairs: bool,
    language: Language,
) -> list[str]:
    """The regressions of a decision about one workload without pairs; ``certain`` is
    whether no time can change its verdict.

    ``has_pairs`` is whether pairs follow.
    """
    with speaking(language):
        summary = Summary(decision, "plain", detail=_SHOWN_COUNTS)
        listed, more = blocks_with_more(summary)
        title = _CERTAIN if certain else _OPEN
        if not has_pairs:
            title = _ALONE
        lines = [say(title, workload=clean(workload))]
        for number, block in enumerate(listed, start=1):
            lines += _early_block(number, block, summary)
        if not listed:
            for comparison in summary.regressed[:_SHOWN_COUNTS]:
                lines.append(f"  {clean(title_of(comparison))}")
        if more:
            lines.append(f"  {say('… {count} more', count=more)}")
        return lines


def _early_block(number: int, block: RegressionBlock, summary: Summary) -> list[str]:
    """The title of a block, the code of its line, the counts that changed, and the
    remedy.
    """
    # No title of the comment stands above these, so the count that it would name is
    # listed.
    titled = [(summary.worst, None)] if block.in_title else []
    counts = [*titled, *block.counts]
    lines = [f"{number}. {line('shared/block.j2', 'plain', block=block)}"]
    if block.cause and block.cause.code:
        lines.append(f"     {clean(block.cause.code)}")
    changed = line("shared/block_counts.j2", "plain", counts=counts, most=_SHOWN_COUNTS)
    if block.cause and changed:
        lines.append(f"  • {say('Changed:')} {changed}")
    if block.suggestion is not None:
        remedy, *_ = suggestion_lines(block.suggestion)
        lines.append(f"  • {say('Try')} {remedy}")
    return lines


def print_words(words: str, console: Console) -> None:
    """Print quotes in yellow, items with a bullet, and indented commands unwrapped.

    Blank lines are left out.
    """
    for text in words.splitlines():
        if text.startswith("- "):
            _print_item(f"• {text[2:]}", console)
        elif text.startswith("> "):
            console.print(_emphasized(text[2:], "yellow"))
        elif text.startswith("    "):
            console.print(_emphasized(text), soft_wrap=True)
        elif text.strip():
            console.print(_emphasized(text.rstrip()))


def _print_item(words: str, console: Console) -> None:
    """Print an item; a command at its end that does not fit gets a line of its own,
    unwrapped, so that it can be copied.
    """
    item = _emphasized(words)
    fits = item.cell_len + _INDENT <= console.width
    if fits or not words.endswith(COMMAND_END):
        console.print(Padding(item, (0, 0, 0, _INDENT)))
        return
    before, _, command = words.removesuffix(COMMAND_END).rpartition(COMMAND)
    console.print(Padding(_emphasized(before.rstrip()), (0, 0, 0, _INDENT)))
    _print_command(command, console)


def _print_command(command: str, console: Console, style: str = "") -> None:
    console.print(Text(f"      {command}", style), soft_wrap=True)


def _emphasized(words: str, style: str = "") -> Text:
    text = Text(style=style)
    words = words.replace(COMMAND, "").replace(COMMAND_END, "")
    for plain in words.split(BOLD):
        strong, _, rest = plain.rpartition(END)
        text.append(strong, "bold")
        text.append(rest)
    return text
