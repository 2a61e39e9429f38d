"""The lock file that CI installs from, resolved by uv: every package that the workload
needs, at the version installed here.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from perfgate.errors import UsageError
from perfgate.flows.init.installed import local_path, project_distribution, read_origin
from perfgate.flows.init.project import Declared
from perfgate.flows.init.uv import compile_requirements, pip_indexes

LOCK = "perf/requirements.txt"
HEADER = "# Written by `perfgate init`; `perfgate init --lock` writes it anew."
# The version that perfgate's own tests run with; used if torch is not installed here.
TORCH = "2.13.0"
# Builds of torch and its companions that the public index does not have (pytorch.org,
# "Start locally").
_TORCH_INDEX = "https://download.pytorch.org/whl/{build}"
_TORCH_BUILD = re.compile(r"cpu|xpu|cu\d+|rocm\d+(?:\.\d+)*")
# The first line of a package in the output of uv; its hashes follow, indented.
_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9][\w.-]*)(?:==| @ )(?P<source>\S+)", re.MULTILINE
)
_HASH = re.compile(r" \\\n    --hash=\S+")


class _Installed(NamedTuple):
    """An installed distribution and its version."""

    distribution: importlib.metadata.Distribution
    version: str


@dataclass(frozen=True)
class Lock:
    """The text of the lock file.

    ``left_out`` are conda packages missing from it; ``unhashed`` is the package because
    of which it has no hashes, empty if it has them.
    """

    text: str
    left_out: Sequence[str] = ()
    unhashed: str = ""

    @property
    def names(self) -> set[str]:
        """The canonical names of the packages."""
        return {str(canonicalize_name(pin["name"])) for pin in _PIN.finditer(self.text)}

    @property
    def brings_cuda(self) -> bool:
        """Whether CI downloads the libraries of CUDA, gigabytes, for a runner that has
        no GPU.
        """
        return any(name.startswith("nvidia-") for name in self.names)


def lock_project(
    declared: Declared, folder: Path, *, python: str, imported: Iterable[str] = ()
) -> Lock:
    """Pin the declared requirements, torch, the distributions that the workload
    imports, and all their dependencies.

    ``python`` is the version that CI runs. Raises UsageError without uv, and if uv
    finds no versions that CI could install.
    """
    conda = [name for name in declared.conda if _installed(name)]
    torch = "torch" if _installed("torch") else f"torch=={TORCH}"
    roots = [*declared.requirements, *conda, torch, *sorted(imported)]
    installed = _distributions()
    torch_indexes = _torch_indexes(installed)
    indexes = list(dict.fromkeys([*declared.indexes, *torch_indexes]))
    # An index of torch may be out of reach here: where pip has configured indexes, they
    # decide.
    servers = [*declared.indexes, *(pip_indexes() or torch_indexes)]
    # The version of each, or the address that it was installed from (PEP 610).
    versions: list[str] = []
    for name, (distribution, version) in installed.items():
        if name != "perfgate":  # CI installs its commit separately
            address = _address(distribution)
            versions.append(f"{name} @ {address}" if address else f"{name}=={version}")
    pins = compile_requirements(
        [*servers, *roots],
        declared.files,
        folder,
        python=python,
        versions=versions,
        hidden=["perfgate", *_project_names(folder)],
    )
    unhashed = ""
    for pin in _PIN.finditer(pins):
        if pin["source"].startswith("file:"):
            raise UsageError(
                "{name} is installed from {source}, a folder that CI does not have; if it is in this repository, name it "
                "in [measure] python_path and uninstall it here, else give CI's install command with --setup",
                name=pin["name"],
                source=local_path(pin["source"]),
            )
        if not _HASH.match(pins, pin.end()):
            unhashed = unhashed or pin["name"]
    if unhashed:  # pip wants a hash for every package or for none
        pins = _HASH.sub("", pins)
    text = "\n".join([HEADER, *indexes, pins])
    left_out = [name for name in declared.conda if name not in conda]
    return Lock(text, left_out, unhashed)


def missing_in(lock: Lock, packages: Iterable[str], folder: Path) -> set[str]:
    """The distributions that a lock file lacks, except the project in ``folder``,
    perfgate and perfgate's dependencies.
    """
    own: set[str] = set()
    waiting = ["perfgate"]
    while waiting:
        current = str(canonicalize_name(waiting.pop()))
        distribution = _installed(current)
        if current in own or distribution is None:
            continue
        own.add(current)
        for text in distribution.requires or []:
            with suppress(InvalidRequirement):  # a line of old metadata
                waiting.append(Requirement(text).name)
    names = {*lock.names, *own, *_project_names(folder)}
    return {str(canonicalize_name(name)) for name in packages} - names


def _installed(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _project_names(folder: Path) -> list[str]:
    """The name of the project if it is installed here: CI measures its checkout, not
    the installed copy.
    """
    project = project_distribution(folder)
    if project:
        return [str(canonicalize_name(project.name))]
    return []


def _distributions() -> Mapping[str, _Installed]:
    """The installed distributions by canonical name; as in an import, the first on the
    path counts.
    """
    distributions: dict[str, _Installed] = {}
    for distribution in importlib.metadata.distributions():
        # Read name and version at once and no further: ``Distribution`` parses the
        # whole description anew for each of them.
        text = ""
        for file in ("METADATA", "PKG-INFO", ""):  # as importlib.metadata does
            text = text or distribution.read_text(file) or ""
        headers = HeaderParser().parsestr(text.partition("\n\n")[0])
        name, version = headers["Name"] or "", headers["Version"] or ""
        if name:  # else the remains of an interrupted uninstallation
            distributions.setdefault(
                str(canonicalize_name(name)), _Installed(distribution, version)
            )
    return distributions


def _address(distribution: importlib.metadata.Distribution) -> str:
    """The folder, commit or archive that a distribution was installed from; empty if it
    came from an index.
    """
    origin = read_origin(distribution)
    url = origin.url
    if origin.dir_info is not None:
        return url
    if origin.vcs_info:
        return f"{origin.vcs_info.vcs}+{url}@{origin.vcs_info.commit_id}"
    if origin.archive_info and not url.startswith(
        "file:"
    ):  # else a wheel downloaded from an index
        digest = origin.archive_info.hashes.get("sha256")
        if digest:
            return f"{url}#sha256={digest}"
        return url
    return ""


def _torch_indexes(installed: Mapping[str, _Installed]) -> list[str]:
    """The options for the indexes of installed builds such as 2.9.1+cpu; the CPU builds
    if torch is not installed.
    """
    builds: dict[str, None] = {}
    if "torch" not in installed:
        builds["cpu"] = None
    for _, version in installed.values():
        _, _, local = version.partition("+")
        if _TORCH_BUILD.fullmatch(local):
            builds[local] = None
    return [f"--extra-index-url {_TORCH_INDEX.format(build=build)}" for build in builds]
