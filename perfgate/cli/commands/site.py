"""``perfgate site``."""

from __future__ import annotations

from pathlib import Path

import click

from perfgate.cli.options import FOLDER, directory_option, json_option, language_option
from perfgate.cli.streams import people_on_stderr, print_json


@click.command("site")
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
@json_option
@language_option
@directory_option()
def COMMAND(
    out: Path, runs: int, as_json: bool, language: str | None, directory: Path
) -> None:
    """Write the pages of main's history as files, from any store.

    They need no server, script or network: open index.html, or push the folder to a branch of pages. A second call
    replaces the pages, and removes the pages of runs that left the store.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.config import report_language
    from perfgate.flows.shared.doors import Doors
    from perfgate.flows.site.job import write_site
    from perfgate.locale import sentence

    spoken = report_language(language, directory)
    doors = Doors.of_this_process(click.echo)
    with people_on_stderr(as_json):
        with TerminalProgress() as progress:
            written = write_site(
                directory, out, doors, progress, runs=runs, language=spoken
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
    if as_json:
        print_json(written)
