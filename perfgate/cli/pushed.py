"""What commands print about runs that had waited for a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perfgate.cli.streams import cleaned
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.flows.shared.unsent import PushedRuns


def show_pushed(pushed: PushedRuns) -> None:
    if pushed.sent:
        ids = ", ".join(run_id[:12] for run_id in pushed.sent)
        click.echo(
            sentence("sent runs that had waited for the service: {ids}", ids=ids)
        )
    for path, why in pushed.refused:
        text = sentence(
            "a waiting run cannot be sent and stays in {path}: {why}",
            path=path,
            why=why,
        )
        click.echo(cleaned(text, whole=True), err=True)
