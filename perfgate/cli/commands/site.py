"""``perfgate site``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.options import FOLDER, DocumentCommand, document_options
from perfgate.cli.streams import doors_of_process
from perfgate.errors import EXIT_PASS
from perfgate.locale import Language, sentence

if TYPE_CHECKING:
    from perfgate.flows.site import WrittenSite


@click.command("site", cls=DocumentCommand)
@click.option(
    "--out", type=FOLDER, required=True, help="Write the pages into this folder."
)
@click.option(
    "--runs",
    type=click.IntRange(min=1, max=5000),
    default=100,
    show_default=True,
    metavar="N",
    help="Write a separate page for each of the newest N runs; runs next to a change always have one.",
)
@document_options
def COMMAND(
    out: Path, runs: int, language: Language, directory: Path
) -> tuple[WrittenSite, int]:
    """Write the pages of main's history as files, from any store.

    They need no server, script or network: open index.html, or push the folder to a branch of pages. A second call
    replaces the pages, and removes the pages of runs that left the store.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.site import write_site

    doors = doors_of_process()
    with TerminalProgress() as progress:
        written = write_site(
            directory, out, doors, progress, runs=runs, language=language
        )
    click.echo(
        sentence(
            "{pages} pages written, {shown} of {runs} runs with a separate page; begin with {first}",
            pages=written.pages,
            shown=written.run_pages,
            runs=written.runs,
            first=out / "index.html",
        )
    )
    return written, EXIT_PASS
