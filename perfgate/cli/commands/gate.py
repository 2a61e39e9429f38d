"""``perfgate gate``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click


@click.command("gate")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write the decision into this folder.")
@click.option("--config", "config_folder", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
              help="Take the policy from the perfgate.toml in DIR instead of the one recorded with the check.")  # fmt: skip
def COMMAND(folder: Path, out: Optional[Path], config_folder: Optional[Path]) -> None:  # noqa: N802
    """Judge the run documents of a check folder again: the same samples and policy give the same decision."""
    from rich.console import Console

    from perfgate.config import load_config
    from perfgate.flows.judge import judge_again
    from perfgate.judging.gate.decide import exit_code
    from perfgate.judging.report.terminal import render_terminal

    policy = load_config(config_folder).policy() if config_folder else None
    decision = judge_again(folder, policy=policy, out=out)
    render_terminal(decision, Console())
    raise SystemExit(exit_code(decision))
