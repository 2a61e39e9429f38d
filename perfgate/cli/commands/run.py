"""``perfgate run``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click


@click.command("run")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default="perfgate-out", show_default=True,
              help="Folder for run.json, traces and logs.")  # fmt: skip
@click.option("--workload", "workloads", multiple=True, metavar="NAME", help="Only this workload (may be repeated).")
@click.option("--steps", metavar="LIST", help="Only these steps, e.g. 1,3-5 or latency,batch.")
@click.option("--quick", is_flag=True, help="Shorter measurements, wider intervals.")
@click.option("--device", metavar="KIND", help="Measure on this device instead of the one in perfgate.toml.")
@click.option("-C", "--directory", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".",
              help="The project's folder.")  # fmt: skip
def COMMAND(  # noqa: N802
    out: Path, workloads: tuple[str, ...], steps: Optional[str], quick: bool, device: Optional[str], directory: Path
) -> None:
    """Run the checklist on this machine and write a run document."""
    from rich.console import Console

    from perfgate.cli.progress import TerminalProgress
    from perfgate.config import load_config
    from perfgate.flows.run import RunOptions, exit_code, parse_steps, run_here
    from perfgate.judging.report.terminal import render_run

    config = load_config(directory, device=device)
    options = RunOptions(out=out, workloads=workloads, steps=parse_steps(steps), quick=quick)
    with TerminalProgress() as progress:
        run = run_here(config, options, progress)
    render_run(run, Console())
    click.echo(f"run document: {out / 'run.json'}")
    raise SystemExit(exit_code(run))
