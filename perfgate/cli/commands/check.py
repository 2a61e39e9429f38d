"""``perfgate check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import (
    FOLDER,
    PATH,
    DocumentCommand,
    Options,
    allow_dirty_option,
    always_option,
    base_option,
    checklist_budget_option,
    checklist_option,
    device_option,
    measuring_options,
    workload_option,
)

if TYPE_CHECKING:
    from perfgate.document.decision import DecisionDocument

# The documents, of which a skipped change has the first two alone.
_FILES = (
    "decision.json",
    "comment.md",
    "report.html",
    "base/run.json",
    "head/run.json",
)


@click.command("check", cls=DocumentCommand)
@base_option
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
@allow_dirty_option
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
@measuring_options
def COMMAND(
    options: Options,
    out: Path,
    append: bool,
    append_from: Path | None,
    allow_token: bool,
    directory: Path,
) -> tuple[DecisionDocument, int]:
    """Judge the checked-out commit against its base, as a CI job does. It needs no token."""
    if append and append_from:
        raise click.UsageError(
            "--append and --append-from exclude each other; give one"
        )
    drop_secrets(directory, allow_token=allow_token)
    from perfgate.cli.progress import TerminalProgress
    from perfgate.cli.results import show_decision
    from perfgate.flows.check.check import check_change
    from perfgate.flows.shared.options import CheckOptions
    from perfgate.judging.gate.verdict import exit_code

    if append:
        append_from = out
    request = options.record(CheckOptions, out=out, append_from=append_from)
    with TerminalProgress() as progress:
        decision = check_change(directory, request, progress)
    show_decision(decision, out, request.language, files=_FILES)
    return decision, exit_code(decision)
