"""perfgate.toml of a commit that the change cannot have written, read from git objects: nothing is checked out.

The objects come from the clone that the job runs in, or else from the forge (``jobs/shared/fetched.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from perfgate.config import CONFIG_NAME, Config, parse_config
from perfgate.errors import ConfigError, RepositoryError
from perfgate.git.clone import has_commit, prefix_of
from perfgate.jobs.shared.fetched import fetched, git_output
from perfgate.judging.store.store import GitAccess


class BaseConfig(NamedTuple):
    """The perfgate.toml of a commit: None where it has none, or where it cannot be read, and then why."""

    config: Config | None = None
    unreadable: str | None = None


def config_at(root: Path, commit: str, access: GitAccess | None) -> BaseConfig:
    """Return the configuration that a commit has for the folder ``root``.

    Raises RepositoryError where the commit is neither in the clone around ``root`` nor can be fetched.
    """
    path = prefix_of(root) + CONFIG_NAME
    if has_commit(root, commit):
        return _read(root, commit, path, {}, root)
    if access is None:
        raise RepositoryError(f"the commit {commit[:12]} is not in the clone at {root}; fetch it first")
    with fetched([commit], access) as (scratch, environ):
        return _read(scratch, commit, path, environ, root)


def _read(repository: Path, commit: str, path: str, environ: Mapping[str, str], root: Path) -> BaseConfig:
    if not git_output(repository, ["ls-tree", "--full-tree", commit, "--", path], environ):
        return BaseConfig()
    text = git_output(repository, ["show", "--end-of-options", f"{commit}:{path}"], environ)
    try:
        return BaseConfig(parse_config(text, root / CONFIG_NAME))
    except ConfigError as error:
        return BaseConfig(unreadable=str(error).replace(f"{root}/", ""))
