"""``perfgate local``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from perfgate.cli.measuring import allow_token_option, seclude
from perfgate.cli.options import language_option


@click.command("local")
@click.option(
    "--base", "--against", metavar="REV", help="Compare with this revision's merge base; default: the main branch."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=".perfgate/local", show_default=True,
              help="Folder for the documents, the report, traces and logs.")  # fmt: skip
@click.option("--workload", "workloads", multiple=True, metavar="NAME", help="Only this workload (may be repeated).")
@click.option("--device", metavar="KIND", help="Measure on this device instead of the one in perfgate.toml.")
@allow_token_option
@language_option
@click.option("-C", "--directory", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".",
              help="The project's folder.")  # fmt: skip
def COMMAND(  # noqa: N802
    base: Optional[str],
    out: Path,
    workloads: tuple[str, ...],
    device: Optional[str],
    allow_token: bool,
    language: Optional[str],
    directory: Path,
) -> None:
    """Judge this work tree, uncommitted changes included, against main: the verdict CI will give, before pushing."""
    seclude(allow_token=allow_token)
    from rich.console import Console

    from perfgate.cli.progress import TerminalProgress
    from perfgate.config import report_language
    from perfgate.flows.check import CheckOptions, check_change
    from perfgate.judging.gate.decide import exit_code
    from perfgate.judging.report.terminal import render_terminal

    spoken = report_language(language, directory)
    options = CheckOptions(out=out, base=base, workloads=workloads, work_tree=True, device=device, language=spoken)
    with TerminalProgress() as progress:
        decision = check_change(directory, options, progress)
    render_terminal(decision, Console(), spoken)
    click.echo(f"report: {out / 'report.html'}")
    raise SystemExit(exit_code(decision))
