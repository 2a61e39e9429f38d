"""The git repository of a branch store, and the access to it: no prompt, no redirect, a
token for one server only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from perfgate.errors import RepositoryError, StoreError
from perfgate.git.commands import run_git
from perfgate.git.settings import (
    NO_FILES,
    alone_in,
    as_environment,
    authorization,
    password_of,
)
from perfgate.judging.store.store import GitAccess, StorePlace, shown_location
from perfgate.locale import Activity
from perfgate.system.loopback import is_loopback_host

PREFIX = "branch://"
REMOTE_VARIABLE = "PERFGATE_STORE_REMOTE"
# The remote's name in our scratch clone.
REMOTE = "store"

_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}")
_REMOTE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
# host:path and user@host:path, ssh's short form (git-fetch, "GIT URLS").
_SCP_LIKE = re.compile(r"(?:[^/@]+@)?([^/:@]+):(?!/{0,1}$)")
_USERINFO = re.compile(r"(?<=//)[^/@\s]+(?=@)")
# Excludes "ext::": git would run the command in such an address, and the address may
# come from others.
_PROTOCOLS = "file:git:http:https:ssh"


@dataclass(frozen=True)
class RemoteBranch:
    """A branch of a repository: its address, its name in messages, and the git settings
    for access.

    ``settings`` are git's configuration, ``environ`` its environment; with a token git
    reads only our configuration.
    """

    branch: str
    url: str = field(repr=False)
    shown: str
    settings: tuple[tuple[str, str], ...] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    isolated: bool = False
    hint: str = ""

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def name(self) -> str:
        return f"the branch {self.branch} of {self.shown}"

    def environment(self, scratch: Path) -> dict[str, str]:
        """The additions to git's inherited environment; settings are passed in no file
        and no argument.
        """
        settings = (*_SETTINGS, (f"remote.{REMOTE}.url", self.url), *self.settings)
        if self.isolated:
            return {**self.environ, **alone_in(scratch), **as_environment(settings)}
        first, inherited = 0, os.environ.get("GIT_CONFIG_COUNT", "")
        if inherited.isdecimal():
            first = int(inherited)
        return {**self.environ, **as_environment(settings, first=first)}

    def scrub(self, text: str) -> str:
        """Remove the secrets from a text printed by git."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return _USERINFO.sub("***", text)


_SETTINGS = (
    # A partial clone: unneeded content, above all the documents, is not fetched.
    (f"remote.{REMOTE}.promisor", "true"),
    # Older versions do not serve objects by their id (git-config,
    # uploadpack.allowAnySHA1InWant).
    ("protocol.version", "2"),
    ("http.followRedirects", "false"),
    # Abort a connection below 1 kB/s for half a minute.
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "30"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("push.gpgSign", "false"),
    ("push.recurseSubmodules", "no"),
    ("fetch.recurseSubmodules", "no"),
)
_ENVIRON = {
    "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
    # An empty value is never run, and hides SSH_ASKPASS and core.askPass (git,
    # prompt.c).
    "GIT_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_TRACE_REDACT": "1",
}


def parse_location(location: str) -> tuple[str, str | None]:
    """The branch and the remote, if it is named, of ``branch://NAME?remote=REMOTE``.

    Raises StoreError for a name that git would refuse.
    """
    name, _, query = location.removeprefix(PREFIX).partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    remote = options.pop("remote", None)
    strange = (
        ".." in name
        or "//" in name
        or "/." in name
        or name.endswith((".lock", "/", "."))
    )
    if strange or not _BRANCH.fullmatch(name):
        raise StoreError(
            "{location!a} names no branch; write {prefix}NAME, e.g. {prefix}perfgate-data",
            location=shown_location(location),
            prefix=PREFIX,
        )
    if options or (remote is not None and not _REMOTE_NAME.fullmatch(remote)):
        raise StoreError(
            "{location!a}: only ?remote=NAME may follow, the name of a remote of the clone; an address is given by "
            "the environment variable {variable}",
            location=shown_location(location),
            variable=REMOTE_VARIABLE,
        )
    return name, remote


def find_link(branch: str, remote: str | None, place: StorePlace) -> RemoteBranch:
    """The repository of a branch, and the access to it.

    Raises StoreError if there is none.

    PERFGATE_STORE_REMOTE comes first, then the remote of the clone that the project
    lies in, then the repository that the CI job runs for.
    """
    access = place.access
    url = _address(branch, remote, place)
    if (
        access is not None
        and access.token
        and remote is None
        and _is_ssh_of(url, access.server)
    ):
        url = access.repository  # ssh cannot use a token
    settings: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    isolated, hint = False, ""
    if access is not None:
        settings = (
            ("credential.helper", ""),
        )  # the job must not use the credentials of the machine's owner
        if access.ca_file:
            settings += ((f"http.{access.server}/.sslCAInfo", access.ca_file),)
    if access is not None and access.token:
        if _origin(url) == _origin(access.server):
            header, secrets = _authorization(access)
            settings += ((f"http.{access.server}/.extraHeader", header),)
            parts = _split(url)
            url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
            isolated = True
        elif not (_is_path(url) or url.startswith("file://")):
            hint = Activity(
                "; the job's token is sent to {server} only", server=access.server
            )
    return RemoteBranch(
        branch=branch,
        url=url,
        shown=_USERINFO.sub("***", url),
        settings=settings,
        environ=_ENVIRON,
        secrets=secrets,
        isolated=isolated,
        hint=hint,
    )


def _address(branch: str, remote: str | None, place: StorePlace) -> str:
    url = place.environ.get(REMOTE_VARIABLE, "")
    if url:
        return _checked(url, Path.cwd(), REMOTE_VARIABLE)
    name = remote or "origin"
    # In a job with a token, the machine's settings (e.g. url.insteadOf) must not change
    # the address either.
    settings: Mapping[str, str] = {}
    if place.access is not None and place.access.token:
        settings = NO_FILES
    try:
        top = run_git(place.root, ["rev-parse", "--show-toplevel"], settings)
        address = run_git(place.root, ["remote", "get-url", name], settings)
    except (RepositoryError, OSError) as error:
        raise StoreError(
            "the store {prefix}{branch} cannot be found: {error}",
            prefix=PREFIX,
            branch=branch,
            error=error,
        ) from error
    if not top.code and not address.code and address.output:
        return _checked(
            address.output, Path(top.output), Activity("the remote {name}", name=name)
        )
    if place.access is not None and remote is None:
        return place.access.repository
    why = Activity("it has no remote {name!r}", name=name)
    if top.code:
        why = Activity(
            "it lies in no git clone that can be read ({error})", error=top.errors
        )
    raise StoreError(
        "the store {prefix}{branch} of {root} cannot be found: {why}; add one (git remote add {name} URL), or "
        "set {variable} to the address of the repository",
        prefix=PREFIX,
        branch=branch,
        root=place.root,
        why=why,
        name=name,
        variable=REMOTE_VARIABLE,
    )


def _checked(url: str, folder: Path, origin: str) -> str:
    if not url.isprintable() or url.startswith("-") or "::" in url.partition("/")[0]:
        raise StoreError(
            "{origin} is {address!a}, not the address of a repository",
            origin=origin,
            address=_USERINFO.sub("***", url)[:200],
        )
    if _is_path(url):
        return str((folder / url).resolve())
    return url


def _authorization(access: GitAccess) -> tuple[str, tuple[str, ...]]:
    token = access.token.strip()
    parts = _split(access.server)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise StoreError(
            "the token has characters no token has; check the secret the job passes on"
        )
    if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
        raise StoreError(
            "{server} is not https; a token is not sent in the clear",
            server=access.server,
        )
    password = password_of(access.user, token)
    return authorization(password), (token, password)


def _is_path(url: str) -> bool:
    return "://" not in url and not _SCP_LIKE.match(url)


def _is_ssh_of(url: str, server: str) -> bool:
    host = _split(server).hostname
    if "://" not in url:
        scp = _SCP_LIKE.match(url)
        return scp is not None and scp[1].lower() == host
    return url.startswith(("ssh://", "git+ssh://")) and _split(url).hostname == host


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    parts = _split(url)
    if parts.scheme not in ("http", "https"):
        return None
    return (
        parts.scheme,
        parts.hostname,
        parts.port or (443 if parts.scheme == "https" else 80),
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise StoreError(
            "{address!a} is not the address of a repository",
            address=_USERINFO.sub("***", url)[:200],
        ) from None
    return parts
