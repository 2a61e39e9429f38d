"""Choose the two commits and the configuration of a check, and skip it if no relevant file changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.code.code_changes import code_changes
from perfgate.config import CONFIG_NAME, Config, PathSettings, load_config, parse_config
from perfgate.document.decision import DecisionDocument
from perfgate.document.message import Message
from perfgate.document.run import Source
from perfgate.errors import ConfigError, RepositoryError, UsageError
from perfgate.flows.check.coverage import ChangedFiles, changed_files
from perfgate.flows.check.elsewhere import only_elsewhere
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.reads import files_that_may_be_read
from perfgate.flows.trust.commits import BaseConfig, same_code_between
from perfgate.git.repository import MAIN_NAMES, BaseChoice, Repository
from perfgate.judging.gate.paths import always_relevant, excluded_files, files_taken_in, skipped, skipped_because


class Sides(NamedTuple):
    """The two commits, and their sources for the run documents."""

    base: BaseChoice
    base_source: Source
    head: str
    head_source: Source


def configuration_of(repository: Repository, directory: Path, prefix: str, options: CheckOptions) -> Config:
    if options.head is None:
        return load_config(directory, device=options.device)
    text = repository.show(repository.resolve(options.head), _inside(prefix, CONFIG_NAME))
    if text is None:
        raise ConfigError(
            "{head} has no {file}, which names the code to measure",
            head=options.head,
            file=_inside(prefix, CONFIG_NAME),
        )
    return parse_config(
        text, directory / CONFIG_NAME, device=options.device or os.environ.get("PERFGATE_DEVICE") or None
    )


def choose_sides(repository: Repository, config: Config, options: CheckOptions) -> Sides:
    """The commits to compare. Raises RepositoryError if git has none, or if uncommitted changes would be left out."""
    # With a named head, the state of the work tree does not matter.
    head, dirty = repository.resolve(options.head) if options.head else repository.head(), False
    if options.work_tree and not options.head:
        head, dirty = repository.snapshot()
    elif not (options.allow_dirty or options.head) and (changed := repository.dirty_files()):
        raise RepositoryError(
            "{root} has uncommitted changes in {changed}{more}; commit them, or use `perfgate local`, which "
            "includes them, or --allow-dirty to measure the commit without them",
            root=repository.root,
            changed=", ".join(changed[:5]),
            more=" …" if len(changed) > 5 else "",
        )
    if options.comparing == "stack":
        source = repository.source(head)
        return Sides(BaseChoice(head, Message("gate.base-old-stack")), source, head, source)
    revision = options.base or repository.main_branch(config.store.main_branch, fetch=True)
    base = repository.choose_base(revision, head)
    if base.commit == head and not options.base:
        _ask_for_base(repository, config, revision)
    return Sides(
        base=base,
        base_source=repository.source(base.commit, branch=revision),
        head=head,
        head_source=repository.source(head, dirty=dirty),
    )


def _ask_for_base(repository: Repository, config: Config, revision: str) -> None:
    """Raise UsageError if a change would be compared with itself because its branch was taken for the main one."""
    branch = revision.removeprefix("origin/")
    if not config.store.main_branch and branch not in MAIN_NAMES and repository.is_current(branch):
        raise UsageError(
            "{branch} is checked out, and no other branch is known to compare it with. Is it the main "
            'branch? Then set main_branch = "{branch}" under [store] in perfgate.toml; else name the base '
            "with --base",
            branch=branch,
        )


def skipped_decision(
    repository: Repository, config: Config, base: BaseConfig, sides: Sides, prefix: str, options: CheckOptions
) -> DecisionDocument | None:
    """The decision to skip, if the base's path filter finds no relevant file or the code is the same; else None.

    A work tree equal to its base is skipped too. A commit equal to its base is measured: base against base shows the noise
    of the machine.
    """
    if options.always or options.comparing == "stack" or base.unreadable:
        return None
    # Locate the store from the clone, not from the place that the base's perfgate.toml was read from.
    rules = msgspec.structs.replace(base.config or config, root=config.root)
    changed = repository.files_between(sides.base.commit, sides.head)
    always = always_relevant(config, prefix) | always_relevant(rules, prefix)
    paths = base.config.paths if base.config else PathSettings()
    because = (
        Message("gate.no-change", {"base": sides.base.commit[:12]})
        if options.work_tree and not changed
        # In CI only the base's path filter may skip other projects, because the publishing job can verify it.
        else (options.work_tree and only_elsewhere(repository, prefix, sides.base.commit, sides.head, changed))
        or skipped_because(
            changed,
            paths,
            always=always,
            read=lambda files: files_that_may_be_read(
                files, repository, rules, (sides.base.commit, sides.head), os.environ, in_clone=options.work_tree
            ),
            same_code=lambda files: same_code_between(repository.root, sides.base.commit, sides.head, files),
        )
    )
    if because is None:
        return None
    return skipped(
        because,
        config=config,
        policy=rules.policy(),
        base=sides.base_source,
        head=sides.head_source,
        chosen_because=sides.base.because,
    )


def with_code_changes(sides: Sides, repository: Repository, prefix: str, base: Path, head: Path) -> Sides:
    """The sides with the lines that the head changed; they only name causes and do not affect the verdict."""
    files = repository.changed_files(sides.base.commit, sides.head, prefix=prefix, added=True)
    source = msgspec.structs.replace(sides.head_source, changes=code_changes(base, head, files))
    return sides._replace(head_source=source)


def changes_to_try(
    sides: Sides,
    repository: Repository,
    prefix: str,
    configs: tuple[Config, Config],
    trees: Mapping[str, Path],
    options: CheckOptions,
) -> ChangedFiles:
    """The changed files, sorted; ``configs`` are the rules that judge, and the head's settings. An upgrade changes no code."""
    rules, config = configs
    changed = repository.files_between(sides.base.commit, sides.head) if options.comparing == "code" else []
    always = always_relevant(config, prefix) | always_relevant(rules, prefix)
    return changed_files(
        trees["base"],
        trees["head"],
        changed,
        always=always,
        excluded=excluded_files(changed, rules.paths),
        taken_in=files_taken_in(changed, rules.paths),
    )


def _inside(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name
