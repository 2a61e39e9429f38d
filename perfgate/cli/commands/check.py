"""``perfgate check``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.measuring import allow_token_option, seclude
from perfgate.cli.options import language_option


@click.command("check")
@click.option("--base", metavar="REV", help="Compare with this revision's merge base; default: the main branch.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default="perfgate-out", show_default=True,
              help="Folder for decision.json, comment.md, report.html, run documents, traces and logs.")  # fmt: skip
@click.option("--workload", "workloads", multiple=True, metavar="NAME", help="Only this workload (may be repeated).")
@click.option("--steps", metavar="LIST", help="Steps of the checklist for the head, e.g. 1,3-5; default 1-4.")
@click.option("--device", metavar="KIND", help="Measure on this device instead of the one in perfgate.toml.")
@click.option("--allow-dirty", is_flag=True, help="Ignore uncommitted changes instead of refusing.")
@click.option(
    "--append",
    is_flag=True,
    help="Add pairs to the earlier result in --out instead of starting anew, if there is one of the same commits.",
)
@click.option("--base-python", type=click.Path(path_type=Path), metavar="PATH",
              help="Measure the base in this interpreter; default: the one that runs perfgate.")  # fmt: skip
@click.option("--head-python", type=click.Path(path_type=Path), metavar="PATH",
              help="Measure the head in this interpreter; default: the one that runs perfgate.")  # fmt: skip
@click.option(
    "--always",
    is_flag=True,
    help="Measure also where nothing relevant changed, by [paths] in perfgate.toml or by the code itself.",
)
@allow_token_option
@language_option
@click.option("-C", "--directory", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".",
              help="The project's folder.")  # fmt: skip
def COMMAND(
    base: str | None,
    out: Path,
    workloads: tuple[str, ...],
    steps: str | None,
    device: str | None,
    allow_dirty: bool,
    append: bool,
    always: bool,
    allow_token: bool,
    base_python: Path | None,
    head_python: Path | None,
    language: str | None,
    directory: Path,
) -> None:
    """Judge the checked-out commit against its base: what a CI job runs, without any token."""
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
        base=base,
        workloads=workloads,
        steps=parse_steps(steps) if steps else DEFAULT_HEAD_STEPS,
        allow_dirty=allow_dirty,
        device=device,
        append=append,
        always=always,
        interpreters=GivenInterpreters(base_python, head_python),
    )
    with TerminalProgress() as progress:
        decision = check_change(directory, options, progress)
    render_terminal(decision, Console(), spoken)
    measured = "" if decision.verdict == "SKIPPED" else ", report.html, base/run.json, head/run.json"
    click.echo(f"written to {out}: decision.json, comment.md{measured}")
    raise SystemExit(exit_code(decision))
