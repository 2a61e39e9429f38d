"""``perfgate store``."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfgate.cli.artifacts import age, bytes_text, say_kept, sending, show_pushed, size
from perfgate.cli.groups import CommandGroup
from perfgate.cli.options import FOLDER, PATH, directory_option, json_alone_option
from perfgate.cli.streams import cleaned, doors_of_process, print_json, say_line
from perfgate.errors import EXIT_FAIL
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.cli.progress import TerminalProgress
    from perfgate.judging.store.transfer import Advance, Copied, Exported

_projects = click.option(
    "--project",
    "projects",
    multiple=True,
    metavar="NAME",
    help="Only this project (may be repeated); default: all.",
)
_directory = directory_option(
    "The project's folder, or one inside it; a branch is one of its repository."
)


@click.group("store", cls=CommandGroup)
def COMMAND() -> None:
    """Check, copy or export main's runs; keep or remove artifacts.

    LOCATION, FROM and TO are written as [store] path: a file, branch://NAME, or postgresql://USER@HOST/DATABASE with
    the password in PGPASSWORD.
    """


@COMMAND.command("verify")
@click.argument("location", required=False)
@_projects
@json_alone_option
@_directory
def verify(
    location: str | None, projects: tuple[str, ...], as_json: bool, directory: Path
) -> None:
    """Read every stored run and check it against its hash, its format and the lists made from it.

    Without LOCATION the project's own store is read. Exit code 1: something is damaged, and named.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows import store
    from perfgate.judging.store.verify import verify_store

    with TerminalProgress() as progress:
        opened = store.open_projects(directory, location, projects, os.environ)
        verified = verify_store(opened.store, opened.projects, _advance(progress))
        verified.faults += opened.unreadable
    if as_json:
        print_json(verified)
    else:
        for fault in verified.faults:
            say_line(sentence("damaged: {why}", why=fault))
        click.echo(
            sentence(
                "runs read: {runs}; faults: {faults}",
                runs=verified.runs,
                faults=len(verified.faults),
            )
        )
    if verified.faults:
        click.get_current_context().exit(EXIT_FAIL)


@COMMAND.command("push")
@json_alone_option
@_directory
def push(as_json: bool, directory: Path) -> None:
    """Send the runs of this project that its service could not take when they were recorded on this machine.

    Exit codes: 1 a file cannot be sent, and is named; 4 the service does not answer.
    """
    from perfgate.flows.store import push_unsent

    pushed = push_unsent(directory, os.environ)
    if as_json:
        print_json(pushed)
    elif not pushed.sent and not pushed.refused:
        click.echo(sentence("no run waits to be sent"))
    else:
        show_pushed(pushed)
    if pushed.refused:
        click.get_current_context().exit(EXIT_FAIL)


@COMMAND.command("export")
@click.argument("location", required=False)
@click.option(
    "--out",
    "target",
    type=PATH,
    required=True,
    metavar="PATH",
    help="A new folder, or a new file that ends in .tar.",
)
@_projects
@json_alone_option
@_directory
def export(
    location: str | None,
    target: Path,
    projects: tuple[str, ...],
    as_json: bool,
    directory: Path,
) -> None:
    """Write every run, acceptance and confirmation to a folder or tar file, whole or not at all.

    Without LOCATION the project's own store is read. Exit code 1: a damaged run was left out, and is named.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows import store

    with TerminalProgress() as progress:
        exported = store.export(
            directory, location, projects, target, os.environ, _advance(progress)
        )
    _finish(exported, as_json)


@COMMAND.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@_projects
@json_alone_option
@_directory
def copy(
    source: str, target: str, projects: tuple[str, ...], as_json: bool, directory: Path
) -> None:
    """Copy a whole store into another: runs, statements about them, tokens and audit history.

    Existing entries stay, so an interrupted copy can be repeated, and one store can follow another. Tokens stay
    valid, and are copied as their hashes; a branch keeps neither tokens nor an audit log, and their number is printed.
    With --project, tokens for all projects are left out. Exit code 1: a damaged run was left out, and is named.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows import store

    with TerminalProgress() as progress:
        copied = store.copy(
            directory, source, projects, target, os.environ, _advance(progress)
        )
    _say_not_copied(copied, source, target)
    of_service = sentence(
        "tokens: {tokens}; audit entries: {entries}",
        tokens=copied.tokens,
        entries=copied.audit_entries,
    )
    _finish(copied, as_json, of_service)


@COMMAND.command("upload")
@click.argument(
    "folder", type=FOLDER, default="perfgate-out", required=False, metavar="[DIR]"
)
@json_alone_option
@directory_option()
def upload(folder: Path, as_json: bool, directory: Path) -> None:
    """Keep the traces, flame graphs and report page of a run or check folder where [artifacts] path says.

    Files that arrived are not sent again, so repeating the command continues an interrupted upload. Without DIR,
    perfgate-out is sent. Exit codes: 2 wrong address, credentials or folder, 4 the place cannot be reached or is full.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows import artifacts

    with TerminalProgress() as progress:
        doors = doors_of_process()
        store, upload_result = artifacts.upload(
            directory, folder, doors, sending(progress)
        )
    if as_json:
        print_json(
            {
                "kept": upload_result.artifacts,
                "sent": upload_result.sent,
                "left_out": upload_result.left_out,
            }
        )
    else:
        say_kept(upload_result)
        for link in store.links(upload_result.artifacts):
            click.echo(f"  {link.address or link.place}")


@COMMAND.command("prune")
@click.option(
    "--older-than",
    callback=age,
    metavar="AGE",
    help="Remove what was kept longer ago, e.g. 90d or 12w.",
)
@click.option(
    "--larger-than",
    callback=size,
    metavar="SIZE",
    help="Remove the oldest above this size, e.g. 20GB.",
)
@click.option(
    "--dry-run", is_flag=True, help="Remove nothing, and show what would be removed."
)
@json_alone_option
@directory_option()
def prune(
    older_than: timedelta | None,
    larger_than: int | None,
    dry_run: bool,
    as_json: bool,
    directory: Path,
) -> None:
    """Remove old artifacts of this project, but none that a regression or main's level needs.

    The artifacts stay of checks that found a regression, of the runs on both sides of each regression of main, and of
    the newest three runs on main's current level. Without options the limits are those under [artifacts].
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows import artifacts

    with TerminalProgress() as progress:
        doors = doors_of_process()
        pruned = artifacts.prune(
            directory,
            doors,
            progress,
            older_than=older_than,
            larger_than=larger_than,
            dry_run=dry_run,
        )
    if as_json:
        print_json(pruned)
        return
    if dry_run:
        for artifact in pruned.removed:
            say_line(
                f"{artifact.id[:12]}  {artifact.kept_at[:10]}  {bytes_text(artifact.bytes)}  {artifact.commit or ''}"
            )
    counts = {
        "sets": len(pruned.removed),
        "size": bytes_text(pruned.removed_bytes),
        "unfinished": pruned.unfinished,
    }
    if dry_run:
        click.echo(
            sentence(
                "would be removed: {sets} ({size}); incomplete uploads: {unfinished}",
                **counts,
            )
        )
    else:
        click.echo(
            sentence(
                "removed: {sets} ({size}); incomplete uploads: {unfinished}", **counts
            )
        )
    click.echo(
        sentence(
            "stay: {sets} ({size}); needed by a regression or main's level: {retained}",
            sets=pruned.stay,
            size=bytes_text(pruned.stay_bytes),
            retained=pruned.retained,
        )
    )
    if pruned.larger_by:
        click.echo(
            sentence(
                "this exceeds the limit by {size}", size=bytes_text(pruned.larger_by)
            )
        )


def _advance(progress: TerminalProgress) -> Advance:
    def advance(project: str, number: int, runs: int) -> None:
        text = sentence(
            "{project}: {done} of {runs} runs", project=project, done=number, runs=runs
        )
        progress.status(cleaned(text, whole=True))

    return advance


def _say_not_copied(copied: Copied, source: str, target: str) -> None:
    from perfgate.judging.store.store import SERVICE_SCHEMES, shown_location

    skipped = copied.not_copied
    if skipped.tokens or skipped.audit_entries:
        reason = sentence(
            "{place} keeps no tokens and no audit log; not copied: tokens: {tokens}; audit entries: {entries}",
            place=shown_location(target),
            tokens=skipped.tokens,
            entries=skipped.audit_entries,
        )
        say_line(reason, err=True)
    if skipped.tokens_of_all_projects:
        reason = sentence(
            "not copied, as --project names some projects: tokens for all projects: {tokens}",
            tokens=skipped.tokens_of_all_projects,
        )
        click.echo(reason, err=True)
    if source.startswith(SERVICE_SCHEMES):
        reason = sentence(
            "{place} gives out neither its tokens nor its audit log, so neither was copied; copy its store on its own machine",
            place=shown_location(source),
        )
        say_line(reason, err=True)


def _finish(exported: Exported, as_json: bool, *more: str) -> None:
    """Print the counts, with further lines for people. Exits with 1 if something was damaged."""
    for why in exported.damaged:
        say_line(sentence("left out: {why}", why=why), err=True)
    if as_json:
        print_json(exported)
    else:
        counts = sentence(
            "runs: {runs}; acceptances: {acceptances}; triages: {triages}; confirmations: {confirmations}; "
            "verdicts: {verdicts}",
            runs=exported.runs,
            acceptances=exported.acceptances,
            triages=exported.triages,
            confirmations=exported.confirmations,
            verdicts=exported.gates,
        )
        click.echo("\n".join((counts, *more)))
    if exported.damaged:
        click.get_current_context().exit(EXIT_FAIL)
