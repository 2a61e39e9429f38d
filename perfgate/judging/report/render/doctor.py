"""The tables of `perfgate doctor` in the terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfgate.document.doctor import (
    FitnessCheck,
    PlantedOutcome,
    PlantedResult,
    Resolution,
)
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.numbers import duration, percent
from perfgate.judging.report.text.words import EMPTY, phrase, say

_STATUS = {
    "ok": (phrase("ok"), "green"),
    "attention": (phrase("attention"), "yellow"),
    "unfit": (phrase("UNFIT"), "bold red"),
    "unavailable": (phrase("not available"), "dim"),
}
_OUTCOME: dict[PlantedOutcome, tuple[str, str]] = {
    "agrees": (phrase("agrees"), "green"),
    "differs": (phrase("DIFFERS"), "bold red"),
    "too_busy": (phrase("BUSY"), "yellow"),
}
_LONG = 400
_WIDE = 110  # columns from which there is room for a description of the planted change
_WHOLE = ("name", "planted change", "machine", "must be", "by", "is", "took", "")


def render_list(rows: list[tuple[str, str, str, str | None]], console: Console) -> None:
    """Print the planted changes: name, description, verdict, metric that must regress."""
    table = _table("name", "planted", "must be", "by")
    for name, title, verdict, metric in rows:
        table.add_row(name, say(title), verdict, metric or "")
    console.print(table)


def render_fitness(fitness: list[FitnessCheck], console: Console) -> None:
    """Print one row per check, with the remedy below the observation."""
    table = _table("machine", "", "seen")
    for check in fitness:
        label, style = _STATUS[check.status]
        detail = Text(clean(word(check.seen), limit=_LONG))
        if check.remedy:
            detail.append(f"\n→ {clean(word(check.remedy), limit=_LONG)}", "cyan")
        table.add_row(clean(check.name), Text(say(label), style), detail)
    console.print(table)


def render_planted(results: list[PlantedResult], console: Console) -> None:
    """Print expected against observed results."""
    table = _table("planted change", "must be", "is", "", "took")
    for result in results:
        label, style = _OUTCOME[result.outcome]
        name = Text(clean(result.name))
        if console.width >= _WIDE:
            name.append(f"\n{say(clean(result.title))}", "dim")
        expected = f"{result.expected}\n{result.metric or ''}".rstrip()
        seconds = f"{result.seconds:.0f} s"
        table.add_row(
            name, Text(expected), _seen(result), Text(say(label), style), Text(seconds)
        )
    console.print(table)
    for result in results:
        if result.reason:
            why = EMPTY
            if result.outcome == "too_busy":
                why = say("too busy to decide: ")
            reason = clean(result.reason, limit=_LONG)
            _, style = _OUTCOME[result.outcome]
            console.print(Text(f"{clean(result.name)}: {why}{reason}", style))


def render_resolutions(resolutions: list[Resolution], console: Console) -> None:
    """Print the smallest slowdown that the gate would have detected in unchanged code."""
    for resolution in resolutions:
        if resolution.smallest is None:
            text = say(
                "{pairs} pairs are too few to detect any slowdown of {metric}",
                pairs=resolution.pairs,
                metric=resolution.metric,
            )
        else:
            text = say(
                "this machine detects a slowdown of {share} in {metric} within {time}",
                share=percent(resolution.smallest),
                metric=resolution.metric,
                time=duration(resolution.seconds),
            )
        detail = say(
            " ({pairs} pairs of spread {spread}, {time} of timed calls)",
            pairs=resolution.pairs,
            spread=percent(resolution.spread),
            time=duration(resolution.timed),
        )
        console.print(Text(clean(text)).append(clean(detail), "dim"))


def _seen(result: PlantedResult) -> Text:
    verdict: str = result.verdict or say("exit code {code}", code=result.exit_code)
    lines = [verdict]
    fired = sorted(result.fired, key=lambda metric: metric != result.metric)
    lines += fired[:1]
    if len(fired) > 1:
        lines.append(say("and {count} more", count=len(fired) - 1))
    if result.line:
        lines.append(say("at {line}", line=result.line))
    return Text("\n".join(clean(text) for text in lines))


def _table(*titles: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        # Metrics are search terms: they stay whole, and the titles of rows wrap
        # instead.
        table.add_column(say(title), no_wrap=title in _WHOLE)
    return table
