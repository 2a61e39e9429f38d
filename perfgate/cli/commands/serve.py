"""``perfgate serve``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from perfgate.cli.options import PATH, directory_option, language_option
from perfgate.errors import UsageError

TOKEN = "PERFGATE_SERVE_TOKEN"  # noqa: S105 - the variable that holds it
SECRET = "PERFGATE_WEBHOOK_SECRET"  # noqa: S105 - the same


@click.command("serve")
@click.option(
    "--traces",
    "folder",
    type=PATH,
    metavar="DIR",
    help="The folder with recordings and runs.",
)
@click.option(
    "--store",
    "location",
    metavar="LOCATION",
    help="The store with the runs of main; without --traces the default is the project's.",
)
@click.option(
    "--artifacts",
    metavar="LOCATION",
    help="The artifact store whose files are served; default: PERFGATE_ARTIFACTS, or [artifacts] path of the project.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8787,
    show_default=True,
    help="0 picks a free port.",
)
@click.option(
    "--no-token",
    "is_open",
    is_flag=True,
    help="Let every user of this machine read, without a token.",
)
@click.option(
    "--webhook",
    "webhooks",
    metavar="URL",
    multiple=True,
    help=f"Send a message to this address for each uploaded run, signed with the secret in {SECRET}; may be repeated.",
)
@language_option
@directory_option()
def COMMAND(
    folder: Path | None,
    location: str | None,
    artifacts: str | None,
    host: str,
    port: int,
    is_open: bool,
    webhooks: tuple[str, ...],
    language: str | None,
    directory: Path,
) -> None:
    """Serve the runs of main, or recordings, as pages and as JSON.

    Runners upload with tokens that `perfgate token create` makes; /metrics is for Prometheus. With --traces flame
    graphs and timelines are pages, and GET /api/profile?request_id=ID returns the work done for one request (trace
    events with format=chrome, all requests without an id). /openapi.json describes the rest. Every request needs a
    token, because other users share the machine: PERFGATE_SERVE_TOKEN, or a generated one that is printed.
    """
    from functools import partial

    from perfgate.config import report_language
    from perfgate.flows.shared.artifacts import artifacts_location_in
    from perfgate.flows.shared.store import store_location_in

    try:
        from perfgate.service.server import ServeRequest, serve
        from perfgate.service.webhook import WebhookTarget
    except ModuleNotFoundError as error:
        raise UsageError(
            "perfgate serve needs {module}, which is not installed; run pip install 'perfgate[serve]'",
            module=error.name,
        ) from error
    if folder is None:
        location = store_location_in(location, directory, os.environ)
    if webhooks and location is None:
        raise click.UsageError(
            "--webhook sends a message for each uploaded run; with --traces, name the store by --store"
        )
    request = ServeRequest(
        folder=folder,
        store=location,
        root=directory,
        host=host,
        port=port,
        token=os.environ.get(TOKEN) or None,
        language=report_language(language, directory),
        is_open=is_open,
        artifacts=artifacts_location_in(artifacts, directory, os.environ),
        webhooks=tuple(
            WebhookTarget(address, os.environ.get(SECRET, "")) for address in webhooks
        ),
    )
    serve(request, os.environ, click.echo, partial(click.echo, err=True))
