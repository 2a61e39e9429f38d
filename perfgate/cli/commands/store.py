"""``perfgate store``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.groups import CommandGroup
from perfgate.cli.options import PATH, directory_option
from perfgate.cli.streams import print_json
from perfgate.errors import EXIT_FAIL
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.store import StoreSelection
    from perfgate.judging.store.transfer import Advance, Transferred

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
_projects = click.option(
    "--project", "projects", multiple=True, metavar="NAME", help="Only this project (may be repeated); default: all."
)
_directory = directory_option("The project's folder, or one inside it; a branch is one of its repository.")


@click.group("store", cls=CommandGroup)
def COMMAND() -> None:
    """Check, copy or export the store of main's runs.

    LOCATION, FROM and TO are written as [store] path: a file, branch://NAME, or postgresql://USER@HOST/DATABASE with
    the password in PGPASSWORD.
    """


@COMMAND.command("verify")
@click.argument("location", required=False)
@_projects
@_json
@_directory
def verify(location: str | None, projects: tuple[str, ...], as_json: bool, directory: Path) -> None:
    """Read every stored run and check it against its hash, its format and the lists made from it.

    Without LOCATION the project's own store is read. Exit code 1: something is damaged, and named.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows import store

    with TerminalProgress() as progress:
        verified = store.verify(_selection(directory, location, projects), os.environ, _advance(progress))
    if as_json:
        print_json(verified)
    else:
        for fault in verified.faults:
            click.echo(_clean(sentence("damaged: {why}", why=fault)))
        click.echo(sentence("runs read: {runs}; faults: {faults}", runs=verified.runs, faults=len(verified.faults)))
    if verified.faults:
        click.get_current_context().exit(EXIT_FAIL)


@COMMAND.command("export")
@click.argument("location", required=False)
@click.option(
    "--out", "target", type=PATH, required=True, metavar="PATH", help="A new folder, or a new file that ends in .tar."
)
@_projects
@_json
@_directory
def export(location: str | None, target: Path, projects: tuple[str, ...], as_json: bool, directory: Path) -> None:
    """Write every run, acceptance and confirmation to a folder or tar file, whole or not at all.

    Without LOCATION the project's own store is read. Exit code 1: a damaged run was left out, and is named.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows import store

    with TerminalProgress() as progress:
        exported = store.export(_selection(directory, location, projects), os.environ, target, _advance(progress))
    _finish(exported, as_json)


@COMMAND.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@_projects
@_json
@_directory
def copy(source: str, target: str, projects: tuple[str, ...], as_json: bool, directory: Path) -> None:
    """Copy runs, acceptances and confirmations from one store to another.

    Runs that are there already stay, so an interrupted copy can be repeated. Exit code 1: a damaged run was left out,
    and is named.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows import store

    with TerminalProgress() as progress:
        copied = store.copy(_selection(directory, source, projects), os.environ, target, _advance(progress))
    _finish(copied, as_json)


def _selection(directory: Path, location: str | None, projects: tuple[str, ...]) -> StoreSelection:
    from perfgate.flows.store import StoreSelection

    return StoreSelection(root=directory, location=location, projects=projects)


def _advance(progress: TerminalProgress) -> Advance:
    def advance(project: str, done: int, runs: int) -> None:
        progress.status(_clean(sentence("{project}: {done} of {runs} runs", project=project, done=done, runs=runs)))

    return advance


def _finish(transferred: Transferred, as_json: bool) -> None:
    for why in transferred.damaged:
        click.echo(_clean(sentence("left out: {why}", why=why)), err=True)
    if as_json:
        print_json(transferred)
    else:
        click.echo(
            sentence(
                "runs: {runs}; acceptances: {acceptances}; confirmations: {confirmations}",
                runs=transferred.runs,
                acceptances=transferred.acceptances,
                confirmations=transferred.confirmations,
            )
        )
    if transferred.damaged:
        click.get_current_context().exit(EXIT_FAIL)


# Long enough for the whole path of a damaged file and the remedy.
_LONGEST = 2000


def _clean(text: str) -> str:
    from perfgate.judging.report.text.escape import clean

    return clean(text, limit=_LONGEST)
