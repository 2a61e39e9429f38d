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
from perfgate.errors import EXIT_PASS, MachineBusyError, UsageError
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.document.decision import DecisionDocument
    from perfgate.flows.shared.options import CheckOptions


@click.command("local", cls=RecordCommand)
@click.option("--base", metavar="REV", help="Compare with this revision's merge base; default: the main branch.")
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
@click.option("--brief", is_flag=True, help="Print one line if it passes, the full report if it does not.")
@click.option(
    "--hook",
    is_flag=True,
    help="Run as git's pre-push hook: judge the pushed commits against the remote's main branch. Implies "
    "--brief and steps 1 to 5.",
)
@click.option("--strict", is_flag=True, help="With --hook: stop the push also if the verdict is undecided.")
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
        raise UsageError("REMOTE, URL and --strict belong to --hook; leave them out, or give --hook too")
    if hook and as_json:
        raise UsageError("--hook may judge several commits and prints no JSON; leave out --json, or --hook")
    drop_secrets(directory, allow_token=allow_token)
    from dataclasses import replace

    from perfgate.config import report_language
    from perfgate.flows.shared.options import FIRST_STEPS, CheckOptions
    from perfgate.judging.gate.verdict import exit_code

    request = options.record(CheckOptions, work_tree=not hook, language=report_language(language, directory))
    if hook:
        # A push waits for the check, so most informational steps are omitted.
        short = replace(request, steps=FIRST_STEPS if request.steps is None else request.steps)
        raise SystemExit(_judge_push(directory, short, remote, strict=strict))
    decision = _check(directory, request, brief=brief)
    code = exit_code(decision)
    with people_on_stderr(as_json):
        _show(decision, code, request, brief=brief)
    if as_json:
        print_json(decision)
    raise SystemExit(code)


def _judge_push(directory: Path, options: CheckOptions, remote: tuple[str, ...], *, strict: bool) -> int:
    """Judge every pushed commit and return the exit code of the first that must not be pushed."""
    import os
    from dataclasses import replace

    from perfgate.config import load_config
    from perfgate.flows.check.hook import pushed
    from perfgate.git.repository import Repository

    lines = sys.stdin.read().splitlines() if remote else []
    main_branch = load_config(directory).store.main_branch
    pushes = pushed(
        Repository(directory), os.environ, remote=remote[0] if remote else None, lines=lines, main_branch=main_branch
    )
    codes = [EXIT_PASS]
    for number, push in enumerate(pushes):
        base = options.base or push.base
        if base is None:
            click.echo("perfgate: " + sentence("nothing to compare with yet, the remote has no main branch"))
        elif not push.is_news:
            click.echo(
                "perfgate: "
                + sentence("nothing to judge, {head} is in {base} already", head=push.head[:12], base=push.base)
            )
        else:
            out = options.out if len(pushes) == 1 else options.out / str(number + 1)
            codes.append(_judge_commit(directory, replace(options, head=push.head, base=base, out=out), strict=strict))
    return next((code for code in codes if code), EXIT_PASS)


def _judge_commit(directory: Path, options: CheckOptions, *, strict: bool) -> int:
    from perfgate.flows.check.hook import hook_code

    try:
        decision = _check(directory, options, brief=True)
    except MachineBusyError as error:
        if strict:
            raise
        click.echo(f"perfgate: INCONCLUSIVE: {error.shown}")
        return EXIT_PASS
    code = hook_code(decision, strict=strict)
    _show(decision, code, options, brief=True)
    return code


def _check(directory: Path, options: CheckOptions, *, brief: bool) -> DecisionDocument:
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.check.job import check_change

    with TerminalProgress(brief=brief) as progress:
        return check_change(directory, options, progress)


def _show(decision: DecisionDocument, code: int, options: CheckOptions, *, brief: bool) -> None:
    """Print the decision: one line if it is ``brief`` and the exit code is 0, else the report."""
    from rich.console import Console

    from perfgate.cli.pages import say_pages
    from perfgate.flows.shared.results import folder_to_name
    from perfgate.judging.report.render.terminal import LET_THROUGH, render_line, render_terminal

    if brief and not code:
        undecided = decision.verdict == "INCONCLUSIVE"
        render_line(decision, Console(), options.language, after=LET_THROUGH if undecided else "")
        return
    render_terminal(decision, Console(), options.language, folder=folder_to_name(options.out))
    if decision.verdict != "SKIPPED":
        say_pages(options.out, decision)
