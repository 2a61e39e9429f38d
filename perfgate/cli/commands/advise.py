"""``perfgate advise``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.options import PATH, DocumentCommand, json_option, language_option
from perfgate.errors import EXIT_PASS

if TYPE_CHECKING:
    from perfgate.document.decision import Suggestion


@click.command("advise", cls=DocumentCommand)
@click.argument("path", type=PATH, required=False)
@click.option(
    "--measured",
    "only_measured",
    is_flag=True,
    help="Only changes that a step of the checklist tried and measured to be faster: with --json, the best "
    "configuration so far.",
)
@json_option
@language_option
def COMMAND(
    path: Path | None, only_measured: bool, language: str | None
) -> tuple[list[Suggestion], int]:
    """List optimizations to try, by the newest result here or in PATH.

    PATH is the run.json, the folder or the decision of `perfgate run`, `check` or `local`.
    """
    from rich.console import Console

    from perfgate.config import report_language
    from perfgate.flows.advise import suggestions_in
    from perfgate.judging.advice.advise import shown_faster
    from perfgate.judging.report.render.terminal import render_suggestions

    suggested = suggestions_in(path)
    if only_measured:
        suggested = shown_faster(suggested)
    spoken = report_language(language, Path())
    render_suggestions(suggested, Console(), spoken, only_measured=only_measured)
    return suggested, EXIT_PASS
