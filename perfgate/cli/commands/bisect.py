"""``perfgate bisect``."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from perfgate.cli.streams import harmless
from perfgate.errors import ConfigError, PerfgateError, UsageError

if TYPE_CHECKING:
    from perfgate.document.bisection import BisectionDocument
    from perfgate.document.budget import PlacePattern
    from perfgate.flows.shared.options import CheckOptions

# Exit codes of `git bisect run`: 0 good, 1 to 124 bad, 125 skipped; above 127 stops the search.
GIT_CODES = {"fast": 0, "slow": 1, "undecided": 125, "impossible": 125}
GIT_SKIPS = 125
GIT_STOPS = 128


@contextmanager
def _codes_of_git() -> Iterator[None]:
    """End with a code for `git bisect run` on any error: by our own codes, 1 to 124, it
    would take the commit for a bad one.

    A commit with a perfgate.toml that cannot be read is skipped.
    """
    try:
        yield
    except (click.exceptions.Exit, click.Abort):
        raise
    except PerfgateError as error:
        click.echo(harmless(f"perfgate: {error.shown}"), err=True)
        is_of_commit = isinstance(error, ConfigError)
        raise SystemExit(GIT_SKIPS if is_of_commit else GIT_STOPS) from error
    except click.ClickException as error:
        error.show()
        raise SystemExit(GIT_STOPS) from error
    except Exception as error:  # a bug must not mark a commit as bad
        traceback.print_exc()
        raise SystemExit(GIT_STOPS) from error


class BisectCommand(DocumentCommand):
    """With ``--for-git`` the codes of `git bisect run`, also if the options are wrong."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if "--for-git" not in args:
            return super().make_context(info_name, args, parent, **extra)
        with _codes_of_git():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> None:
        if not ctx.params["for_git"]:
            super().invoke(ctx)
            return
        with _codes_of_git():
            super().invoke(ctx)


@click.command("bisect", cls=BisectCommand)
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
    metavar="P",
    help="The probability of a wrong result that noise may cause over the whole search.  [default: 0.05]",
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
    error: float | None,
    for_git: bool,
    as_json: bool,
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
    if for_git and (bad is not None or error is not None or as_json):
        raise UsageError(
            "--for-git judges the checked-out commit alone, and git searches: leave out --bad, --error and --json"
        )
    drop_secrets(directory, allow_token=allow_token)
    from perfgate.cli.results import search
    from perfgate.document.budget import parse_place
    from perfgate.flows.bisect.bisect import ERROR, bisect_commits, bisect_stack
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
    allowed = ERROR if error is None else error
    return search(partial(bisect, metric=place, error=allowed), directory, request)


def _judge(
    directory: Path, good: str, options: CheckOptions, metric: PlacePattern | None
) -> int:
    """The exit code for ``git bisect run``."""
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.bisect.bisect import judge_commit
    from perfgate.flows.check.check import check_change

    with TerminalProgress() as progress:
        answer = judge_commit(
            directory, good, options, check_change, progress, metric=metric
        )
    click.echo(answer)
    return GIT_CODES[answer]
