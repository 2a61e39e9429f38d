"""``perfgate local``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import (
    FOLDER,
    DocumentCommand,
    Options,
    always_option,
    base_option,
    checklist_budget_option,
    checklist_option,
    device_option,
    measuring_options,
    workload_option,
)
from perfgate.cli.streams import doors_of_process
from perfgate.errors import UsageError

if TYPE_CHECKING:
    from perfgate.document.decision import DecisionDocument


@click.command("local", cls=DocumentCommand)
@base_option
@click.option(
    "--out",
    type=FOLDER,
    default=".perfgate/local",
    show_default=True,
    help="Folder for the documents, the report, traces and logs.",
)
@workload_option
@checklist_option
@checklist_budget_option
@device_option
@always_option
@click.option(
    "--time-budget",
    type=click.FloatRange(min=1),
    default=math.inf,
    metavar="SECONDS",
    help="Start no new measurement after this time, which includes waiting for the machine.",
)
@click.option(
    "--brief",
    is_flag=True,
    help="Print one line if it passes, the full report if it does not.",
)
@click.option(
    "--hook",
    is_flag=True,
    help="Run as git's pre-push hook: judge the pushed commits against the remote's main branch. Implies "
    "--brief and steps 1 to 5.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="With --hook: stop the push also if the verdict is undecided.",
)
@measuring_options
@click.argument("remote", nargs=-1, metavar="[REMOTE URL]")
def COMMAND(
    options: Options,
    brief: bool,
    hook: bool,
    strict: bool,
    allow_token: bool,
    as_json: bool,
    directory: Path,
    remote: tuple[str, ...],
) -> tuple[DecisionDocument | None, int]:
    """Judge this work tree, with uncommitted changes, against main. It is the verdict of CI before you push.

    With --hook, as a git hook that receives REMOTE and URL: exit code 1 if a pushed commit is slower, 0 if it is not,
    and 0 if undecided (3 with --strict).
    """
    if not hook and (remote or strict):
        raise UsageError(
            "REMOTE, URL and --strict belong to --hook; leave them out, or give --hook too"
        )
    if hook and as_json:
        raise UsageError(
            "--hook may judge several commits and prints no JSON; leave out --json, or --hook"
        )
    drop_secrets(directory, allow_token=allow_token)
    from rich.console import Console

    from perfgate.cli.progress import TerminalProgress
    from perfgate.cli.results import show_decision
    from perfgate.flows.check.check import check_change
    from perfgate.flows.check.local import GitPush, judge_push
    from perfgate.flows.shared.options import CheckOptions
    from perfgate.judging.gate.verdict import exit_code
    from perfgate.judging.report.render.terminal import LET_THROUGH, render_line

    request = options.record(CheckOptions, work_tree=not hook)
    brief = brief or hook

    def judge(check_options: CheckOptions) -> DecisionDocument:
        with TerminalProgress(brief=brief) as progress:
            return check_change(directory, check_options, progress)

    def show(decision: DecisionDocument, code: int, out: Path) -> None:
        """Print the decision: one line if it is ``brief`` and the exit code is 0, else the report."""
        if brief and not code:
            after = ""
            if decision.verdict == "INCONCLUSIVE":
                after = LET_THROUGH
            render_line(decision, Console(), request.language, after=after)
        else:
            show_decision(decision, out, request.language)

    if hook:
        push = GitPush(strict=strict)
        if remote:
            push = GitPush(remote[0], sys.stdin.read().splitlines(), strict)
        doors = doors_of_process()
        return None, judge_push(directory, push, request, doors, judge, show)
    decision = judge(request)
    code = exit_code(decision)
    show(decision, code, request.out)
    return decision, code
