"""What a check must hold, by the word of those whom the change cannot have written: the base's configuration and the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from perfgate.config import Config
from perfgate.document.run import RunDocument, WorkloadRecord
from perfgate.errors import StoreError
from perfgate.jobs.shared.store import open_project_store
from perfgate.judging.gate.required import Required
from perfgate.judging.store.store import Store

# Runs of main are made every few commits; one that is older than this many says little of the base.
_NEWEST = 50


def required_of(
    config: Config | None, base: RunDocument, environ: Mapping[str, str], *, only: Collection[str] = ()
) -> Required:
    """Return what the base's configuration and main's stored runs require; nothing without a configuration.

    ``only`` are the workloads that were asked for alone. A store that cannot be read requires nothing; that it cannot be read
    is said where main's history is.
    """
    if config is None:
        return Required()
    names = tuple(one.name for one in config.workloads if not only or one.name in only)
    try:
        stored = _stored_runs(open_project_store(config, environ), config.project, base, names)
    except StoreError:
        stored = ()
    return Required(workloads=names, aa_pairs=config.gate.aa_pairs, stored=stored)


def _stored_runs(store: Store, project: str, base: RunDocument, names: tuple[str, ...]) -> tuple[RunDocument, ...]:
    """Return for each workload the newest stored run on the base's testbed, where it measured the same workload file."""
    wanted = {workload.name: workload for workload in base.workloads if workload.name in names}
    found: dict[str, RunDocument] = {}
    for run in store.runs(project, limit=_NEWEST) if wanted else ():
        lacking = [name for name in wanted if name not in found and name in run.workloads]
        if run.fingerprint != base.testbed.fingerprint or run.dirty or not lacking:
            continue
        document = store.show(run.id)
        found.update(dict.fromkeys(lacking, document))
    same = [run for name, run in found.items() if _measured_the_same(run, wanted[name])]
    return tuple({run.session.id: run for run in same}.values())


def _measured_the_same(stored: RunDocument, workload: WorkloadRecord) -> bool:
    return any((one.name, one.sha256, one.error) == (workload.name, workload.sha256, None) for one in stored.workloads)
