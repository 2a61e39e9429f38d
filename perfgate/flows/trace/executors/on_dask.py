"""Tasks on the workers of a Dask scheduler."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from perfgate.errors import ClusterRefusedError, UsageError
from perfgate.flows.trace.executors import Outcome, Task, cluster_package


class DaskExecutor(AbstractContextManager["DaskExecutor"]):
    """The scheduler repeats the tasks of a dead worker itself, by default three times
    (its ``allowed-failures``).

    It blames every task that the worker had, also those that still waited there, so
    each one is tried again alone.
    """

    def __init__(self, address: str) -> None:
        self._distributed = cluster_package("distributed", "dask")
        self._address = address
        self._running: dict[Any, Task] = {}
        self._suspected: list[Task] = []
        try:
            self._client = self._distributed.Client(f"tcp://{address}")
        # Until Python 3.11, asyncio's error is not an OSError.
        except (OSError, asyncio.TimeoutError, ValueError) as error:
            raise ClusterRefusedError(
                "the Dask scheduler at {address} cannot be reached: {error}; check the address and that it runs",
                address=address,
                error=error,
            ) from error

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def submit(self, task: Task) -> None:
        workers = None if task.host is None else self._workers_on(task.host)
        # A task is not a pure function: its file may have changed since the last time.
        self._running[self._client.submit(task.call, pure=False, workers=workers)] = (
            task
        )

    def _workers_on(self, host: str) -> list[str]:
        workers = [address for address, names in self._hosts.items() if host in names]
        if not workers:
            nodes = sorted(set().union(*self._hosts.values()))
            raise UsageError(
                "{host} is not a node of the cluster; its nodes are {nodes}",
                host=host,
                nodes=", ".join(nodes),
            )
        return workers

    @cached_property
    def _hosts(self) -> dict[str, tuple[str, str]]:
        """The names of each worker's node by the worker's address."""
        address_of = self._distributed.comm.get_address_host
        names = self._client.run(socket.gethostname)
        return {worker: (name, address_of(worker)) for worker, name in names.items()}

    def outcomes(self) -> Iterator[Outcome]:
        while self._running or self._suspected:
            is_alone = not self._running
            if is_alone:
                self.submit(self._suspected.pop())
            self._distributed.wait(list(self._running), return_when="FIRST_COMPLETED")
            for future in [future for future in self._running if future.done()]:
                outcome = self._outcome(self._running.pop(future), future)
                if outcome.deaths and not is_alone:
                    self._suspected.append(outcome.task)
                else:
                    yield outcome

    def _outcome(self, task: Task, future: Any) -> Outcome:
        try:
            return Outcome(task, future.result())
        except self._distributed.KilledWorker as error:
            return Outcome(task, None, deaths=1 + getattr(error, "allowed_failures", 0))
        except (OSError, asyncio.CancelledError, ImportError) as error:
            raise ClusterRefusedError(
                "the Dask cluster at {address} cannot run the task: {error}; perfgate must be installed there in the same "
                "version",
                address=self._address,
                error=str(error) or type(error).__name__,
            ) from error
