"""Run tasks in processes of this machine or on a cluster; a task is tried again if its
worker dies.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol

from perfgate.errors import UsageError

# A task that lost this number of workers is given up: its file is more likely the cause
# than the machine.
MOST_DEATHS = 2


class Task(NamedTuple):
    """A call that a worker can import, and the node of the cluster that must run it,
    None for any.
    """

    call: Callable[[], bytes]
    host: str | None = None


class Outcome(NamedTuple):
    """The answer of a task; None without one, and ``deaths`` is the number of its own
    workers that died since.
    """

    task: Task
    answer: bytes | None
    deaths: int = 0


class Executor(Protocol):
    """Runs tasks side by side."""

    def submit(self, task: Task) -> None:
        """Accept a task.

        If its worker died, it may be submitted again, also while the outcomes are read.
        """

    def outcomes(self) -> Iterator[Outcome]:
        """The outcomes of all submitted tasks as they end.

        Raises ClusterRefusedError if the cluster cannot run them.
        """


class Cluster(NamedTuple):
    """The cluster with the workers; ``address`` is HOST:PORT, and empty for Slurm,
    which the machine itself knows.
    """

    engine: Literal["ray", "dask", "slurm"]
    address: str = ""


def read_cluster(text: str) -> Cluster:
    """The cluster that ``--on`` names. Raises UsageError for anything else."""
    if text == "slurm":
        return Cluster("slurm")
    if address := re.fullmatch(r"(ray|dask)://(.+:\d+)", text):
        return Cluster("ray" if address[1] == "ray" else "dask", address[2])
    raise UsageError(
        "--on {text!r} is not a cluster; write ray://HOST:PORT, dask://HOST:PORT or slurm",
        text=text,
    )


def open_executor(
    on: Cluster | None, workers: int | None
) -> AbstractContextManager[Executor]:
    """The workers of a cluster; without one ``workers`` processes of this machine, by
    default one a CPU.

    Raises UsageError if a package is missing, and ClusterRefusedError if the cluster
    cannot be reached.
    """
    if on is None:
        from perfgate.flows.trace.executors.local import LocalExecutor

        return LocalExecutor(workers or os.cpu_count() or 1)
    if on.engine == "ray":
        from perfgate.flows.trace.executors.on_ray import RayExecutor

        return RayExecutor(on.address)
    if on.engine == "dask":
        from perfgate.flows.trace.executors.on_dask import DaskExecutor

        return DaskExecutor(on.address)
    from perfgate.flows.trace.executors.on_slurm import SlurmJobExecutor

    return SlurmJobExecutor()


def completed(
    executor: Executor, tasks: Sequence[Task]
) -> Iterator[tuple[Task, bytes | None]]:
    """Each task with its answer, as they end; None if its worker died, and another one
    that ran it again.
    """
    deaths: Counter[Task] = Counter()
    for task in tasks:
        executor.submit(task)
    for outcome in executor.outcomes():
        deaths[outcome.task] += outcome.deaths
        if outcome.answer is None and deaths[outcome.task] < MOST_DEATHS:
            executor.submit(outcome.task)
        else:
            yield outcome.task, outcome.answer


def cluster_package(module: str, extra: str) -> Any:
    """Import the package of a cluster.

    Raises UsageError with the extra that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            "--on {extra} needs the package {module}, which cannot be imported ({error}); run pip install 'perfgate[{extra}]'",
            module=module,
            extra=extra,
            error=error,
        ) from error
