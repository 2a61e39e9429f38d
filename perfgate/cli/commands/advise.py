"""``perfgate advise``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.options import PATH, json_option, language_option
from perfgate.cli.streams import people_on_stderr, print_json


@click.command("advise")
@click.argument("path", type=PATH, required=False)
@json_option
@language_option
def COMMAND(path: Path | None, as_json: bool, language: str | None) -> None:
    """List optimizations to try, by the newest result here or in PATH.

    PATH is the run.json, the folder or the decision of `perfgate run`, `check` or `local`.
    """
    from rich.console import Console

    from perfgate.config import report_language
    from perfgate.flows.advise import suggestions_in
    from perfgate.judging.report.render.terminal import render_suggestions

    found = suggestions_in(path)
    with people_on_stderr(as_json):
        render_suggestions(found, Console(), report_language(language, Path()))
    if as_json:
        print_json(found)
