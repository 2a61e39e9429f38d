"""``perfgate upgrade``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.measuring import allow_token_option, seclude
from perfgate.cli.options import language_option


@click.command("upgrade")
@click.option("--python", "new_python", type=click.Path(path_type=Path), metavar="PATH", required=True,
              help="The interpreter of the new stack, e.g. venv-new/bin/python.")  # fmt: skip
@click.option("--base-python", type=click.Path(path_type=Path), metavar="PATH",
              help="The interpreter of the old stack; default: the one that runs perfgate.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=".perfgate/upgrade", show_default=True,
              help="Folder for the documents, the report, traces and logs.")  # fmt: skip
@click.option("--workload", "workloads", multiple=True, metavar="NAME", help="Only this workload (may be repeated).")
@click.option("--steps", metavar="LIST", help="Steps of the checklist on the new stack, e.g. 1,3-5; default 1-4.")
@click.option("--device", metavar="KIND", help="Measure on this device instead of the one in perfgate.toml.")
@click.option("--allow-dirty", is_flag=True, help="Ignore uncommitted changes instead of refusing.")
@allow_token_option
@language_option
@click.option("-C", "--directory", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".",
              help="The project's folder.")  # fmt: skip
def COMMAND(
    new_python: Path,
    base_python: Path | None,
    out: Path,
    workloads: tuple[str, ...],
    steps: str | None,
    device: str | None,
    allow_dirty: bool,
    allow_token: bool,
    language: str | None,
    directory: Path,
) -> None:
    """Compare two software stacks under the checked-out commit: a report of what gets slower, which never fails.

    Exit codes: 0 nothing got slower, or WARN with what did · 3 undecided · 4 one of the stacks cannot be measured.
    """
    seclude(directory, allow_token=allow_token)
    from rich.console import Console

    from perfgate.cli.progress import TerminalProgress
    from perfgate.config import report_language
    from perfgate.jobs.check.job import check_change
    from perfgate.jobs.shared.options import CheckOptions, GivenInterpreters
    from perfgate.jobs.shared.steps import DEFAULT_HEAD_STEPS, parse_steps
    from perfgate.judging.gate.verdict import exit_code
    from perfgate.judging.report.terminal import render_terminal

    spoken = report_language(language, directory)
    options = CheckOptions(
        language=spoken,
        out=out,
        workloads=workloads,
        steps=parse_steps(steps) if steps else DEFAULT_HEAD_STEPS,
        allow_dirty=allow_dirty,
        device=device,
        interpreters=GivenInterpreters(base_python, new_python),
        comparing="stack",
    )
    with TerminalProgress() as progress:
        decision = check_change(directory, options, progress)
    render_terminal(decision, Console(), spoken)
    click.echo(f"report: {out / 'report.html'}")
    raise SystemExit(exit_code(decision))
