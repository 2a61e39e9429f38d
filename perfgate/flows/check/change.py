"""The change to check: its project, both commits with their settings, and whether it
has to be measured at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from msgspec import structs

from perfgate.conductor.code.code_changes import code_changes
from perfgate.config import (
    CONFIG_NAME,
    Config,
    MeasureSettings,
    PathSettings,
    load_config,
    parse_config,
)
from perfgate.document.decision import DecisionDocument
from perfgate.document.message import Message
from perfgate.document.run import Side, Source
from perfgate.errors import ConfigError, RepositoryError, UsageError
from perfgate.flows.check.changed_files import ChangedFiles, changed_files
from perfgate.flows.shared.options import ChangeOptions
from perfgate.flows.shared.reads import files_read_here, files_that_may_be_read
from perfgate.flows.trust.commits import BaseConfig, config_at, same_code_between
from perfgate.git.repository import MAIN_NAMES, BaseChoice, Repository
from perfgate.judging.gate.paths import (
    always_relevant,
    excluded_files,
    files_of_environment,
    files_taken_in,
    skipped,
    skipped_because,
)
from perfgate.locale import Activity
from perfgate.measuring.devices.registry import refuse_unknown_kind
from perfgate.project import below, choices, projects_below

_CODE = (
    "*.py",
    "*.toml",
    "*.cfg",
    "*.txt",
    "*.in",
    "*.yml",
    "*.yaml",
    "*.json",
    "*.sh",
)
# Folders that hold a project's packages but are not packages themselves.
_NO_PACKAGE = frozenset({"src", "lib", "python"})
_NAMED_FILES = 5
# A name in an import, next to a slash or a quote, or as the key of a table.
_MENTION = r"(?:\b(?:from|import)\b.*\bNAME\b)|(?:[/\"']NAME\b)|(?:\bNAME[/\"'])|(?:^\s*NAME\s*[=@])"


class Sides(NamedTuple):
    """The two commits, and their sources for the run documents."""

    base: BaseChoice
    base_source: Source
    head: str
    head_source: Source


@dataclass(frozen=True)
class Change:
    """A change to check: the project in its clone, below ``prefix``, both commits, and
    the settings of either.
    """

    options: ChangeOptions
    directory: Path
    repository: Repository
    prefix: str
    config: Config
    base_config: BaseConfig
    sides: Sides

    @property
    def rules(self) -> Config:
        """The settings that judge: the base's, which locate the store from the clone; a
        base without has the head's.
        """
        return structs.replace(
            self.base_config.config or self.config, root=self.directory
        )

    @property
    def measure_settings(self) -> dict[Side, MeasureSettings]:
        """How each side reads and installs what it needs; a base without settings is
        measured by the head's.
        """
        return {"base": self.rules.measure, "head": self.config.measure}

    @property
    def python_path(self) -> dict[Side, list[str]]:
        """The folders that each side puts on Python's path, from the top of the
        repository.
        """
        paths: dict[Side, list[str]] = {}
        for side, settings in self.measure_settings.items():
            paths[side] = [self.path_of(folder) for folder in settings.python_path]
        return paths

    @property
    def links(self) -> dict[str, list[str]]:
        """The linked paths of each checkout, which are relative to its perfgate.toml,
        from the top of the repository.
        """
        links: dict[str, list[str]] = {}
        for side, settings in self.measure_settings.items():
            links[side] = [below(self.prefix, entry) for entry in settings.link]
        return {**links, "harness": links["head"]}

    def path_of(self, path: str) -> str:
        """A path relative to perfgate.toml, from the top of the repository."""
        return os.path.normpath(f"{self.prefix or '.'}/{path}")

    def with_lines(self, base: Path, head: Path) -> Change:
        """The change with the lines that the head changed; they only name causes and do
        not affect the verdict.

        Files are named relative to the project, whose own come first.
        """
        sides = self.sides
        project = self.path_of(".")
        importable = [project, *self.python_path["head"]]
        files = []
        for file in self.repository.changed_files(
            sides.base.commit, sides.head, added=True
        ):
            if any(_is_below(file, folder) for folder in importable):
                files.append(os.path.relpath(file, project))
        files.sort(key=lambda file: file.startswith("../"))
        source = structs.replace(
            sides.head_source, changes=code_changes(base, head, files)
        )
        return replace(self, sides=sides._replace(head_source=source))

    def always_relevant(self, changed: Sequence[str], head: Config) -> set[str]:
        """The files that count despite the path filter, by the settings of both
        sides; ``head`` are those of the check.
        """
        files: set[str] = set()
        for settings in (head, self.rules):
            files |= always_relevant(settings, self.prefix)
            files |= files_of_environment(changed, settings, self.prefix)
        return files

    def files_to_try(self, trees: Mapping[str, Path], config: Config) -> ChangedFiles:
        """The changed files, sorted; ``config`` are the settings of the check.

        An upgrade changes no code.
        """
        changed: list[str] = []
        if self.options.comparing == "code":
            changed = self.repository.files_between(
                self.sides.base.commit, self.sides.head
            )
        paths = self.rules.paths
        return changed_files(
            trees["base"],
            trees["head"],
            changed,
            always=self.always_relevant(changed, config),
            excluded=excluded_files(changed, paths),
            taken_in=files_taken_in(changed, paths),
        )


def _is_below(file: str, folder: str) -> bool:
    return folder == "." or file.startswith(f"{folder}/")


def choose_change(directory: Path, options: ChangeOptions) -> Change:
    """The change of the project in a folder, or of the only project below it that is
    touched.

    Raises RepositoryError or ConfigError if the two sides cannot be determined.
    """
    project = project_of_change(directory, options)
    repository = Repository(project)
    prefix = repository.prefix(project)
    # Read the configuration first, so that an invalid one is reported before a worktree
    # is created.
    if options.head is None:
        config = load_config(project, device=options.device)
    else:
        file = below(prefix, CONFIG_NAME)
        text = repository.show(repository.resolve(options.head), file)
        if text is None:
            raise ConfigError(
                "{head} has no {file}, which names the code to measure",
                head=options.head,
                file=file,
            )
        device = options.device or os.environ.get("PERFGATE_DEVICE") or None
        config = parse_config(text, project / CONFIG_NAME, device=device)
    config.selected(options.workloads)
    refuse_unknown_kind(config.device)
    sides = _choose_sides(repository, config, options)
    base_config = config_at(project, sides.base.commit, None)
    return Change(options, project, repository, prefix, config, base_config, sides)


def project_of_change(directory: Path, options: ChangeOptions) -> Path:
    """The folder itself if it is a project or holds none, else the only project below
    it that the change touches.

    Raises ConfigError, with the folders to choose from, if the change touches several,
    none, or files outside them.
    """
    projects = [] if (directory / CONFIG_NAME).is_file() else projects_below(directory)
    if not projects:
        return directory
    repository = Repository(directory)
    prefix = repository.prefix(directory)
    head, _ = _head(repository, replace(options, allow_dirty=True))
    base = repository.choose_base(
        options.base or repository.main_branch(fetch=True), head
    )
    owners = {
        _owner_of(file, projects, prefix)
        for file in repository.files_between(base.commit, head)
    }
    has_others = None in owners
    touched = sorted(filter(None, owners))
    if len(touched) == 1 and not has_others:
        return directory / touched[0]
    names = ", ".join(f"{name}/" for name in touched)
    why = Activity("the change touches none of them")
    if touched and has_others:
        why = Activity("the change touches {names} and other files", names=names)
    elif touched:
        why = Activity("the change touches {names}", names=names)
    raise ConfigError(
        "{directory} does not exist, but {projects} have one each; {why}: name one with {choices}",
        directory=directory / CONFIG_NAME,
        projects=", ".join(f"{name}/" for name in projects),
        why=why,
        choices=choices(touched or projects),
    )


def skipped_decision(change: Change) -> DecisionDocument | None:
    """The decision to skip, if the base's path filter finds no relevant file or the
    code is the same; else None.

    A work tree equal to its base is skipped too. A commit equal to its base is
    measured: base against base shows the noise of the machine.
    """
    options = change.options
    repository = change.repository
    sides = change.sides
    if options.always or options.comparing == "stack" or change.base_config.unreadable:
        return None
    commits = sides.base.commit, sides.head
    changed = repository.files_between(*commits)
    because = None
    if options.work_tree and not changed:
        because = Message("gate.no-change", {"base": commits[0][:12]})
    elif options.work_tree:
        # In CI only the base's path filter may skip other projects, because the
        # publishing job can verify it.
        because = _only_other_projects(change, commits, changed)
    if because is None:
        paths, base = PathSettings(), change.base_config.config
        if base:
            paths = base.paths
        because = skipped_because(
            changed,
            paths,
            always=change.always_relevant(changed, change.config),
            read=lambda files: files_that_may_be_read(
                files, repository, change.rules, commits, in_clone=options.work_tree
            ),
            same_code=lambda files: same_code_between(repository.root, *commits, files),
        )
    if because is None:
        return None
    return skipped(
        because,
        config=change.config,
        policy=change.rules.policy(),
        base=sides.base_source,
        head=sides.head_source,
        chosen_because=sides.base.because,
    )


def _choose_sides(
    repository: Repository, config: Config, options: ChangeOptions
) -> Sides:
    """The commits to compare.

    Raises RepositoryError if git has none, or if uncommitted changes would be left out,
    and UsageError if the change would be compared with itself.
    """
    head, is_dirty = _head(repository, options)
    if options.comparing == "stack":
        source = repository.source(head)
        return Sides(
            BaseChoice(head, Message("gate.base-old-stack")), source, head, source
        )
    revision = options.base or repository.main_branch(
        config.store.main_branch, fetch=True
    )
    base = repository.choose_base(revision, head)
    branch = revision.removeprefix("origin/")
    # A change would be compared with itself if its branch was taken for the main one.
    is_own_branch = base.commit == head and not options.base
    may_be_main = config.store.main_branch or branch in MAIN_NAMES
    if is_own_branch and not may_be_main and repository.is_current(branch):
        raise UsageError(
            "{branch} is checked out, and no other branch is known to compare it with. Is it the main "
            'branch? Then set main_branch = "{branch}" under [store] in perfgate.toml; else name the base '
            "with --base",
            branch=branch,
        )
    return Sides(
        base=base,
        base_source=repository.source(base.commit, branch=revision),
        head=head,
        head_source=repository.source(head, dirty=is_dirty),
    )


def _head(repository: Repository, options: ChangeOptions) -> tuple[str, bool]:
    """The commit to judge, and whether it is of uncommitted changes.

    With a named head, the work tree does not matter.
    """
    if options.head:
        return repository.resolve(options.head), False
    if options.work_tree:
        return repository.snapshot()
    if not options.allow_dirty and (changed := repository.dirty_files()):
        raise RepositoryError(
            "{root} has uncommitted changes in {changed}{more}; commit them, or use `perfgate local`, which "
            "includes them, or --allow-dirty to measure the commit without them",
            root=repository.root,
            changed=", ".join(changed[:_NAMED_FILES]),
            more=" …" if len(changed) > _NAMED_FILES else "",
        )
    return repository.head(), False


def _only_other_projects(
    change: Change, commits: tuple[str, str], changed: Sequence[str]
) -> Message | None:
    """The reason not to measure a change here: all its files lie in other projects of
    the base, which this one does not name.

    None if a file lies in this project or in no project, may be imported or read by it,
    or was read during a measurement.
    """
    projects: list[str] = []
    for path in change.repository.files(commits[0]):
        folder = path.removesuffix(f"/{CONFIG_NAME}")
        if folder != path:
            projects.append(folder)
    touched: set[str] = set()
    for file in changed:
        owner = _owner_of(file, projects, "")
        if owner is None or owner == change.prefix:
            return None
        touched.add(owner)
    if files_read_here(changed, change.repository) or _is_named(
        change, commits, changed, touched
    ):
        return None
    return Message(
        "gate.other-projects",
        {"projects": [f"{project}/" for project in sorted(touched)]},
    )


def _is_named(
    change: Change,
    commits: tuple[str, str],
    changed: Sequence[str],
    projects: Collection[str],
) -> bool:
    """Whether a line of this project imports or names a package, module or folder that
    only the changed files have.
    """
    repository, prefix = change.repository, change.prefix
    own: set[str] = set()
    for file in repository.files(commits[0]):
        if (
            file.startswith(below(prefix, ""))
            and _owner_of(file, list(projects), "") is None
        ):
            own |= _names_of(file)
    names = set().union(*map(_names_of, changed)) - own
    if not names:
        return True
    pathspecs = [f":(top){below(prefix, pattern)}" for pattern in _CODE]
    pathspecs += [f":(top,exclude){project}" for project in sorted(projects)]
    mention = re.compile(
        _MENTION.replace("NAME", f"(?:{'|'.join(map(re.escape, sorted(names)))})")
    )
    for commit in commits:
        lines = repository.lines_with(commit, names, pathspecs)
        if any(map(mention.search, lines)):
            return True
    return False


def _names_of(file: str) -> set[str]:
    path = PurePosixPath(file)
    return {*path.parent.parts, path.stem} - _NO_PACKAGE


def _owner_of(file: str, projects: Sequence[str], prefix: str) -> str | None:
    """The innermost project that a file of the repository lies in; ``prefix`` is the
    folder that projects are relative to.
    """
    holders = [
        project for project in projects if file.startswith(below(prefix, f"{project}/"))
    ]
    return max(holders, key=len, default=None)
