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
    json_option,
    language_option,
    workload_option,
)
from perfgate.errors import UsageError
from perfgate.locale import sentence


@click.command("upgrade", cls=RecordCommand)
@click.option(
    "--python",
    "new_python",
    type=PATH,
    metavar="PATH",
    help="The interpreter of the new stack, e.g. venv-new/bin/python.",
)
@click.option(
    "--bisect",
    metavar="LIST",
    help="Find the culprit among packages, e.g. 'torch==2.13,attrs==26.1', or among releases of one: 'attrs==23.1..26.1'.",
)
@click.option(
    "--base-python",
    type=PATH,
    metavar="PATH",
    help="The interpreter of the old stack; default: perfgate's own.",
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
@click.option(
    "--allow-dirty",
    is_flag=True,
    help="Ignore uncommitted changes instead of refusing.",
)
@allow_token_option
@json_option
@language_option
@directory_option()
def COMMAND(
    options: Options,
    new_python: Path | None,
    bisect: str | None,
    base_python: Path | None,
    out: Path,
    allow_token: bool,
    as_json: bool,
    language: str | None,
    directory: Path,
) -> None:
    """Compare two software stacks under the checked-out commit. The report lists slowdowns and never fails.

    --bisect builds the stacks: each has some of the packages in their new versions, and gates find the package that makes it
    slower, or the packages that do so only together.

    Exit codes: 0 nothing got slower, or WARN with the regressions, or the culprit is found · 3 undecided · 4 one of the stacks
    cannot be measured, or the package index cannot be reached.
    """
    if (new_python is None) == (bisect is None):
        raise UsageError(
            "give the new stack by --python, or packages by --bisect, and not both"
        )
    if bisect is not None and base_python is not None:
        raise UsageError(
            "--bisect makes its stacks from the Python that runs perfgate, or by [measure] setup; start perfgate with the old "
            "stack's Python in place of --base-python"
        )
    drop_secrets(directory, allow_token=allow_token)
    from rich.console import Console

    from perfgate.cli.pages import say_pages
    from perfgate.cli.progress import TerminalProgress
    from perfgate.cli.streams import people_on_stderr, print_json
    from perfgate.config import report_language
    from perfgate.document.bisection import BISECTION_FILE
    from perfgate.flows.bisect.counting import StateCounter
    from perfgate.flows.bisect.job import bisect_stack
    from perfgate.flows.bisect.request import parse_bisect
    from perfgate.flows.check.job import check_change
    from perfgate.flows.shared.options import CheckOptions
    from perfgate.judging.gate.verdict import exit_code
    from perfgate.judging.report.render.bisection import (
        bisection_code,
        render_bisection,
    )
    from perfgate.judging.report.render.terminal import render_terminal

    spoken = report_language(language, directory)
    request = options.record(
        CheckOptions,
        out=out,
        base_python=base_python,
        head_python=new_python,
        comparing="stack",
        language=spoken,
    )
    document: object
    with people_on_stderr(as_json):
        if bisect is not None:
            pins = parse_bisect(bisect)
            with (
                TerminalProgress() as progress,
                StateCounter(directory, request, progress) as counter,
            ):
                bisection, decision = bisect_stack(
                    directory, pins, request, check_change, progress, counter
                )
            render_bisection(bisection, Console(), spoken)
            if decision:
                render_terminal(decision, Console(), spoken)
            click.echo(
                sentence("written to {out}: {files}", out=out, files=BISECTION_FILE)
            )
            document, code = bisection, bisection_code(bisection)
        else:
            with TerminalProgress() as progress:
                decision = check_change(directory, request, progress)
            render_terminal(decision, Console(), spoken)
            say_pages(out, decision)
            document, code = decision, exit_code(decision)
    if as_json:
        print_json(document)
    raise SystemExit(code)
