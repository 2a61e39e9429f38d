"""Workers that load a workload while others load theirs, or measure."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from perfgate.conductor.workers.worker import Worker
from perfgate.locale import Activity
from perfgate.protocol import Loaded


@dataclass
class LoadingWorker:
    """A worker that loads a workload; others may load theirs in the meantime."""

    worker: Worker
    name: str
    timeout: float
    loaded: Loaded | None = None

    def wait(self) -> Loaded:
        """Wait until the workload is loaded. Raises WorkerError if it cannot be."""
        if self.loaded is None:
            self.loaded = self._finish()
        return self.loaded

    def _finish(self) -> Loaded:
        doing = Activity("loading workload {name}", name=self.name)
        return self.worker.finish(Loaded, timeout=self.timeout, doing=doing)


class AheadWorker(NamedTuple):
    """A worker that loads ahead of its use, while others measure; closing the ``stack`` ends it."""

    worker: LoadingWorker
    stack: ExitStack

    @classmethod
    def begin(cls, loading: AbstractContextManager[LoadingWorker]) -> AheadWorker:
        with ExitStack() as stack:
            worker = stack.enter_context(loading)
            return cls(worker, stack.pop_all())
