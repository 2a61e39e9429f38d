"""``perfgate demo``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.measuring import allow_token_option, seclude


@click.command("demo")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False),
              help="Play in this empty folder instead of a temporary one.")  # fmt: skip
@allow_token_option
def COMMAND(folder: Path | None, allow_token: bool) -> None:
    """Gate two change requests of a small model here: one refactors (PASS), one carries a mistake (FAIL)."""
    seclude(allow_token=allow_token)
    from perfgate.jobs.demo import run_demo

    raise SystemExit(run_demo(folder, click.echo))
