"""Tasks in processes of this machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, suppress

from perfgate.flows.trace.executors import Outcome, Task
from perfgate.system.interrupts import uninstall
from perfgate.system.memory import keep_freed_memory
from perfgate.system.processes import die_with_parent


class LocalExecutor(AbstractContextManager["LocalExecutor"]):
    """At most ``processes`` tasks at once.

    A worker that dies ends its whole pool, and which task it ran is not known. So the
    tasks of that pool run again, each in a pool of one worker, and only a death there
    counts.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._waiting: deque[Task] = deque()
        # The tasks of a pool that ended, and the tasks among them that wait for a
        # separate pool.
        self._suspected: set[Task] = set()
        self._suspects: deque[Task] = deque()

    def __exit__(self, *_: object) -> None:
        """The processes end with their pool."""

    def submit(self, task: Task) -> None:
        tasks = self._suspects if task in self._suspected else self._waiting
        tasks.append(task)

    def outcomes(self) -> Iterator[Outcome]:
        while self._waiting or self._suspects:
            if self._waiting:
                yield from self._run(
                    self._waiting, min(self._processes, len(self._waiting))
                )
            else:
                yield from self._run(deque([self._suspects.popleft()]), 1)

    def _run(self, waiting: deque[Task], processes: int) -> Iterator[Outcome]:
        """The outcomes of tasks in one pool, until none is waiting or a worker dies."""
        running: dict[Future[bytes], Task] = {}
        with ProcessPoolExecutor(processes, initializer=_begin_worker) as pool:
            while waiting or running:
                # A broken pool takes no task; those that it had end with its error.
                with suppress(BrokenProcessPool):
                    while waiting and len(running) < processes:
                        running[pool.submit(waiting[0].call)] = waiting[0]
                        waiting.popleft()
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield self._outcome(
                        running.pop(future), future, is_alone=processes == 1
                    )

    def _outcome(self, task: Task, future: Future[bytes], *, is_alone: bool) -> Outcome:
        try:
            return Outcome(task, future.result())
        except BrokenProcessPool:
            self._suspected.add(task)
            return Outcome(task, None, deaths=int(is_alone))


def _begin_worker() -> None:
    # The pool ends its workers by SIGTERM when one of them dies.
    uninstall()
    die_with_parent(os.getppid())
    keep_freed_memory()
