"""``perfgate run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import (
    FOLDER,
    PATH,
    DocumentCommand,
    device_option,
    measuring_options,
)
from perfgate.errors import EXIT_PASS, UsageError
from perfgate.locale import Language, sentence

if TYPE_CHECKING:
    from perfgate.document.decision import DecisionDocument
    from perfgate.document.run import RunDocument


@click.command("run", cls=DocumentCommand)
@click.option(
    "--out",
    type=FOLDER,
    default="perfgate-out",
    show_default=True,
    help="Folder for run.json, traces and logs.",
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="NAME",
    help="Only this workload (may be repeated); with --from-profile its name.",
)
@click.option(
    "--from-profile",
    "profile",
    type=PATH,
    metavar="PATH",
    help="Make a run document from this profiler recording (folder or file) instead of measuring.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="With --from-profile: copy the recording into --out, however large it is.",
)
@click.option(
    "--steps", metavar="LIST", help="Only these steps, e.g. 1,3-5 or latency,batch."
)
@click.option(
    "--quick",
    is_flag=True,
    help="Short measurements, comparable with `perfgate check`.",
)
@device_option
@measuring_options
def COMMAND(
    out: Path,
    workloads: tuple[str, ...],
    profile: Path | None,
    keep: bool,
    steps: str | None,
    quick: bool,
    device: str | None,
    allow_token: bool,
    language: Language,
    directory: Path,
) -> tuple[RunDocument, int]:
    """Run the checklist on this machine or on a profiler recording. It writes a run document.

    A measured run is checked against the rules in perfgate.toml that need no base: budgets, expected kernels and
    gating limits.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.config import load_config
    from perfgate.flows.run.from_profile import DEFAULT_WORKLOAD, run_from_profile
    from perfgate.flows.run.run import RunOptions, run_and_judge
    from perfgate.flows.shared.options import exit_code, parse_steps
    from perfgate.judging.gate.verdict import exit_code as exit_code_of_decision

    if profile is not None:
        if steps or quick or device or len(workloads) > 1:
            raise UsageError(
                "--from-profile measures nothing: leave out --steps, --quick and --device, and give one --workload at most"
            )
        name = next(iter(workloads), DEFAULT_WORKLOAD)
        with TerminalProgress() as progress:
            run = run_from_profile(
                directory, profile, out, progress.status, workload=name, keep_files=keep
            )
        _show(run, out, language)
        return run, EXIT_PASS
    drop_secrets(directory, allow_token=allow_token)
    if keep:
        raise UsageError(
            "--keep belongs to --from-profile; perfgate's own recordings are kept anyway"
        )
    config = load_config(directory, device=device)
    options = RunOptions(
        out=out,
        workloads=workloads,
        steps=parse_steps(steps),
        quick=quick,
        language=language,
    )
    with TerminalProgress() as progress:
        run, decision = run_and_judge(config, options, progress)
    _show(run, out, language)
    if decision is None:
        return run, exit_code(run)
    _show_rules(decision, language)
    return run, exit_code_of_decision(decision)


def _show_rules(decision: DecisionDocument, language: Language) -> None:
    """Print the outcome of the rules, then the verdict; the findings of the run are already printed above."""
    from msgspec.structs import replace
    from rich.console import Console

    from perfgate.judging.report.render.terminal import render_line, render_terminal

    console = Console()
    if decision.verdict != "PASS":
        render_terminal(
            replace(decision, warnings=[], gaps=replace(decision.gaps, failures=[])),
            console,
            language,
        )
    render_line(decision, console, language)


def _show(run: RunDocument, out: Path, language: Language) -> None:
    from rich.console import Console

    from perfgate.judging.advice.advise import suggestions
    from perfgate.judging.report.render.terminal import (
        render_first_suggestions,
        render_run,
    )

    console = Console()
    render_run(run, console, language)
    render_first_suggestions(suggestions(run), console, language, folder=str(out))
    click.echo(sentence("run document: {out}", out=out / "run.json"))
