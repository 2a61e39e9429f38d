"""The paths of a check's pages, printed as the last lines in a terminal."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.document.decision import DecisionDocument
from perfgate.locale import sentence


def say_pages(out: Path, decision: DecisionDocument) -> None:
    """Print the report's path, and the path of the head's flame graph if anything was compared."""
    click.echo(sentence("report: {path}", path=out / "report.html"))
    flame = out / "head" / "flame.html"
    if decision.comparisons and flame.is_file():
        click.echo(sentence("flame graph: {path}", path=flame))
