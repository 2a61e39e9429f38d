"""Tasks as Slurm jobs, through submitit: one element of a job array each."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from perfgate.errors import ClusterRefusedError, UsageError
from perfgate.flows.trace.executors import Outcome, Task, cluster_package

# Slurm's own limit of an array is 1001 elements (MaxArraySize, slurm.conf(5)).
_MOST_IN_ARRAY = 1000
_MINUTES = 60
_SECONDS_BETWEEN_LOOKS = 1.0
# A result may be seen later than its job's end, because network file systems keep
# folders for a while.
_SECONDS_OF_GRACE = 15.0


class SlurmJobExecutor(AbstractContextManager["SlurmJobExecutor"]):
    """Jobs of one CPU and at most an hour, unless sbatch's own variables say otherwise
    (SBATCH_PARTITION, SBATCH_TIMELIMIT).

    ``squeue`` shows which jobs have ended, because ``sacct`` answers only on clusters
    with accounting.
    """

    def __init__(self) -> None:
        self._submitit = cluster_package("submitit", "slurm")
        if shutil.which("sbatch") is None:
            raise ClusterRefusedError(
                "--on slurm: there is no sbatch here; start it on a node from which jobs are submitted"
            )
        try:
            # The nodes share the current folder, and seldom one for temporary files.
            self._folder = Path(mkdtemp(prefix=".perfgate-slurm-", dir=Path.cwd()))
        except OSError as error:
            raise UsageError(
                "--on slurm keeps the files of its jobs in the current folder, which cannot be written: {error}; start it in a "
                "folder that all nodes see",
                error=error,
            ) from error
        self._waiting: list[Task] = []
        self._running: dict[Any, Task] = {}
        self._ended_at: dict[Any, float] = {}

    def __exit__(self, *_: object) -> None:
        for job in self._running:
            job.cancel(check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def submit(self, task: Task) -> None:
        self._waiting.append(task)

    def outcomes(self) -> Iterator[Outcome]:
        while self._waiting or self._running:
            self._submit_waiting()
            # Asked before the results are looked for: a job that ended in between has
            # one.
            queued, now = self._queued(), time.monotonic()
            for job in list(self._running):
                if job.paths.result_pickle.exists():
                    yield Outcome(self._running.pop(job), self._result(job))
                elif (
                    job.job_id not in queued
                    and now - self._ended_at.setdefault(job, now) > _SECONDS_OF_GRACE
                ):
                    yield Outcome(self._running.pop(job), None, deaths=1)
            if self._running:
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _submit_waiting(self) -> None:
        by_host: defaultdict[str | None, list[Task]] = defaultdict(list)
        for task in self._waiting:
            by_host[task.host].append(task)
        self._waiting.clear()
        for host, tasks in by_host.items():
            rest = iter(tasks)
            while array := list(islice(rest, _MOST_IN_ARRAY)):
                self._submit_array(array, host)

    def _submit_array(self, tasks: list[Task], host: str | None) -> None:
        try:
            executor = self._submitit.SlurmExecutor(self._folder)
            executor.update_parameters(
                job_name="perfgate",
                time=_MINUTES,
                cpus_per_task=1,
                additional_parameters={} if host is None else {"nodelist": host},
            )
            with executor.batch():
                jobs = [executor.submit(task.call) for task in tasks]
        except (
            self._submitit.core.utils.FailedJobError,
            self._submitit.core.utils.FailedSubmissionError,
            OSError,
        ) as error:
            raise ClusterRefusedError(
                "sbatch refused the jobs: {error}", error=error
            ) from error
        self._running.update(zip(jobs, tasks))

    def _queued(self) -> set[str]:
        """The ids of the user's jobs that have not ended, array elements apart."""
        command = [
            "squeue",
            "--noheader",
            "--array",
            "--format=%i",
            f"--user={getpass.getuser()}",
        ]
        try:
            return set(
                subprocess.run(
                    command, capture_output=True, text=True, check=True
                ).stdout.split()
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise ClusterRefusedError(
                "squeue does not answer: {error}",
                error=getattr(error, "stderr", "") or error,
            ) from error

    def _result(self, job: Any) -> bytes:
        try:
            result: bytes = job.result()
        except self._submitit.core.utils.FailedJobError as error:
            raise ClusterRefusedError(
                "a job of Slurm cannot run the task: {error}; perfgate must be installed in the same place on every node",
                error=error,
            ) from error
        return result
