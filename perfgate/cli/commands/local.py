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
from perfgate.cli.streams import people_on_stderr, print_json
from perfgate.errors import UsageError

if TYPE_CHECKING:
    from perfgate.document.decision import DecisionDocument


@click.command("local", cls=RecordCommand)
@click.option(
    "--base",
    metavar="REV",
    help="Compare with this revision's merge base; default: the main branch.",
)
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
@allow_token_option
@json_option
@language_option
@directory_option()
@click.argument("remote", nargs=-1, metavar="[REMOTE URL]")
def COMMAND(
    options: Options,
    brief: bool,
    hook: bool,
    strict: bool,
    allow_token: bool,
    as_json: bool,
    language: str | None,
    directory: Path,
    remote: tuple[str, ...],
) -> None:
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

    from perfgate.cli.pages import say_pages
    from perfgate.cli.progress import TerminalProgress
    from perfgate.config import report_language
    from perfgate.flows.check.job import check_change
    from perfgate.flows.check.local import GitPush, judge_push, judge_work_tree
    from perfgate.flows.shared.doors import Doors
    from perfgate.flows.shared.options import CheckOptions
    from perfgate.flows.shared.results import folder_to_name
    from perfgate.judging.gate.verdict import exit_code
    from perfgate.judging.report.render.terminal import (
        LET_THROUGH,
        render_line,
        render_terminal,
    )

    spoken = report_language(language, directory)
    request = options.record(CheckOptions, language=spoken)
    brief = brief or hook

    def judge(check_options: CheckOptions) -> DecisionDocument:
        with TerminalProgress(brief=brief) as progress:
            return check_change(directory, check_options, progress)

    def show(decision: DecisionDocument, code: int, out: Path) -> None:
        """Print the decision: one line if it is ``brief`` and the exit code is 0, else the report."""
        with people_on_stderr(as_json):
            if brief and not code:
                undecided = decision.verdict == "INCONCLUSIVE"
                render_line(
                    decision, Console(), spoken, after=LET_THROUGH if undecided else ""
                )
                return
            render_terminal(decision, Console(), spoken, folder=folder_to_name(out))
            if decision.verdict != "SKIPPED":
                say_pages(out, decision)

    if hook:
        push = GitPush(strict=strict)
        if remote:
            push = GitPush(remote[0], sys.stdin.read().splitlines(), strict)
        raise SystemExit(
            judge_push(
                directory, push, request, Doors.of_this_process(click.echo), judge, show
            )
        )
    decision = judge_work_tree(request, judge, show)
    if as_json:
        print_json(decision)
    raise SystemExit(exit_code(decision))
