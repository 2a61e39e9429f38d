"""``perfgate serve``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from perfgate.cli.options import PATH, language_option
from perfgate.errors import UsageError

TOKEN = "PERFGATE_SERVE_TOKEN"  # noqa: S105 - the variable that holds it


@click.command("serve")
@click.option(
    "--traces", "folder", type=PATH, required=True, metavar="DIR", help="The folder with recordings and runs."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0: any that is free.")
@click.option("--no-token", "is_open", is_flag=True, help="Let every user of this machine read, without a token.")
@language_option
def COMMAND(folder: Path, host: str, port: int, is_open: bool, language: str | None) -> None:
    """Serve the recordings below a folder, as pages and as JSON.

    Flame graphs and timelines are pages. GET /api/profile?request_id=ID returns the work done for one request (trace
    events with format=chrome, all requests without an id); /openapi.json describes the rest. Every request needs a
    token, because other users share the machine: PERFGATE_SERVE_TOKEN, or a generated one that is printed.
    """
    from perfgate.config import report_language

    try:
        from perfgate.service.server import ServeRequest, serve
    except ModuleNotFoundError as error:
        raise UsageError(
            "perfgate serve needs {module}, which is not installed; run pip install 'perfgate[serve]'",
            module=error.name,
        ) from error
    request = ServeRequest(
        folder=folder,
        host=host,
        port=port,
        token=os.environ.get(TOKEN) or None,
        language=report_language(language, Path()),
        is_open=is_open,
    )
    serve(request, click.echo)
