"""Isolation from the workers: before they start, tokens leave the environment and this process is closed to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click

from perfgate.cli.streams import make_streams_harmless
from perfgate.locale import sentence


class CommandProcess:
    """The process of a command, passed by ``main``; it can be restarted with another environment."""

    def replace(self, environ: Mapping[str, str]) -> NoReturn:
        """Replace this process by the same program with another environment.

        The initial environment of a process stays readable in /proc until it ends, even after variables are unset.
        """
        command = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, command, dict(environ))  # noqa: S606


def drop_secrets(
    clone: Path | None = None, *, allow_token: bool, keep_outside_ci: bool = False
) -> None:
    """Refuse tokens in CI, elsewhere remove them from the environment; then close this process to the workers.

    On a developer's machine the parent shell has the token too, so refusing would not protect it there, and a command that
    posts after measuring may keep it.
    """
    from perfgate.conductor.workers.environment import (
        drop_secrets,
        find_secrets,
        in_ci,
        refuse_persisted_token,
        refuse_tokens,
    )
    from perfgate.system.processes import be_closed

    secrets = find_secrets(os.environ)
    if in_ci(os.environ) and not allow_token:
        refuse_tokens(secrets)
        if clone is not None:
            refuse_persisted_token(clone)
    if secrets.names and not (keep_outside_ci and not in_ci(os.environ)):
        if in_ci(os.environ):
            click.echo(
                sentence(
                    "removed from the environment before anything is measured: {names}",
                    names=", ".join(secrets.names),
                ),
                err=True,
            )
        program = click.get_current_context().find_object(CommandProcess)
        if program is not None:
            program.replace(drop_secrets(os.environ, secrets))
        for name in secrets.names:
            del os.environ[name]
    be_closed()
    make_streams_harmless(os.environ)
