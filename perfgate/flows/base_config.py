"""perfgate.toml of a commit that the change cannot have written, read from git objects: nothing is checked out.

The objects come from the clone that the job runs in, or else, one commit without its files, from the forge into a scratch
repository: so the job's clone stays as it is, may be of any branch and may be missing altogether.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

from perfgate.config import CONFIG_NAME, Config, parse_config
from perfgate.errors import ConfigError, RepositoryError
from perfgate.git import run_git
from perfgate.judging.forge.url import is_loopback

FETCH_SECONDS = 300.0
# Neither a configuration, a credential helper nor a .netrc that an earlier job left on the machine has a say where a token is.
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_PARAMETERS": ""}


@dataclass(frozen=True)
class Origin:
    """Where a missing commit is fetched from. The token goes to git in its environment, where no other user can read it."""

    url: str
    token: str
    ca_file: Optional[str] = None

    def settings(self) -> dict[str, str]:
        """Return the environment that lets git, and only git, speak to this one server with the token."""
        basic = base64.b64encode(f"x-access-token:{self.token}".encode()).decode()
        settings = {
            # For addresses below this one only; an empty value first takes back what a checkout action left.
            f"http.{self.url}.extraHeader": ["", f"Authorization: Basic {basic}"],
            "http.followRedirects": ["false"],
            "credential.helper": [""],
            "protocol.allow": ["never"],
            "protocol.https.allow": ["always"],
            # A token is not sent in the clear, but on this machine, and then past the proxy of the environment.
            **({"protocol.http.allow": ["always"], "http.proxy": [""]} if is_loopback(self.url) else {}),
            **({f"http.{self.url}.sslCAInfo": [self.ca_file]} if self.ca_file else {}),
        }
        pairs = [(name, value) for name, values in settings.items() for value in values]
        numbered = {
            f"GIT_CONFIG_{part}_{number}": text
            for number, pair in enumerate(pairs)
            for part, text in zip(("KEY", "VALUE"), pair)
        }
        return {"GIT_CONFIG_COUNT": str(len(pairs)), "GIT_ASKPASS": "", "SSH_ASKPASS": "", **numbered}


class BaseConfig(NamedTuple):
    """The perfgate.toml of a commit: None where it has none, or where it cannot be read, and then why."""

    config: Optional[Config] = None
    unreadable: Optional[str] = None


def config_at(root: Path, commit: str, origin: Optional[Origin]) -> BaseConfig:
    """Return the configuration that a commit has for the folder ``root``.

    Raises RepositoryError where the commit is neither in the clone around ``root`` nor can be fetched.
    """
    path = prefix_of(root) + CONFIG_NAME
    if has_commit(root, commit):
        return _read(root, commit, path, {}, root)
    if origin is None:
        raise RepositoryError(f"the commit {commit[:12]} is not in the clone at {root}; fetch it first")
    with _fetched(commit, origin) as (scratch, environ):
        return _read(scratch, commit, path, environ, root)


def has_commit(root: Path, commit: str) -> bool:
    """Return whether the clone around a folder has a commit, without asking any server."""
    return run_git(root, ["cat-file", "-e", f"{commit}^{{commit}}"], {"GIT_NO_LAZY_FETCH": "1"}).code == 0


def merge_base(root: Path, one: str, other: str) -> Optional[str]:
    """Return the common ancestor that the clone around a folder knows; None where it does not know enough."""
    if run_git(root, ["rev-parse", "--is-shallow-repository"], {}).output != "false":
        return None
    commits = [_known_as(root, name) for name in (one, other)]
    done = run_git(root, ["merge-base", *commits], {"GIT_NO_LAZY_FETCH": "1"}) if all(commits) else None
    return done.output if done and done.code == 0 else None


def files_between(root: Path, base: str, head: str) -> Optional[list[str]]:
    """Return the paths that differ between two commits of the clone, counted from where they parted; None without them."""
    if not (has_commit(root, base) and has_commit(root, head)):
        return None
    done = run_git(root, ["diff", "--name-only", "-z", "--no-renames", f"{base}...{head}", "--"], {})
    return [name for name in done.output.split("\0") if name] if done.code == 0 else None


def is_behind(root: Path, commit: str) -> bool:
    """Return whether a commit is that which the clone has checked out, or one before it."""
    return run_git(root, ["merge-base", "--is-ancestor", commit, "HEAD"], {"GIT_NO_LAZY_FETCH": "1"}).code == 0


def _known_as(root: Path, name: str) -> str:
    """Return the commit of a name: itself, or the branch as it was fetched; empty where the clone has none."""
    for revision in (f"refs/remotes/origin/{name}", name):
        found = run_git(root, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"], {})
        if found.code == 0:
            return found.output
    return ""


def prefix_of(root: Path) -> str:
    """Return where a folder lies in its clone, empty or with a slash at the end; outside a clone it is the root."""
    return run_git(root, ["rev-parse", "--show-prefix"], {}).output


@contextmanager
def _fetched(commit: str, origin: Origin) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Fetch one commit, its files left on the server until they are read."""
    with tempfile.TemporaryDirectory(prefix="perfgate-base-") as folder:
        scratch = Path(folder)
        environ = {**origin.settings(), **_ALONE, "HOME": folder, "XDG_CONFIG_HOME": folder}
        _git(scratch, ["init", "--quiet", "--bare", "."], {})
        _git(scratch, ["remote", "add", "origin", origin.url], {})
        fetch = ["fetch", "--quiet", "--no-tags", "--depth=1", "--filter=blob:none", "origin", commit]
        try:
            _git(scratch, fetch, environ)
        except RepositoryError as error:
            raise RepositoryError(
                f"the commit {commit[:12]} could not be fetched ({error}); give the job read permission for the "
                "repository's contents, or check the commit out before"
            ) from None
        yield scratch, environ


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
