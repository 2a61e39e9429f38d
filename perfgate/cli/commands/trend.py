"""``perfgate trend``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import (
    FILE,
    FOLDER,
    DocumentCommand,
    Options,
    measuring_options,
    workload_option,
)
from perfgate.cli.streams import doors_of_process, make_streams_harmless
from perfgate.errors import EXIT_FAIL, EXIT_PASS
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.document.trend import TrendDocument


@click.command("trend", cls=DocumentCommand)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Search this metric or pattern (may be repeated); default: the metrics that the gate judges and "
    "the leading numbers of the checklist.",
)
@workload_option
@click.option(
    "--out",
    type=FOLDER,
    help="Write trend.html, trend.md and trend.json into this folder.",
)
@click.option(
    "--email",
    type=FILE,
    metavar="FILE",
    help="Write the report as the HTML of an e-mail: one small file without scripts and pictures.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Measure the commits before and after each suspected change side by side on this machine; with `bisect` in "
    "[trend], find the culprit of the oldest open regression, too.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=1),
    default=1800.0,
    show_default=True,
    metavar="N",
    help="Start no further --confirm measurement after this many seconds.",
)
@click.option(
    "--confirmations",
    type=FILE,
    metavar="FILE",
    help="Store the confirmations.json that --confirm wrote in another job.",
)
@click.option(
    "--post",
    is_flag=True,
    help="Post or update the issue of this repository on its forge.",
)
@click.option(
    "--key",
    metavar="NAME",
    default="default",
    help="Distinguishes several projects of one repository.",
)
@click.option(
    "--fail-on-regression", is_flag=True, help="Exit 1 while a regression is open."
)
@measuring_options
def COMMAND(
    options: Options,
    confirm: bool,
    post: bool,
    out: Path | None,
    email: Path | None,
    fail_on_regression: bool,
    allow_token: bool,
    directory: Path,
) -> tuple[TrendDocument, int]:
    """Find where main got slower or faster, from its stored runs. Each change has its commit, size and certainty.

    The exit code is 0 for every result; 1 with --fail-on-regression while a regression is open, 2 without a stored
    run of main, 4 if the forge refuses. In CI --confirm measures without a token, and another job posts.
    """
    if confirm:
        drop_secrets(directory, allow_token=allow_token, keep_outside_ci=post)
    from rich.console import Console

    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.bisect.bisect import search_commits
    from perfgate.flows.check.check import check_change
    from perfgate.flows.trend.trend import TrendRequest, run_trend
    from perfgate.judging.report.render.trend import render_trend

    request = options.record(
        TrendRequest, root=directory, out=out, email=email, confirm=confirm, post=post
    )
    doors = doors_of_process()
    with TerminalProgress() as progress:
        document = run_trend(request, doors, progress, check_change, search_commits)
    # The text contains commit subjects.
    make_streams_harmless(os.environ)
    render_trend(document, Console(), request.language)
    if out is not None:
        files = "trend.html, trend.md, trend.json"
        click.echo(sentence("written to {out}: {files}", out=out, files=files))
    if email is not None:
        click.echo(sentence("written to {out}", out=email))
    if fail_on_regression and document.open_regressions:
        return document, EXIT_FAIL
    return document, EXIT_PASS
