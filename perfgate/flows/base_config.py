"""perfgate.toml of a commit that the change cannot have written, read from git objects: nothing is checked out.

The objects come from the clone that the job runs in, or else, one commit without its files, from the forge into a scratch
repository: so the job's clone stays as it is, may be of any branch and may be missing altogether.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Optional

from perfgate.config import CONFIG_NAME, Config, parse_config
from perfgate.errors import ConfigError, RepositoryError
from perfgate.flows.clone import has_commit, prefix_of
from perfgate.git import run_git
from perfgate.git_settings import alone_in, as_environment, authorization, password_of
from perfgate.judging.forge.url import is_loopback
from perfgate.judging.store.store import GitAccess

FETCH_SECONDS = 300.0


class BaseConfig(NamedTuple):
    """The perfgate.toml of a commit: None where it has none, or where it cannot be read, and then why."""

    config: Optional[Config] = None
    unreadable: Optional[str] = None


def config_at(root: Path, commit: str, access: Optional[GitAccess]) -> BaseConfig:
    """Return the configuration that a commit has for the folder ``root``.

    Raises RepositoryError where the commit is neither in the clone around ``root`` nor can be fetched.
    """
    path = prefix_of(root) + CONFIG_NAME
    if has_commit(root, commit):
        return _read(root, commit, path, {}, root)
    if access is None:
        raise RepositoryError(f"the commit {commit[:12]} is not in the clone at {root}; fetch it first")
    with _fetched(commit, access) as (scratch, environ):
        return _read(scratch, commit, path, environ, root)


@contextmanager
def _fetched(commit: str, access: GitAccess) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Fetch one commit, its files left on the server until they are read."""
    with tempfile.TemporaryDirectory(prefix="perfgate-base-") as folder:
        scratch = Path(folder)
        environ = {**_settings(access), **alone_in(scratch)}
        _git(scratch, ["init", "--quiet", "--bare", "--template=", "."], environ)
        _git(scratch, ["remote", "add", "origin", access.repository], environ)
        fetch = ["fetch", "--quiet", "--no-tags", "--depth=1", "--filter=blob:none", "origin", commit]
        try:
            _git(scratch, fetch, environ)
        except RepositoryError as error:
            raise RepositoryError(
                f"the commit {commit[:12]} could not be fetched ({error}); give the job read permission for the "
                "repository's contents, or check the commit out before"
            ) from None
        yield scratch, environ


def _settings(access: GitAccess) -> dict[str, str]:
    """Return the environment that lets git, and only git, speak to this one repository with the token."""
    url = access.repository
    settings = [
        # For addresses below this one only; an empty value first takes back what a checkout action left.
        (f"http.{url}.extraHeader", ""),
        (f"http.{url}.extraHeader", authorization(password_of(access.user, access.token))),
        ("http.followRedirects", "false"),
        ("credential.helper", ""),
        ("protocol.allow", "never"),
        ("protocol.https.allow", "always"),
    ]
    if is_loopback(url):
        # A token is not sent in the clear, but on this machine, and then past the proxy of the environment.
        settings += [("protocol.http.allow", "always"), ("http.proxy", "")]
    if access.ca_file:
        settings.append((f"http.{url}.sslCAInfo", access.ca_file))
    return {"GIT_ASKPASS": "", "SSH_ASKPASS": "", **as_environment(settings)}


def _read(repository: Path, commit: str, path: str, environ: Mapping[str, str], root: Path) -> BaseConfig:
    if not _git(repository, ["ls-tree", "--full-tree", commit, "--", path], environ):
        return BaseConfig()
    text = _git(repository, ["show", "--end-of-options", f"{commit}:{path}"], environ)
    try:
        return BaseConfig(parse_config(text, root / CONFIG_NAME))
    except ConfigError as error:
        return BaseConfig(unreadable=str(error).replace(f"{root}/", ""))


def _git(folder: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    done = run_git(folder, arguments, environ, limit_seconds=FETCH_SECONDS)
    if done.code:
        raise RepositoryError(f"git {arguments[0]}: {done.errors[:300] or f'exit code {done.code}'}")
    return done.output
