"""Settings passed to git through its environment, so that they are in no file and in no
argument visible to other users.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableMapping
from pathlib import Path

# No configuration file of the user or the machine is read.
NO_FILES = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
# Variables that tie git to one clone (git rev-parse --local-env-vars), without a user's
# own `git -c` settings.
_TIES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INTERNAL_SUPER_PREFIX",
)


def untie(environ: MutableMapping[str, str]) -> None:
    """Remove variables from an environment that tie git to the clone of a calling hook.

    The command line does this once, before anything else: GitPython gives every command
    the environment of the process, and `worktree add` would write the caller's index
    through GIT_INDEX_FILE.
    """
    for name in _TIES:
        environ.pop(name, None)


def alone_in(home: Path) -> dict[str, str]:
    """The environment that ignores all configuration, credential helpers and .netrc
    files of the machine.

    ``home`` is an empty folder of ours.
    """
    return {
        **NO_FILES,
        "GIT_CONFIG_PARAMETERS": "",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
    }


def as_environment(
    settings: Iterable[tuple[str, str]], *, first: int = 0
) -> dict[str, str]:
    """Settings as git reads them from its environment, numbered from ``first``
    (git-config, GIT_CONFIG_COUNT).
    """
    environ = {}
    count = first
    for name, value in settings:
        environ[f"GIT_CONFIG_KEY_{count}"] = name
        environ[f"GIT_CONFIG_VALUE_{count}"] = value
        count += 1
    return {**environ, "GIT_CONFIG_COUNT": str(count)}


def password_of(user: str, token: str) -> str:
    # here, because the command line imports this module before it parses its arguments
    import base64

    return base64.b64encode(f"{user}:{token}".encode()).decode()


def authorization(password: str) -> str:
    """The header that authorizes a request with the value of ``password_of``."""
    return f"Authorization: Basic {password}"
