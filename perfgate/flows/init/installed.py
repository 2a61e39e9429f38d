"""The source of an installation: perfgate's commit for CI, and the project as pip
installed it.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from perfgate.errors import UsageError
from perfgate.git.commands import run_git
from perfgate.locale import Activity

_ACTION = re.compile(r"([\w.-]+(?:/[\w.-]+)+)@([0-9a-f]{40})")
# A URL with a scheme, or git's short form for ssh (`git@host:path`). The part before
# the host may be a token.
_URL = re.compile(r"(?:https?|ssh|git)://(?:[^@/]*@)?([^:/]+)(?::\d+)?/(.+)")
_SHORT = re.compile(r"(?:[^@/:]+@)?([^:/]+):(?!/)(.+)")


class OriginCommit(msgspec.Struct, frozen=True):
    """``vcs_info`` of PEP 610."""

    vcs: str
    commit_id: str


class OriginArchive(msgspec.Struct, frozen=True):
    """``archive_info`` of PEP 610."""

    hashes: dict[str, str] = {}


class InstallationOrigin(msgspec.Struct, frozen=True):
    """The repository, folder or archive that a distribution was installed from (PEP
    610).
    """

    url: str = ""
    vcs_info: OriginCommit | None = None
    dir_info: dict[str, Any] | None = None
    archive_info: OriginArchive | None = None


@dataclass(frozen=True)
class Revision:
    """A commit of the repository ``path`` on the server ``host``."""

    host: str
    path: str
    commit: str

    @property
    def package(self) -> str:
        return f"git+https://{self.host}/{self.path}@{self.commit}"

    def plugin(self, name: str) -> str:
        """The requirement of a package in ``plugins/`` at the commit."""
        return f"{name} @ {self.package}#subdirectory=plugins/{name}"

    def file_address(self, file: str) -> str:
        """The URL of a file at the commit; empty if the server's URL scheme is unknown."""
        if self.host == "github.com":
            return f"https://raw.githubusercontent.com/{self.path}/{self.commit}/{file}"
        if "gitlab" in self.host:
            return f"https://{self.host}/{self.path}/-/raw/{self.commit}/{file}"
        return ""


def named_revision(action: str, host: str) -> Revision:
    """The commit that ``OWNER/REPO@COMMIT`` names on a server.

    Raises UsageError for anything else.
    """
    match = _ACTION.fullmatch(action)
    if match is None:
        raise UsageError(
            "--action must read OWNER/REPO@COMMIT, with the 40 digits of a commit, found {action!r}",
            action=action,
        )
    return Revision(host, match[1], match[2])


def installed_revision() -> Revision:
    """The commit that the running perfgate was installed from, as pip records it (PEP
    610).

    Raises UsageError if CI could not fetch that source, or if it is not a commit.
    """
    origin = read_origin(importlib.metadata.distribution("perfgate"))
    if origin.vcs_info:
        return _at(origin.url, origin.vcs_info.commit_id)
    if origin.dir_info is not None:
        return _checked_out(local_path(origin.url))
    raise UsageError(
        "perfgate was not installed from a repository, so {remedy}",
        remedy=remedy(),
    )


def read_origin(distribution: importlib.metadata.Distribution) -> InstallationOrigin:
    """The record of what pip installed a distribution from (PEP 610); without a URL if
    it was an index.
    """
    text = distribution.read_text("direct_url.json")
    if text:
        return msgspec.json.decode(text, type=InstallationOrigin)
    return InstallationOrigin()


def local_path(url: str) -> Path:
    """The path of a file: URL."""
    return Path(unquote(urlsplit(url).path))


def project_distribution(folder: Path) -> importlib.metadata.Distribution | None:
    """The project in ``folder`` as pip installed it from there; None if it did not."""
    for distribution in importlib.metadata.distributions():
        origin = read_origin(distribution)
        if (
            origin.dir_info is not None
            and local_path(origin.url).resolve() == folder.resolve()
        ):
            return distribution
    return None


def remedy(commit: str = "COMMIT") -> Activity:
    """The next step for the user if CI could not install this exact perfgate."""
    return Activity(
        "name the commit that CI shall run: --action OWNER/REPO@{commit}, in perfgate's repository on the same server",
        commit=commit,
    )


def address(url: str) -> tuple[str, str] | None:
    """The server and path in a repository's URL; None for a path on this machine."""
    match = _URL.fullmatch(url) or _SHORT.fullmatch(url)
    if match:
        return (match[1].lower(), match[2].strip("/").removesuffix(".git"))
    return None


def _checked_out(folder: Path) -> Revision:
    if not folder.is_dir():
        raise UsageError(
            "perfgate was installed from {folder}, which is gone, so {remedy}",
            folder=folder,
            remedy=remedy(),
        )
    origin = run_git(folder, ["remote", "get-url", "origin"], {})
    commit = run_git(folder, ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], {})
    if origin.code or commit.code:
        raise UsageError(
            "perfgate was installed from {folder}, which is not a clone of a server's repository, so {remedy}",
            folder=folder,
            remedy=remedy(),
        )
    if not run_git(
        folder, ["branch", "--remotes", "--contains", commit.output], {}
    ).output:
        raise UsageError(
            "perfgate was installed from {folder}, whose commit {output} is in no branch of its origin: push "
            "it, or {remedy}",
            folder=folder,
            output=commit.output[:12],
            remedy=remedy(),
        )
    if address(origin.output) is None:
        raise UsageError(
            "perfgate was installed from {folder}, whose origin {output!a} is on no server, so {remedy}: "
            "push the clone there before CI runs",
            folder=folder,
            output=origin.output,
            remedy=remedy(commit.output),
        )
    return _at(origin.output, commit.output)


def _at(url: str, commit: str) -> Revision:
    place = address(url)
    if place is None:
        raise UsageError(
            "perfgate was installed from {url}, which is on no server, so {remedy}",
            url=url,
            remedy=remedy(),
        )
    return Revision(*place, commit)
