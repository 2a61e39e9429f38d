"""The lock file that CI installs from: every package that the workload needs, at the version installed here."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from perfgate.errors import UsageError
from perfgate.flows.init.index import find_hashes
from perfgate.flows.init.locked import Pin
from perfgate.flows.init.metadata import source_folder
from perfgate.flows.init.requirements import Declared
from perfgate.locale import Activity

LOCK = "perf/requirements.txt"
HEADER = "# Written by `perfgate init`; `perfgate init --lock` writes it anew."
# The version that perfgate's own tests run with; used if torch is not installed here.
TORCH = "torch==2.13.0"
_PINNED_URL = re.compile(r"@[0-9a-f]{40}\b|sha256=[0-9a-f]{64}")
# Builds of torch and its companions that the public index does not have (pytorch.org, "Start locally").
_TORCH_INDEX = "https://download.pytorch.org/whl/{build}"
_TORCH_BUILD = re.compile(r"cpu|xpu|cu\d+|rocm\d+(?:\.\d+)*")


@dataclass(frozen=True)
class Lock:
    """The lock file of the project in ``folder``, for CI's Python version ``python``.

    ``left_out`` are conda packages missing from it, ``absent`` those without which the workload ran here; ``unhashed`` is the
    reason for having no hashes, empty if it has them.
    """

    declared: Declared
    folder: Path
    python: str
    pins: Sequence[Pin]
    left_out: Sequence[str] = ()
    absent: Sequence[str] = ()
    unhashed: str = ""

    @property
    def brings_cuda(self) -> bool:
        """Whether CI downloads the libraries of CUDA, gigabytes, for a runner that has no GPU."""
        return any(pin.name.startswith("nvidia-") for pin in self.pins)

    @property
    def text(self) -> str:
        indexes = dict.fromkeys(f"--extra-index-url {pin.index}" for pin in self.pins if pin.index)
        lines = [HEADER, *dict.fromkeys([*self.declared.indexes, *indexes])]
        for pin in sorted(self.pins, key=lambda pin: pin.name):
            hashes = [] if self.unhashed else [f"    --hash={digest}" for digest in sorted(set(pin.hashes))]
            lines.append(" \\\n".join([pin.text, *hashes]))
        return "\n".join(lines) + "\n"


def lock_project(
    declared: Declared, folder: Path, *, python: str, imported: Iterable[str] = (), ran: bool = False
) -> Lock:
    """Pin the declared requirements, torch, the distributions that the workload imports, and all their dependencies.

    ``python`` is the version that CI runs. If the workload ``ran`` here, it needs nothing that is not installed. Raises
    UsageError for a package of unknown version.
    """
    conda = [name for name in declared.conda if _installed(name) or name in declared.locked]
    torch = TORCH.partition("==")[0]
    roots = [requirement for requirement in declared.requirements if _counts(requirement, "")]
    absent = [one.name for one in roots if ran and not _is_known(one, declared)]
    roots = [requirement for requirement in roots if requirement.name not in absent]
    roots += map(Requirement, [*conda, torch, *sorted(imported)])
    pins = _closure(roots, declared, folder)
    unhashed = _why_unhashed(pins, python)
    if not unhashed:
        hashes, complaint = find_hashes({(pin.name, pin.version, pin.index) for pin in pins if not pin.hashes})
        pins = [pin if pin.hashes else replace(pin, hashes=hashes.get(pin.name, ())) for pin in pins]
        missing = [pin.name for pin in pins if not pin.hashes]
        unhashed = complaint or (f"the index has no hash of {missing[0]}" if missing else "")
    left_out = [name for name in declared.conda if name not in conda]
    return Lock(declared, folder, python, pins, left_out, absent, unhashed)


def _is_known(requirement: Requirement, declared: Declared) -> bool:
    """Whether a requirement is installed, or its version stands in the project's own lock file."""
    name = canonicalize_name(requirement.name)
    return name in ("perfgate", TORCH.partition("==")[0], *declared.locked) or _installed(name) is not None


def missing_in(lock: Lock, packages: Iterable[str]) -> set[str]:
    """The distributions that a lock file lacks, except the project, perfgate and perfgate's dependencies."""
    known = {pin.name for pin in lock.pins} | _with_needed("perfgate")
    names = set(map(canonicalize_name, packages))
    return {name for name in names - known if not _is_project(name, lock.folder)}


def _with_needed(name: str) -> set[str]:
    """A distribution and its installed dependencies, direct and indirect."""
    seen: set[str] = set()
    waiting = [canonicalize_name(name)]
    while waiting:
        current = waiting.pop()
        if current not in seen and (installed := _installed(current)):
            seen.add(current)
            waiting += [canonicalize_name(other.name) for other in _needs(installed)]
    return seen


def _closure(roots: Sequence[Requirement], declared: Declared, folder: Path) -> list[Pin]:
    pins: dict[str, Pin] = {}
    waiting = [(requirement, True) for requirement in roots]
    while waiting:
        requirement, is_direct = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        if name in pins or name == "perfgate" or _is_project(name, folder):
            continue
        locked, installed = declared.locked.get(name), _installed(name)
        if requirement.url and _PINNED_URL.search(requirement.url):
            pins[name] = Pin(name, str(requirement), is_closed=installed is not None)
        elif installed:
            pins[name] = _pin_installed(name, installed, locked)
        elif locked:
            pins[name] = locked
        elif is_direct:
            pins[name] = _pin_unseen(requirement)
        if installed:
            waiting += [(other, False) for other in _needs(installed, requirement.extras)]
        elif locked:
            waiting += [(Requirement(other), False) for other in locked.needs]
    return list(pins.values())


def _needs(installed: importlib.metadata.Distribution, extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """The requirements of a distribution, with and without extras. Unreadable lines of old metadata are skipped."""
    for text in installed.requires or []:
        with suppress(InvalidRequirement):
            requirement = Requirement(text)
            if any(_counts(requirement, extra) for extra in ("", *extras)):
                yield requirement


def _installed(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_project(name: str, folder: Path) -> bool:
    """Whether a distribution is the project itself: CI measures its checkout, not the installed copy."""
    distribution = _installed(name)
    source = source_folder(distribution) if distribution else None
    return source is not None and source.resolve() == folder.resolve()


def _pin_installed(name: str, installed: importlib.metadata.Distribution, locked: Pin | None) -> Pin:
    if address := _address(name, installed):
        return Pin(name, f"{name} @ {address}")
    version = installed.version
    local = Version(version).local
    index, hashes = "", []
    if locked and locked.version == version:
        index, hashes = locked.index, list(locked.hashes)
    elif local and _TORCH_BUILD.fullmatch(local):
        index = _TORCH_INDEX.format(build=local)
    elif local:
        raise UsageError(
            "{name} {version} is a build of its own, which no index is known to have; {remedy}",
            name=name,
            version=version,
            remedy=_remedy(),
        )
    return Pin(name, f"{name}=={version}", version, index, hashes)


def _address(name: str, installed: importlib.metadata.Distribution) -> str:
    """The commit or archive that a distribution was installed from (PEP 610); empty if it came from an index."""
    text = installed.read_text("direct_url.json")
    record = json.loads(text) if text else {}
    if "dir_info" in record or str(record.get("url", "")).startswith("file:"):
        if "archive_info" in record:
            return ""  # a wheel downloaded from an index
        raise UsageError(
            "{name} is installed from {source}, a folder that CI does not have; if it is in this repository, name it "
            "in [measure] python_path and uninstall it here, else give CI's install command with --setup",
            name=name,
            source=source_folder(installed),
        )
    if "vcs_info" in record:
        return f"{record['vcs_info']['vcs']}+{record['url']}@{record['vcs_info']['commit_id']}"
    if "archive_info" in record:
        return str(record["url"]) + "".join(
            f"#{kind}={digest}" for kind, digest in record["archive_info"].get("hashes", {}).items() if kind == "sha256"
        )
    return ""


def _pin_unseen(requirement: Requirement) -> Pin:
    """The pin of a requirement that is not installed here."""
    name = canonicalize_name(requirement.name)
    pins = [specifier for specifier in requirement.specifier if specifier.operator in ("==", "===")]
    if pins and not pins[0].version.endswith("*"):
        return Pin(name, str(requirement), pins[0].version, is_closed=False)
    if name == TORCH.partition("==")[0]:
        return Pin(name, TORCH, TORCH.partition("==")[2], is_closed=False)
    raise UsageError(
        "{name} is not installed here, so its version is not known; run this with the Python that the "
        "project runs with, or {remedy}",
        name=requirement.name,
        remedy=_remedy(),
    )


def _counts(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


# --- hashes: pip requires them for every package or for none


def _why_unhashed(pins: Iterable[Pin], python: str) -> str:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"this machine is {platform.machine()}, so what the runner needs besides is not known"
    if python != f"{sys.version_info.major}.{sys.version_info.minor}":
        return f"this is not Python {python}, so what that needs besides is not known"
    if unknown := [pin.name for pin in pins if not pin.is_closed]:
        return f"{unknown[0]} is not installed here, so what it needs is not known"
    if addresses := [pin.name for pin in pins if not pin.version]:
        return f"{addresses[0]} is not of an index"
    return ""


def _remedy() -> Activity:
    return Activity('give the install command for CI, e.g. --setup "python -m pip install -r requirements.lock"')
