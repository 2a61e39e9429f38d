"""``perfgate store``: check a whole store, and carry its content into another one or into files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.config import load_config
from perfgate.errors import UsageError
from perfgate.flows.shared.store import open_store_at
from perfgate.flows.trust.main_only import refuse_change_request
from perfgate.judging.store.archive import refuse_existing, write_export
from perfgate.judging.store.store import STORE_VARIABLE, Store, is_shared, shown_location, store_location
from perfgate.judging.store.transfer import Advance, Transferred, copy_store, exported_files
from perfgate.judging.store.verify import Verified, verify_store


@dataclass(frozen=True)
class StoreSelection:
    """Projects of a store, all if none is named; without a location the store is that of the project in ``root``."""

    root: Path
    location: str | None = None
    projects: Sequence[str] = ()


def verify(selection: StoreSelection, environ: Mapping[str, str], advance: Advance) -> Verified:
    """Read and check every run. Raises StoreError if the store cannot be read at all."""
    store, projects = _open(selection, environ)
    return verify_store(store, projects, advance)


def export(selection: StoreSelection, environ: Mapping[str, str], target: Path, advance: Advance) -> Transferred:
    """Write every document of a store to a folder, or to a tar file if the target ends in .tar."""
    refuse_existing(target)
    store, projects = _open(selection, environ)
    done = Transferred()
    write_export(exported_files(store, projects, done, advance), target)
    return done


def copy(selection: StoreSelection, environ: Mapping[str, str], target: str, advance: Advance) -> Transferred:
    """Copy projects of one store into another. Raises UsageError in the CI job of a change request."""
    if is_shared(target):
        refuse_change_request(environ)
    store, projects = _open(selection, environ)
    return copy_store(store, open_store_at(target, selection.root, environ), projects, advance)


def _open(selection: StoreSelection, environ: Mapping[str, str]) -> tuple[Store, Sequence[str]]:
    """The store, and its selected projects. Raises UsageError for a project that it does not have."""
    location = selection.location or environ.get(STORE_VARIABLE)
    if not location:
        location = store_location(load_config(selection.root, environ=environ, needs_workload=False), environ)
    store = open_store_at(location, selection.root, environ)
    there = store.projects()
    if not there:
        raise UsageError("{store} holds no run; is this its location?", store=shown_location(location))
    if missing := [project for project in selection.projects if project not in there]:
        raise UsageError(
            "{store} holds no run of project {project!a}, only of {there}; correct the name",
            store=shown_location(location),
            project=missing[0],
            there=", ".join(map(ascii, there)),
        )
    return store, selection.projects or there
