"""``perfgate token``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from perfgate.cli.groups import CommandGroup
from perfgate.cli.options import directory_option, json_alone_option, not_empty
from perfgate.cli.streams import cleaned, print_json
from perfgate.errors import UsageError
from perfgate.locale import sentence

if TYPE_CHECKING:
    from perfgate.judging.store.ledger import Ledger, TokenScope

_store = click.option(
    "--store",
    "location",
    metavar="LOCATION",
    help="The store that `perfgate serve` serves; default: the project's.",
)


@click.group("token", cls=CommandGroup)
def COMMAND() -> None:
    """Create, list and revoke the tokens of `perfgate serve`."""


@COMMAND.command("create")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "write"]),
    required=True,
    help="write: also upload runs, and accept regressions.",
)
@click.option(
    "--project",
    metavar="NAME",
    callback=not_empty,
    help="The project it is for; default: perfgate.toml's.",
)
@click.option(
    "--all-projects",
    is_flag=True,
    help="It is for every project, and reads recordings too.",
)
@_store
@json_alone_option
@directory_option()
def create(
    name: str,
    scope: str,
    project: str | None,
    all_projects: bool,
    location: str | None,
    as_json: bool,
    directory: Path,
) -> None:
    "Create a token for one project and print it once. NAME identifies its user."
    from perfgate.config import load_config

    if all_projects and project:
        raise click.UsageError(
            "--project and --all-projects exclude each other; give one"
        )
    if not name.strip():
        raise UsageError(
            "the token needs a name, which identifies its user in the audit log"
        )
    ledger = _open_ledger(location, directory)
    if not all_projects:
        project = project or load_config(directory).project
    token = ledger.create_token(name.strip(), project, cast("TokenScope", scope))
    if as_json:
        print_json(token)
        return
    click.echo(
        sentence(
            "token {id} ({name}) may {scope} {project}",
            id=token.token.id,
            name=cleaned(token.token.name),
            scope=scope,
            project=cleaned(project or sentence("all projects")),
        ),
        err=True,
    )
    click.echo(
        sentence(
            "set PERFGATE_STORE_TOKEN to it where it is used; it is shown only once:"
        ),
        err=True,
    )
    click.echo(token.secret)


@COMMAND.command("list")
@_store
@json_alone_option
@directory_option()
def list_all(location: str | None, as_json: bool, directory: Path) -> None:
    """List the tokens of all projects, newest first."""
    tokens = _open_ledger(location, directory).tokens()
    if as_json:
        print_json(tokens)
        return
    if not tokens:
        click.echo(sentence("there is no token yet; `perfgate token create` makes one"))
    for token in tokens:
        state = sentence("since {time}", time=token.created_at[:16])
        if token.revoked_at:
            state = sentence("revoked {time}", time=token.revoked_at[:16])
        project = token.project or sentence("all projects")
        click.echo(
            cleaned(f"{token.id}  {token.scope:5}  {state}  {project}  {token.name}")
        )


@COMMAND.command("revoke")
@click.argument("token_id", metavar="ID")
@_store
@json_alone_option
@directory_option()
def revoke(token_id: str, location: str | None, as_json: bool, directory: Path) -> None:
    """Revoke a token for good; the next request with it is refused."""
    token = _open_ledger(location, directory).revoke(token_id)
    if as_json:
        print_json(token)
    else:
        click.echo(
            cleaned(
                sentence(
                    "revoked {id} ({name}) of {project}",
                    id=token.id,
                    name=token.name,
                    project=token.project or sentence("all projects"),
                )
            )
        )


def _open_ledger(location: str | None, directory: Path) -> Ledger:
    from perfgate.flows.shared.store import open_store_at, store_location_in
    from perfgate.flows.store import ledger_of

    place = store_location_in(location, directory, os.environ)
    return ledger_of(open_store_at(place, directory, os.environ), place)
