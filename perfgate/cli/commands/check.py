"""``perfgate check``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import (
    FOLDER,
    PATH,
    Options,
    RecordCommand,
    allow_token_option,
    always_option,
    checklist_budget_option,
    checklist_option,
    device_option,
    directory_option,
    json_option,
    language_option,
    workload_option,
)
from perfgate.locale import sentence


@click.command("check", cls=RecordCommand)
@click.option(
    "--base",
    metavar="REV",
    help="Compare with this revision's merge base; default: the main branch.",
)
@click.option(
    "--out",
    type=FOLDER,
    default="perfgate-out",
    show_default=True,
    help="Folder for decision.json, comment.md, report.html, run documents, traces and logs.",
)
@workload_option
@checklist_option
@checklist_budget_option
@device_option
@click.option(
    "--allow-dirty",
    is_flag=True,
    help="Ignore uncommitted changes instead of refusing.",
)
@click.option(
    "--append",
    is_flag=True,
    help="Add pairs to the earlier result in --out, as --append-from does.",
)
@click.option(
    "--append-from",
    type=PATH,
    metavar="DIR",
    help="Add pairs to the newest result in DIR if commits, settings and machine are the same, instead of starting again.",
)
@click.option(
    "--base-python",
    type=PATH,
    metavar="PATH",
    help="Measure the base in this interpreter; default: perfgate's own.",
)
@click.option(
    "--head-python",
    type=PATH,
    metavar="PATH",
    help="Measure the head in this interpreter; default: perfgate's own.",
)
@always_option
@allow_token_option
@json_option
@language_option
@directory_option()
def COMMAND(
    options: Options,
    out: Path,
    append: bool,
    append_from: Path | None,
    allow_token: bool,
    as_json: bool,
    language: str | None,
    directory: Path,
) -> None:
    """Judge the checked-out commit against its base, as a CI job does. It needs no token."""
    if append and append_from:
        raise click.UsageError(
            "--append and --append-from exclude each other; give one"
        )
    drop_secrets(directory, allow_token=allow_token)
    from rich.console import Console

    from perfgate.cli.pages import say_pages
    from perfgate.cli.progress import TerminalProgress
    from perfgate.cli.streams import people_on_stderr, print_json
    from perfgate.config import report_language
    from perfgate.flows.check.job import check_change
    from perfgate.flows.shared.options import CheckOptions
    from perfgate.flows.shared.results import folder_to_name
    from perfgate.judging.gate.verdict import exit_code
    from perfgate.judging.report.render.terminal import render_terminal

    spoken = report_language(language, directory)
    if append:
        append_from = out
    request = options.record(
        CheckOptions, out=out, append_from=append_from, language=spoken
    )
    with people_on_stderr(as_json):
        with TerminalProgress() as progress:
            decision = check_change(directory, request, progress)
        render_terminal(decision, Console(), spoken, folder=folder_to_name(out))
        files = ["decision.json", "comment.md"]
        if decision.verdict != "SKIPPED":
            files += ["report.html", "base/run.json", "head/run.json"]
        click.echo(
            sentence("written to {out}: {files}", out=out, files=", ".join(files))
        )
        if decision.verdict != "SKIPPED":
            say_pages(out, decision)
    if as_json:
        print_json(decision)
    raise SystemExit(exit_code(decision))
