"""Find the project that a change belongs to, if the command was given at the root of a repository with several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfgate.errors import ConfigError
from perfgate.flows.shared.options import CheckOptions
from perfgate.git.repository import Repository
from perfgate.project import CONFIG_NAME, choices, projects_below


def project_of_change(directory: Path, options: CheckOptions) -> Path:
    """The folder itself if it is a project or holds none, else the only project below it that the change touches.

    Raises ConfigError, with the folders to choose from, if the change touches several, none, or files outside them.
    """
    projects = [] if (directory / CONFIG_NAME).is_file() else projects_below(directory)
    if not projects:
        return directory
    repository = Repository(directory)
    prefix = repository.prefix(directory)
    if options.head:
        head = repository.resolve(options.head)
    else:
        head = repository.snapshot()[0] if options.work_tree else repository.head()
    base = repository.choose_base(options.base or repository.main_branch(fetch=True), head)
    owners = {owner_of(file, projects, prefix) for file in repository.files_between(base.commit, head)}
    touched = sorted(owner for owner in owners if owner is not None)
    if len(touched) == 1 and None not in owners:
        return directory / touched[0]
    why = (
        f"the change touches {', '.join(f'{name}/' for name in touched)}"
        if touched
        else "the change touches none of them"
    )
    if touched and None in owners:
        why += " and files beside them"
    raise ConfigError(
        "{directory} does not exist, but {projects} have one each; {why}: name one with {choices}",
        directory=directory / CONFIG_NAME,
        projects=", ".join(f"{name}/" for name in projects),
        why=why,
        choices=choices(touched or projects),
    )


def owner_of(file: str, projects: Sequence[str], prefix: str) -> str | None:
    """The innermost project that a file of the repository lies in."""
    below = f"{prefix}/" if prefix else ""
    holding = [project for project in projects if file.startswith(f"{below}{project}/")]
    return max(holding, key=len, default=None)
