"""``perfgate bisect``."""

from __future__ import annotations

import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import (
    FOLDER,
    DocumentCommand,
    Options,
    always_option,
    checklist_option,
    device_option,
    measuring_options,
    workload_option,
)
from perfgate.errors import PerfgateError, UsageError

if TYPE_CHECKING:
    from perfgate.document.bisection import BisectionDocument
    from perfgate.document.budget import PlacePattern
    from perfgate.flows.shared.options import CheckOptions

# Exit codes of `git bisect run`: 0 good, 1 to 124 bad, 125 skipped; above 127 stops the search.
GIT_CODES = {"fast": 0, "slow": 1, "undecided": 125, "impossible": 125}
GIT_STOPS = 128


@click.command("bisect", cls=DocumentCommand)
@click.argument("metric", required=False)
@click.option("--good", metavar="REV", help="A commit that is fast.")
@click.option(
    "--bad", metavar="REV", help="A later commit that is slow.  [default: HEAD]"
)
@click.option(
    "--between",
    metavar="LIST",
    help="Search environments instead, oldest first: packages 'torch==2.7.1, torch==2.8.0', all releases of one "
    "'attrs==23.1..26.1', interpreters 'old/bin/python, new/bin/python', or versions for --environment.",
)
@click.option(
    "--environment",
    metavar="LINE",
    help="The shell line that makes the environment of a version in --between, which {} stands for: "
    "'source /usr/local/Ascend/{}/set_env.sh'.",
)
@click.option(
    "--error",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.05,
    show_default=True,
    metavar="P",
    help="The probability of a wrong result that noise may cause over the whole search.",
)
@click.option(
    "--for-git",
    is_flag=True,
    help="Judge the checked-out commit alone, with the exit codes of `git bisect run`: 0 good, 1 bad, 125 skip, 128 stop.",
)
@click.option(
    "--out",
    type=FOLDER,
    default=".perfgate/bisect",
    show_default=True,
    help="Folder for the documents, the reports, traces and logs.",
)
@workload_option
@checklist_option
@device_option
@always_option
@click.option(
    "--allow-dirty",
    is_flag=True,
    help="With --between, ignore uncommitted changes instead of refusing.",
)
@measuring_options
def COMMAND(
    options: Options,
    metric: str | None,
    good: str | None,
    bad: str | None,
    between: str | None,
    environment: str | None,
    error: float,
    for_git: bool,
    allow_token: bool,
    directory: Path,
) -> tuple[BisectionDocument, int]:
    """Find the commit or environment that makes a workload slower.

    METRIC may be a pattern, and name a workload and shape: latency.p50@encoder/long. Without it any regression counts.

    Exit codes: 0 the culprit is found, or the new end is not slower · 3 undecided · 4 one of the ends cannot be measured.
    """
    if (good is None) == (between is None):
        raise UsageError(
            "give a fast commit by --good, or environments by --between, and not both"
        )
    if between is not None and (bad is not None or for_git):
        raise UsageError(
            "--between compares environments under the checked-out commit: leave out --bad and --for-git"
        )
    if between is None and environment is not None:
        raise UsageError("--environment needs versions: give them by --between")
    drop_secrets(directory, allow_token=allow_token)
    from perfgate.cli.results import search
    from perfgate.document.budget import parse_place
    from perfgate.flows.bisect.bisect import bisect_commits, bisect_stack
    from perfgate.flows.bisect.request import parse_between
    from perfgate.flows.shared.options import CheckOptions
    from perfgate.flows.trust.acceptance import refuse_unknown_metric

    place = None
    if metric is not None:
        refuse_unknown_metric(metric)
        place = parse_place(metric)
    request = options.record(CheckOptions)
    if for_git:
        raise SystemExit(_judge(directory, str(good), request, place))
    bisect = partial(bisect_commits, directory, str(good), bad or "HEAD")
    if between is not None:
        bisect = partial(bisect_stack, directory, parse_between(between, environment))
    return search(partial(bisect, metric=place, error=error), directory, request)


def _judge(
    directory: Path, good: str, options: CheckOptions, metric: PlacePattern | None
) -> int:
    """The exit code for ``git bisect run``; our errors use codes above 127, because 1 to 124 mean a bad commit."""
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.bisect.bisect import judge_commit
    from perfgate.flows.check.check import check_change

    try:
        with TerminalProgress() as progress:
            answer = judge_commit(
                directory, good, options, check_change, progress, metric=metric
            )
    except PerfgateError as error:
        click.echo(f"perfgate: {error.shown}", err=True)
        return GIT_STOPS
    except Exception:  # noqa: BLE001 - a bug must not mark a commit as bad
        traceback.print_exc()
        return GIT_STOPS
    click.echo(answer)
    return GIT_CODES[answer]
