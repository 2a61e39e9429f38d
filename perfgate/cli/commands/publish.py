"""``perfgate publish``: judge a check folder again and post it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Optional

import click

from perfgate.cli.event import event_environ, event_options
from perfgate.cli.options import language_option


@click.command("publish")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the comment and post nothing.")
@click.option(
    "--token-env", metavar="NAME", help="The environment variable with the token, where it is an unusual one."
)
@click.option("--key", metavar="NAME", default="default", help="Tells several gates on one repository apart.")
@event_options
@language_option
def COMMAND(  # noqa: N802 - what main looks for
    folder: Path, dry_run: bool, token_env: Optional[str], key: str, language: Optional[str]
) -> None:
    """Judge the check folder DIR again; post or update the comment on its change request, and set the commit status.

    Runs in a CI job of its own, which has the token and never runs code of the change. DIR is what
    `perfgate check --out DIR` wrote. The policy comes from perfgate.toml of the directory this runs in, if there is
    one. Without a token the comment is printed. The exit code is that of the verdict.

    GitHub, GitLab and Gitea Actions say themselves which change request it is. On another CI (Jenkins before Gitee or
    GitCode, say) give --forge, --repository, --head-sha, --run and --change-request, or their variables, here and to
    `perfgate check`.
    """
    from perfgate.config import report_language
    from perfgate.flows.publish import Doors, PublishRequest, publish

    root = Path.cwd()
    request = PublishRequest(
        folder=folder,
        root=root,
        key=key,
        dry_run=dry_run,
        token_variable=token_env,
        language=report_language(language, root),
    )
    doors = Doors(environ=event_environ(), say=click.echo, sleep=time.sleep, clock=time.time)
    raise SystemExit(publish(request, doors))
