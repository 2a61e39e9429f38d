"""``perfgate demo``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.isolation import drop_secrets
from perfgate.cli.options import FOLDER, allow_token_option


@click.command("demo")
@click.option(
    "--dir",
    "folder",
    type=FOLDER,
    help="Use this empty folder instead of a temporary one.",
)
@allow_token_option
def COMMAND(folder: Path | None, allow_token: bool) -> None:
    """Gate two changes of a small model on this machine. A mistake must FAIL, a refactoring must PASS."""
    drop_secrets(allow_token=allow_token)
    from perfgate.flows.demo import run_demo

    raise SystemExit(run_demo(folder, click.echo))
