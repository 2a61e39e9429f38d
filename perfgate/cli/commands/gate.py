"""``perfgate gate``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from perfgate.cli.options import language_option
from perfgate.errors import UsageError


@click.command("gate")
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--base", type=click.Path(path_type=Path), metavar="RUN", help="Judge this run.json (or its folder) …")
@click.option(
    "--head", type=click.Path(path_type=Path), metavar="RUN", help="… against this one, without a check folder."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write the decision into this folder.")
@language_option
@click.option("--config", "config_folder", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
              help="Take the policy from the perfgate.toml in DIR instead of the one recorded with the check.")  # fmt: skip
def COMMAND(
    folder: Optional[Path],
    base: Optional[Path],
    head: Optional[Path],
    out: Optional[Path],
    language: Optional[str],
    config_folder: Optional[Path],
) -> None:
    """Judge the run documents of a check folder again, or two made apart: the same documents give the same decision."""
    from rich.console import Console

    from perfgate.config import load_config, report_language
    from perfgate.document.decision import Policy
    from perfgate.flows.judge import judge_again, judge_documents
    from perfgate.judging.gate.decide import exit_code
    from perfgate.judging.report.terminal import render_terminal

    policy = load_config(config_folder).policy() if config_folder else None
    spoken = report_language(language, config_folder or Path())
    if folder is not None and base is None and head is None:
        decision = judge_again(folder, policy=policy, out=out, language=spoken)
    elif folder is None and base is not None and head is not None:
        decision = judge_documents(base, head, policy=policy or Policy(), out=out, language=spoken)
    else:
        raise UsageError("give a check folder, or --base and --head with one run.json each")
    render_terminal(decision, Console(), spoken)
    raise SystemExit(exit_code(decision))
