"""Runs recorded in a store by a writer that its audit log names."""

from __future__ import annotations

from perfgate.document.files import canonical_bytes, content_sha256
from perfgate.document.run import RunDocument
from perfgate.judging.store.runs import run_entry
from perfgate.judging.store.store import Store, utc_now


def record_as(store: Store, actor: str, *runs: RunDocument) -> list[str]:
    """Record runs of one project, and return the ids of the new ones."""
    documents = {content_sha256(run): canonical_bytes(run, name="the run") for run in runs}
    entries = [run_entry(run, run_id, utc_now().isoformat()) for run, run_id in zip(runs, documents)]
    return store.append(runs[0].project, entries, documents, actor=actor)
