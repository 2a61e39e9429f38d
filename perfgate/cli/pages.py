"""Where the pages of a check lie: the last lines of what a terminal shows."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.locale import sentence


def say_pages(out: Path) -> None:
    """Print the report's path and that of the head's flame graph, if there is one."""
    click.echo(sentence("report: {path}", path=out / "report.html"))
    flame = out / "head" / "flame.html"
    if flame.is_file():
        click.echo(sentence("flame graph: {path}", path=flame))
