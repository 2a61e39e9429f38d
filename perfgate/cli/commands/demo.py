"""``perfgate demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click


@click.command("demo")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False),
              help="Play in this empty folder instead of a temporary one.")  # fmt: skip
def COMMAND(folder: Optional[Path]) -> None:  # noqa: N802
    """Gate two change requests of a small model here: one refactors (PASS), one carries a mistake (FAIL)."""
    from perfgate.flows.demo import run_demo

    raise SystemExit(run_demo(folder, click.echo))
