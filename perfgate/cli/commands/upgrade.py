"""``perfgate upgrade``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import (
    FOLDER,
    PATH,
    DocumentCommand,
    Options,
    allow_dirty_option,
    checklist_option,
    device_option,
    measuring_options,
    workload_option,
)
from perfgate.errors import UsageError


@click.command("upgrade", cls=DocumentCommand)
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
@allow_dirty_option
@measuring_options
def COMMAND(
    options: Options,
    new_python: Path | None,
    bisect: str | None,
    base_python: Path | None,
    out: Path,
    allow_token: bool,
    directory: Path,
) -> tuple[object, int]:
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
    from perfgate.cli.progress import TerminalProgress
    from perfgate.cli.results import search, show_decision
    from perfgate.flows.bisect.bisect import bisect_stack
    from perfgate.flows.bisect.request import parse_bisect
    from perfgate.flows.check.check import check_change
    from perfgate.flows.shared.options import CheckOptions
    from perfgate.judging.gate.verdict import exit_code

    request = options.record(
        CheckOptions,
        out=out,
        base_python=base_python,
        head_python=new_python,
        comparing="stack",
    )
    if bisect is not None:
        pins = parse_bisect(bisect)
        return search(partial(bisect_stack, directory, pins), directory, request)
    with TerminalProgress() as progress:
        decision = check_change(directory, request, progress)
    show_decision(decision, out, request.language)
    return decision, exit_code(decision)
