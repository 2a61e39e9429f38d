"""Fetch what the store knows: main's earlier sessions on this testbed, and what somebody accepted of this change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Callable

from perfgate.config import Config
from perfgate.document.history import History, HistorySeries
from perfgate.document.run import RunDocument
from perfgate.errors import StoreError
from perfgate.flows.store import open_project_store
from perfgate.judging.gate.screen import SCREENED


def stored_history(
    config: Config, head: RunDocument, environ: Mapping[str, str], *, warn: Callable[[str], None]
) -> History:
    """Return the series that screen this run and what was accepted of it; of a store that cannot be read that is said."""
    try:
        store = open_project_store(config, environ)
        series = [
            HistorySeries(
                workload=workload.name,
                shape=shape,
                metric=name,
                values=[
                    found.value
                    for found in store.history(config.project, workload.name, head.testbed.fingerprint, name, shape)
                ],
            )
            for workload in head.workloads
            for shape in workload.shapes
            for name in SCREENED
        ]
        commit = head.source.commit
        accepted = store.accepted(config.project, commit=commit) if commit else []
    except StoreError as error:
        warn(f"stored runs of main are left out: {error}")
        return History()
    return History(series=[one for one in series if one.values], accepted=accepted)
