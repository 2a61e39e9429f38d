"""``perfgate advise``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.options import PATH, language_option


@click.command("advise")
@click.argument("path", type=PATH, required=False)
@language_option
def COMMAND(path: Path | None, language: str | None) -> None:
    """Say what to try, by the newest result here or the one in PATH.

    PATH is the run.json, the folder or the decision of `perfgate run`, `check` or `local`.
    """
    from rich.console import Console

    from perfgate.config import report_language
    from perfgate.jobs.advise import suggestions_in
    from perfgate.judging.report.render.terminal import render_suggestions

    render_suggestions(suggestions_in(path), Console(), report_language(language, Path()))
