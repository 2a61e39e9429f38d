"""``perfgate upgrade``."""

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
    checklist_option,
    device_option,
    directory_option,
    language_option,
    workload_option,
)


@click.command("upgrade", cls=RecordCommand)
@click.option(
    "--python",
    "new_python",
    type=PATH,
    metavar="PATH",
    required=True,
    help="The interpreter of the new stack, e.g. venv-new/bin/python.",
)
@click.option(
    "--base-python",
    type=PATH,
    metavar="PATH",
    help="The interpreter of the old stack; default: the one that runs perfgate.",
)
@click.option(
    "--out",
    type=FOLDER,
    default=".perfgate/upgrade",
    show_default=True,
    help="Folder for the documents, the report, traces and logs.",
)
@workload_option
@checklist_option
@device_option
@click.option("--allow-dirty", is_flag=True, help="Ignore uncommitted changes instead of refusing.")
@allow_token_option
@language_option
@directory_option()
def COMMAND(
    options: Options,
    new_python: Path,
    base_python: Path | None,
    out: Path,
    allow_token: bool,
    language: str | None,
    directory: Path,
) -> None:
    """Compare two software stacks under the checked-out commit. The report says what gets slower, and never fails.

    Exit codes: 0 nothing got slower, or WARN with the regressions · 3 undecided · 4 one of the stacks cannot be
    measured.
    """
    drop_secrets(directory, allow_token=allow_token)
    from rich.console import Console

    from perfgate.cli.progress import TerminalProgress
    from perfgate.config import report_language
    from perfgate.jobs.check.job import check_change
    from perfgate.jobs.shared.options import CheckOptions, GivenInterpreters
    from perfgate.judging.gate.verdict import exit_code
    from perfgate.judging.report.render.terminal import render_terminal

    spoken = report_language(language, directory)
    request = options.record(
        CheckOptions,
        out=out,
        interpreters=GivenInterpreters(base_python, new_python),
        comparing="stack",
        language=spoken,
    )
    with TerminalProgress() as progress:
        decision = check_change(directory, request, progress)
    render_terminal(decision, Console(), spoken)
    click.echo(f"report: {out / 'report.html'}")
    raise SystemExit(exit_code(decision))
