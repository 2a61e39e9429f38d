"""Detect changes, in a repository with several projects, that touch only other projects which this one does not use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from perfgate.document.message import Message
from perfgate.flows.check.project import owner_of
from perfgate.flows.shared.reads import files_read_here
from perfgate.git.repository import Repository
from perfgate.project import CONFIG_NAME

_CODE = ("*.py", "*.toml", "*.cfg", "*.txt", "*.in", "*.yml", "*.yaml", "*.json", "*.sh")
# Folders that hold a project's packages but are not packages themselves.
_NO_PACKAGE = frozenset({"src", "lib", "python"})


# In an import, beside a slash or a quote, or as the key of a table.
_MENTION = r"(?:\b(?:from|import)\b.*\bNAME\b)|(?:[/\"']NAME\b)|(?:\bNAME[/\"'])|(?:^\s*NAME\s*[=@])"


def only_elsewhere(repository: Repository, prefix: str, base: str, head: str, changed: Sequence[str]) -> Message | None:
    """The reason not to measure a change here: all its files lie in other projects of the base, which this one does not name.

    None if a file lies in this project or in no project, may be imported or read by it, or was read during a measurement.
    """
    configs = [PurePosixPath(file) for file in repository.files(base)]
    projects = [str(file.parent) for file in configs if file.name == CONFIG_NAME and str(file.parent) != "."]
    owners = {file: owner_of(file, projects, "") for file in changed}
    touched = sorted({owner for owner in owners.values() if owner is not None})
    if not changed or {None, prefix} & set(owners.values()):
        return None
    if files_read_here(changed, repository) or _is_named(repository, prefix, (base, head), owners):
        return None
    return Message("gate.other-projects", {"projects": [f"{project}/" for project in touched]})


def _is_named(repository: Repository, prefix: str, commits: Sequence[str], owners: Mapping[str, str | None]) -> bool:
    """Whether a line of this project imports or names a package, module or folder that only the changed files have."""
    apart = sorted({owner for owner in owners.values() if owner})
    below = f"{prefix}/" if prefix else ""
    here = (f for f in repository.files(commits[0]) if f.startswith(below) and owner_of(f, apart, "") is None)
    own = {name for file in here for name in _names_of(file)}
    names = {name for file in owners for name in _names_of(file)} - own
    if not names:
        return True
    code = [f":(top){prefix}/{pattern}" if prefix else f":(top){pattern}" for pattern in _CODE]
    mention = re.compile("|".join(_MENTION.replace("NAME", re.escape(name)) for name in sorted(names)))
    lines = (
        line
        for commit in commits
        for line in repository.lines_with(commit, names, [*code, *(f":(top,exclude){folder}" for folder in apart)])
    )
    return any(mention.search(line) for line in lines)


def _names_of(file: str) -> set[str]:
    path = PurePosixPath(file)
    return {*path.parent.parts, path.stem} - _NO_PACKAGE
