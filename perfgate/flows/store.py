"""``perfgate store``: check a whole store, and carry its content into another one or
into files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perfgate.config import load_config
from perfgate.errors import UsageError
from perfgate.flows.shared.store import open_store_at
from perfgate.flows.shared.unsent import PushedRuns, unsent_runs
from perfgate.flows.trust.provenance import refuse_change_request
from perfgate.judging.store import runs
from perfgate.judging.store.archive import refuse_existing, write_export
from perfgate.judging.store.backends.service import TOKEN_VARIABLES
from perfgate.judging.store.ledger import Ledger
from perfgate.judging.store.store import (
    STATEMENTS,
    STORE_VARIABLE,
    Page,
    RunEntry,
    Store,
    is_shared,
    shown_location,
    store_location,
)
from perfgate.judging.store.transfer import (
    Advance,
    Copied,
    Exported,
    copy_store,
    exported_files,
)


def ledger_of(store: Store, location: str) -> Ledger:
    """The tokens and the audit log of a store. Raises UsageError if its kind has none."""
    ledger = store.ledger()
    if ledger is None:
        raise UsageError(
            "{place} keeps no tokens and no audit log; a database does: give a file or postgresql://USER@HOST/DATABASE",
            place=shown_location(location),
        )
    return ledger


def export(
    root: Path,
    location: str | None,
    projects: Sequence[str],
    target: Path,
    environ: Mapping[str, str],
    advance: Advance,
) -> Exported:
    """Write every document of a store to a folder, or to a tar file if the target ends
    in .tar.
    """
    refuse_existing(target)
    opened = open_projects(root, location, projects, environ)
    exported = Exported(damaged=[*opened.unreadable, *opened.unnamed])
    files = exported_files(opened.store, opened.projects, exported, advance)
    write_export(files, target)
    return exported


def copy(
    root: Path,
    location: str,
    projects: Sequence[str],
    target: str,
    environ: Mapping[str, str],
    advance: Advance,
) -> Copied:
    """Copy projects of one store into another, all of them if none is named, with its
    tokens and audit history.

    Raises UsageError in the CI job of a change request.
    """
    if is_shared(target):
        refuse_change_request(environ)
    source = open_store_at(location, root, environ)
    opened = _opened(source, location, projects)
    into = open_store_at(target, root, environ)
    copied = copy_store(source, into, opened.projects, advance, is_whole=not projects)
    copied.damaged += [*opened.unreadable, *opened.unnamed]
    return copied


def prune_runs(
    store: Store,
    location: str,
    project: str | None,
    environ: Mapping[str, str],
    *,
    keep: int,
) -> int:
    """Remove all but the newest ``keep`` runs of each testbed of a project, of all
    projects if it is None; return how many.

    Raises UsageError in the CI job of a change request.
    """
    if is_shared(location):
        refuse_change_request(environ)
    removed = 0
    for name in store.projects() if project is None else [project]:
        removed += runs.prune_runs(store, name, keep=keep)
    return removed


def remove_run(
    store: Store, location: str, project: str, digits: str, environ: Mapping[str, str]
) -> str:
    """Remove the run of a project whose id begins with ``digits``, damaged or not;
    return its id.

    Raises UsageError in the CI job of a change request, and UnknownRunError unless one
    run has such an id.
    """
    if is_shared(location):
        refuse_change_request(environ)
    run_id = store.documents(project, [digits])[0].id
    store.remove(project, [run_id])
    return run_id


def push_unsent(root: Path, environ: Mapping[str, str]) -> PushedRuns:
    """Send the runs of the project in ``root`` that wait for its service. Raises
    UsageError for another kind of store.
    """
    config = load_config(root, environ=environ, needs_workload=False)
    location = store_location(config, environ)
    unsent = unsent_runs(location, config.project, environ)
    if unsent is None:
        raise UsageError(
            "no run waits for {location}: runs wait for a service only; set {store} to its address and {token} to its token",
            location=shown_location(location),
            store=STORE_VARIABLE,
            token=TOKEN_VARIABLES[0],
        )
    return unsent.push(open_store_at(location, config.root, environ))


class OpenedProjects(NamedTuple):
    """A store and projects in it; if no project was named, these are all, and a message
    tells of each whose name is not known (`StoredProjects`).
    """

    store: Store
    projects: Sequence[str]
    unreadable: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()


def open_projects(
    root: Path,
    location: str | None,
    projects: Sequence[str],
    environ: Mapping[str, str],
) -> OpenedProjects:
    """A store and the named projects in it, all if none is named; without a location
    the store of the project in ``root``.

    Raises UsageError for a project that it does not have.
    """
    location = location or environ.get(STORE_VARIABLE)
    if not location:
        location = store_location(
            load_config(root, environ=environ, needs_workload=False), environ
        )
    return _opened(open_store_at(location, root, environ), location, projects)


def refuse_unknown_project(store: Store, location: str, project: str) -> None:
    """Raise UsageError for a project that a store has nothing of: its name is most
    likely misspelled.
    """
    if not _has_any(store, project):
        _refuse_unknown([project], store.stored_projects().names, location)


def _opened(store: Store, location: str, projects: Sequence[str]) -> OpenedProjects:
    there = store.stored_projects()
    if projects:
        unknown = [project for project in projects if not _has_any(store, project)]
        _refuse_unknown(unknown, there.names, location)
        return OpenedProjects(store, projects)
    ledger = store.ledger()
    # Before the first run a store may have tokens.
    has_tokens = ledger is not None and ledger.tokens()
    if not (any(there) or has_tokens):
        raise UsageError(
            "{store} holds no run; is this its location?",
            store=shown_location(location),
        )
    return OpenedProjects(store, *there)


def _has_any(store: Store, project: str) -> bool:
    """Whether a store has a run, a statement or a token of a project."""
    if store.damaged(project) or store.entries(project, RunEntry, Page(limit=1)):
        return True
    ledger = store.ledger()
    if ledger is not None and project in ledger.projects():
        return True
    return any(store.entries(project, kind) for kind in STATEMENTS.values())


def _refuse_unknown(
    unknown: Sequence[str], there: Sequence[str], location: str
) -> None:
    if not unknown:
        return
    if not there:
        raise UsageError(
            "{store} holds no run; is this its location?",
            store=shown_location(location),
        )
    raise UsageError(
        "{store} holds no run of project {project!a}, only of {there}; correct the name",
        store=shown_location(location),
        project=unknown[0],
        there=", ".join(map(ascii, there)),
    )
