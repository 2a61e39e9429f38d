"""What a project says of itself: its package, the Python that it needs, and what CI has to install for it."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from perfgate.errors import UsageError
from perfgate.toml import tomllib

PYPROJECT, REQUIREMENTS = "pyproject.toml", "requirements.txt"
# The version that perfgate's own tests run with, for a project that is set up where torch is not installed.
TORCH = "torch==2.13.0"
_PYTHONS = [f"3.{minor}" for minor in range(10, 15)]
_PINNED_URL = re.compile(r"@[0-9a-f]{40}\b|sha256=[0-9a-f]{64}")


@dataclass(frozen=True)
class Project:
    """``name`` and ``package`` (as it is imported) may be empty; ``python_path`` is, where the default finds the package."""

    name: str
    package: str
    python_path: Sequence[str]
    python: str
    requirements: Sequence[str]


def read_project(folder: Path) -> Project:
    """What ``folder`` says in its pyproject.toml and requirements.txt. Raises UsageError for one that cannot be read."""
    file = _pyproject(folder / PYPROJECT)
    table, poetry = file.get("project", {}), file.get("tool", {}).get("poetry", {})
    name = str(table.get("name") or poetry.get("name") or "")
    package, parent = _find_package(folder, re.sub(r"[-.]+", "_", name))
    listed = [*table.get("dependencies", []), *(entry for entry in poetry.get("dependencies", {}) if entry != "python")]
    return Project(
        name=name,
        package=package,
        python_path=[] if parent in ("", ".", "src") else [".", parent],
        python=_python(str(table.get("requires-python", "")), folder / PYPROJECT),
        requirements=[*map(str, listed), *_requirement_lines(folder / REQUIREMENTS)],
    )


def pinned_installation(folder: Path, below: str, project: Project) -> str:
    """The shell line that installs what the project needs, each package at the version that is installed here.

    Raises UsageError for a package whose version is not known here.
    """
    pip = ["python", "-m", "pip", "install"]
    if (folder / REQUIREMENTS).is_file():
        pip += ["-r", str(Path(below) / REQUIREMENTS)]
    return shlex.join([*pip, *_pins([_parse(text) for text in project.requirements])])


def _pyproject(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; repair it and run this again") from error


def _find_package(folder: Path, name: str) -> tuple[str, str]:
    """The name under which the package is imported, and the folder that must be on Python's path for it."""
    if not name:
        return "", ""
    parents = [
        ".",
        "src",
        *sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._"),
    ]
    for parent in parents:
        if (folder / parent / name / "__init__.py").is_file() or (folder / parent / f"{name}.py").is_file():
            return name, parent
    others = [path.parent.name for path in (folder / "src").glob("*/__init__.py")]
    return (others[0], "src") if len(others) == 1 else ("", "")


def _python(wanted: str, path: Path) -> str:
    """The running Python's version where the project takes it, because the pins are from here; else the oldest it takes."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        takes = SpecifierSet(wanted)
    except InvalidSpecifier as error:
        raise UsageError(f"{path}: requires-python cannot be read: {error}") from error
    # The newest patch release of each: ">=3.10.4" means a 3.10 of today.
    fitting = [version for version in (running, *_PYTHONS) if takes.contains(f"{version}.99")]
    if not fitting:
        raise UsageError(f"{path}: requires-python = {wanted!r} takes no Python that perfgate runs on (3.10 or later)")
    return fitting[0]


def _requirement_lines(path: Path) -> Iterator[str]:
    """The requirements of a file and of those that it names with -r."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ").splitlines():
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if other := re.match(r"(?:-r|--requirement)[\s=]*(\S+)", text):
            yield from _requirement_lines(path.parent / other[1])
        elif text and not text.startswith("-"):
            yield re.sub(r"\s--hash[=\s].*", "", text)


def _parse(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"the requirement {text!r} cannot be read; name CI's own line with --setup") from error


def _pins(requirements: Sequence[Requirement]) -> list[str]:
    """``NAME==VERSION`` of the requirements, of torch, and of what they need in turn."""
    pins: dict[str, str] = {}
    waiting = [(requirement, True) for requirement in requirements if _counts(requirement, "")]
    waiting.append((Requirement(TORCH.partition("==")[0]), True))
    while waiting:
        requirement, is_direct = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        if name in pins:
            continue
        if requirement.url and _PINNED_URL.search(requirement.url):
            pins[name] = str(requirement)
            continue
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if is_direct:
                pins[name] = _unseen(requirement)
            continue
        pins[name] = f"{name}=={Version(installed.version).public}"
        needed = map(Requirement, installed.requires or [])
        extras = ["", *requirement.extras]
        waiting += [(other, False) for other in needed if any(_counts(other, extra) for extra in extras)]
    return list(pins.values())


def _counts(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _unseen(requirement: Requirement) -> str:
    """The pin of a requirement that is not installed here."""
    pins = [specifier for specifier in requirement.specifier if specifier.operator in ("==", "===")]
    if pins and not pins[0].version.endswith("*"):
        return str(requirement)
    if canonicalize_name(requirement.name) == TORCH.partition("==")[0]:
        return TORCH
    raise UsageError(
        f"{requirement.name} is not installed here, so its version is not known; run this with the Python that the project "
        'runs with, or say how CI installs it, e.g. --setup "python -m pip install -r requirements.lock"'
    )
