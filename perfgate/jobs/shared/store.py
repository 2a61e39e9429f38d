"""Open the store of a project: one that lies in a branch is reached, in a CI job, with the job's own address and token."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from perfgate.config import Config
from perfgate.errors import StoreError
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import CiEvent, find_token
from perfgate.judging.store.remote import PREFIX, REMOTE_VARIABLE
from perfgate.judging.store.store import GitAccess, Place, Store, open_location, store_location

TOKEN_VARIABLE = "PERFGATE_TOKEN"  # noqa: S105 - the name of the variable
# Whose password a token is (docs.github.com, "Authenticating as a GitHub App installation"; docs.gitlab.com, "Project access
# tokens": any name will do there, and GitLab writes oauth2).
_USERS = {"github": "x-access-token"}
_ANY_USER = "oauth2"


def open_project_store(config: Config, environ: Mapping[str, str]) -> Store:
    """Return the store of a project; nothing is opened before its first use. Raises StoreError for a strange place."""
    return open_store_at(store_location(config, environ), config, environ)


def open_store_at(location: str, config: Config, environ: Mapping[str, str]) -> Store:
    """Return the store at a location, as the command line may name another one than the project's."""
    access = _access_of_job(environ) if location.startswith(PREFIX) else None
    return open_location(location, Place(config.root, environ, access))


def git_access(event: CiEvent, token: str) -> GitAccess:
    """Return how the job of an event reaches its git server."""
    return GitAccess(
        server=event.server_url,
        repository=f"{event.server_url}/{event.repository}.git",
        user=_USERS.get(event.forge, _ANY_USER),
        token=token,
        ca_file=event.ca_file,
    )


def _access_of_job(environ: Mapping[str, str]) -> GitAccess | None:
    """Return how this CI job reaches its git server; None where it is none.

    Where the forge says nothing of the job, PERFGATE_STORE_REMOTE names the repository that PERFGATE_TOKEN is for.
    """
    event = detect(environ)
    if event is not None:
        return git_access(event, find_token(event.forge, environ) or "")
    given = environ.get(REMOTE_VARIABLE, "")
    if environ.get(TOKEN_VARIABLE) and given.startswith(("https://", "http://")):
        return GitAccess(_server(given), given, _ANY_USER, environ[TOKEN_VARIABLE])
    return None


def _server(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    except ValueError as error:
        raise StoreError(f"{REMOTE_VARIABLE} is no address of a repository: {error}") from None
