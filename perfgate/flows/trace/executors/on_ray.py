"""Tasks on a Ray cluster, through its client server (``ray start --head`` listens on
port 10001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from perfgate.errors import ClusterRefusedError, UsageError
from perfgate.flows.trace.executors import Outcome, Task, cluster_package


class RayExecutor(AbstractContextManager["RayExecutor"]):
    """One CPU of the cluster for each task.

    Ray repeats none, so a death is always the death of the task's own worker.
    """

    def __init__(self, address: str) -> None:
        self._ray = cluster_package("ray", "ray")
        self._address = address
        self._remote = self._ray.remote(_run)
        self._running: dict[Any, Task] = {}
        try:
            self._ray.init(f"ray://{address}", log_to_driver=False)
        # Ray raises each of these for a cluster that does not answer, or has another
        # version of Ray or Python.
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ClusterRefusedError(
                "the Ray cluster at {address} cannot be reached: {error}; check the address and that Ray and Python have "
                "the same versions there",
                address=address,
                error=error,
            ) from error

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    def submit(self, task: Task) -> None:
        options: dict[str, Any] = {"max_retries": 0, "num_cpus": 1}
        if task.host is not None:
            options["scheduling_strategy"] = self._only_on(task.host)
        self._running[self._remote.options(**options).remote(task.call)] = task

    def _only_on(self, host: str) -> Any:
        nodes = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                nodes[node["NodeManagerHostname"]] = node["NodeID"]
                nodes[node["NodeManagerAddress"]] = node["NodeID"]
        if host not in nodes:
            raise UsageError(
                "{host} is not a node of the cluster; its nodes are {nodes}",
                host=host,
                nodes=", ".join(sorted(nodes)),
            )
        return self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            nodes[host], soft=False
        )

    def outcomes(self) -> Iterator[Outcome]:
        while self._running:
            (ended, *_), _ = self._ray.wait(list(self._running), num_returns=1)
            yield self._outcome(self._running.pop(ended), ended)

    def _outcome(self, task: Task, reference: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            return Outcome(task, self._ray.get(reference))
        except (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        ):
            return Outcome(task, None, deaths=1)
        except (errors.RayError, ConnectionError, RuntimeError) as error:
            raise ClusterRefusedError(
                "the Ray cluster at {address} cannot run the task: {error}; perfgate must be installed there in the same "
                "version",
                address=self._address,
                error=error,
            ) from error


def _run(call: Callable[[], bytes]) -> bytes:
    return call()
