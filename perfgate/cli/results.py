"""What the commands that measure two sides print: a decision, or a bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.console import Console

from perfgate.cli.progress import TerminalProgress
from perfgate.document.bisection import BISECTION_FILE, BisectionDocument
from perfgate.document.decision import DecisionDocument
from perfgate.flows.bisect.bisect import Bisected
from perfgate.flows.bisect.counting import StateCounter
from perfgate.flows.check.check import check_change
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.results import folder_to_name
from perfgate.judging.report.render.bisection import bisection_code, render_bisection
from perfgate.judging.report.render.terminal import render_terminal
from perfgate.locale import Language, sentence


def show_decision(
    decision: DecisionDocument,
    out: Path,
    language: Language,
    *,
    files: Sequence[str] = (),
) -> None:
    """Print the report, the names of the files, and the paths of the pages."""
    folder = None
    if decision.sides.comparing == "code":
        folder = folder_to_name(out)
    render_terminal(decision, Console(), language, folder=folder)
    is_measured = decision.verdict != "SKIPPED"
    if not is_measured:
        files = files[:2]
    if files:
        click.echo(
            sentence("written to {out}: {files}", out=out, files=", ".join(files))
        )
    if is_measured:
        click.echo(sentence("report: {path}", path=out / "report.html"))
        flame = out / "head" / "flame.html"
        if decision.comparisons and flame.is_file():
            click.echo(sentence("flame graph: {path}", path=flame))


def search(
    bisect: Callable[..., Bisected], directory: Path, options: CheckOptions
) -> tuple[BisectionDocument, int]:
    """Bisect, and print the culprit with its gate; also return the exit code."""
    with (
        TerminalProgress() as progress,
        StateCounter(directory, options, progress) as counter,
    ):
        document, decision = bisect(options, check_change, progress, counter)
    render_bisection(document, Console(), options.language)
    if decision:
        render_terminal(decision, Console(), options.language)
    click.echo(
        sentence("written to {out}: {files}", out=options.out, files=BISECTION_FILE)
    )
    return document, bisection_code(document)
