"""Commits that the job's clone lacks, fetched from the forge into a scratch repository.

So the job's clone stays as it is, may be of any branch and may be missing altogether.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from perfgate.errors import RepositoryError
from perfgate.git.commands import exchange_with_git
from perfgate.git.settings import alone_in, as_environment, authorization, password_of
from perfgate.judging.forge.url import is_loopback
from perfgate.judging.store.store import GitAccess

FETCH_SECONDS = 300.0


@contextmanager
def fetched(commits: Sequence[str], access: GitAccess) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Fetch commits without their history, their files left on the server until they are read.

    Yields the scratch repository and the environment that git needs there. Raises RepositoryError where one cannot be had.
    """
    with tempfile.TemporaryDirectory(prefix="perfgate-fetched-") as folder:
        scratch = Path(folder)
        environ = {**_settings(access), **alone_in(scratch)}
        git_output(scratch, ["init", "--quiet", "--bare", "--template=", "."], environ)
        git_output(scratch, ["remote", "add", "origin", access.repository], environ)
        fetch = ["fetch", "--quiet", "--no-tags", "--depth=1", "--filter=blob:none", "origin", *commits]
        try:
            git_output(scratch, fetch, environ)
        except RepositoryError as error:
            names = " and ".join(commit[:12] for commit in commits)
            raise RepositoryError(
                f"the commit {names} could not be fetched ({error}); give the job read permission for the "
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


def git_output(folder: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what a git command prints. Raises RepositoryError with its complaint where it fails."""
    return git_bytes(folder, arguments, environ).decode(errors="surrogateescape").rstrip("\n")


def git_bytes(folder: Path, arguments: Sequence[str], environ: Mapping[str, str], *, feed: bytes = b"") -> bytes:
    """Return what a git command prints that is given ``feed``, to the byte. Raises RepositoryError as ``git_output`` does."""
    done = exchange_with_git(folder, arguments, environ, feed=feed, limit_seconds=FETCH_SECONDS)
    if done.code:
        raise RepositoryError(f"git {arguments[0]}: {done.errors[:300] or f'exit code {done.code}'}")
    return done.output
