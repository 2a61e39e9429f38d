"""The bench: fork servers, a scratch folder and the limits, from which loaded workers are taken."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.machine.cpus import granted_cpus, granted_memory
from perfgate.conductor.machine.device_probe import explain_closed, probe_device
from perfgate.conductor.machine.watcher import Watcher, namespace_ids, watching
from perfgate.conductor.workers.environment import device_kind, fresh_caches, reused_caches, worker_environment
from perfgate.conductor.workers.interpreters import RUNNING, share_code, with_code
from perfgate.conductor.workers.leftovers import kill_leftovers, left_processes, remove
from perfgate.conductor.workers.logs import one_line
from perfgate.conductor.workers.proc_stats import process_family
from perfgate.conductor.workers.scratch import scratch_folder
from perfgate.conductor.workers.server import ForkServer
from perfgate.conductor.workers.worker import Say, Worker
from perfgate.config import Config, WorkloadReference
from perfgate.document.doctor import FitnessCheck
from perfgate.document.run import IDENTITY, Testbed
from perfgate.errors import MeasuringError
from perfgate.protocol import (
    AnalyseRequest,
    Analysis,
    HarnessReply,
    HarnessRequest,
    Loaded,
    LoadRequest,
    LoadWatched,
    TestbedReply,
    TestbedRequest,
    WatchLoadRequest,
)
from perfgate.system.interrupts import held_back
from perfgate.system.processes import adopt_orphans, children

MEMORY_SHARE = 0.9
# Importing torch is not the workload's doing: a short limit for loading the workload must not end it on a slow disk.
PRELOAD_SECONDS = 120.0
# Some readings of npu-smi, each of a second or two.
LOAD_SECONDS = 10.0
# What makes torch know a kind of device, imported once behind torch: torch before 2.5 does not look for it by itself.
_BACKEND_PACKAGES = {"npu": "torch_npu"}


@dataclass(frozen=True)
class Checkout:
    """Code to measure: ``root`` is what its imports come from, ``harness`` the folder the workload files stand in.

    The harness is that of the head on both sides, so that a change of the workload file itself cannot look like a change of
    speed. ``python`` is the interpreter that runs it, None the one that runs perfgate; ``second_server`` takes its workers
    from another fork server of the same interpreter.
    """

    root: Path
    harness: Path
    python: Path | None = None
    second_server: bool = False


class _ServerKey(NamedTuple):
    """Which fork server: of an interpreter the first, or the second."""

    python: Path | None = None
    second: bool = False


def _key(checkout: Checkout) -> _ServerKey:
    return _ServerKey(checkout.python, checkout.second_server)


class Bench:
    """Where workers come from. Those of one interpreter share a fork server, so that base and head share their memory layout.

    A fork server that dies (the kernel's out-of-memory killer may choose it) costs the worker it dies under; the next
    worker gets a new one. With ``one_code`` every interpreter finds the perfgate that runs us, before any of its own.
    ``start_server`` takes the arguments of ``ForkServer``.
    """

    def __init__(
        self,
        config: Config,
        *,
        scratch: Path,
        logs: Path,
        say: Say,
        one_code: bool = False,
        start_server: Callable[..., ForkServer] = ForkServer,
    ) -> None:
        self.config = config
        self.say = say
        self.cpus = granted_cpus()
        self.threads = config.measure.threads or len(self.cpus)
        self._scratch = scratch
        self._logs = logs
        self._one_code = one_code
        self._start_server = start_server
        self._servers: dict[_ServerKey, ForkServer] = {}
        self._coming: dict[_ServerKey, ForkServer] = {}
        self._recordings: dict[Path | None, Path] = {}
        self._homes: dict[Path | None, Path] = {}
        self._left: dict[Path | None, list[list[str]]] = {}
        self._hash_seed = config.measure.seed
        self._own: set[int] = set()
        self._unwatched: dict[str, None] = {}

    def testbed(self, python: Path | None = None) -> Testbed:
        """Return the testbed as a fresh worker of an interpreter sees it.

        Raises MeasuringError when the device cannot be opened, with what stands in its way.
        """
        worker = self._fork(_ServerKey(python), self.cpus, log_name="testbed")
        try:
            request = TestbedRequest(device=self.config.device, threads=self.threads)
            return worker.ask(request, TestbedReply, timeout=120, doing=f"opening device {self.config.device}").testbed
        except MeasuringError as error:
            raise self._explained(error, python) from error
        finally:
            worker.close()

    def watch_load(self) -> list[FitnessCheck]:
        """Let a fresh worker load the device for some seconds, and return what its clock did.

        Raises MeasuringError when the device cannot be opened or loaded.
        """
        worker = self._fork(_ServerKey(), self.cpus, log_name="load")
        try:
            request = WatchLoadRequest(device=self.config.device, seconds=LOAD_SECONDS)
            return worker.ask(request, LoadWatched, timeout=120, doing=f"loading {self.config.device}").checks
        finally:
            worker.close()

    def read_harness(self, checkout: Checkout, reference: WorkloadReference) -> HarnessReply:
        """Return what a workload file measures, without building anything. Raises WorkerError when it cannot be imported."""
        worker = self._fork(_key(checkout), self.cpus, log_name=f"{reference.name}-harness", root=checkout.root)
        request = HarnessRequest(
            name=reference.name,
            file=str(checkout.harness / reference.file),
            attribute=reference.attribute,
            root=str(checkout.root),
            python_path=self.config.measure.python_path,
        )
        try:
            timeout = self.config.measure.load_timeout
            return worker.ask(request, HarnessReply, timeout=timeout, doing=f"reading workload {reference.name}")
        finally:
            self._end(worker, checkout.root)

    def recordings(self, python: Path | None) -> Path:
        """Return the folder in which workers of an interpreter leave what a profiler recorded, to be analysed later."""
        folder = self._recordings.get(python)
        if folder is None:
            # torch_npu takes no path with characters beyond these, and none that others may write to.
            folder = Path(tempfile.mkdtemp(prefix="recordings_", dir=self._scratch)).resolve()
            self._recordings[python] = folder
        return folder

    def analyse(
        self,
        python: Path | None,
        recordings: list[str],
        *,
        timeout: float,
        traces: dict[str, str] | None = None,
    ) -> Analysis:
        """Each operator's typical seconds in the recordings that an interpreter's workers left.

        ``traces`` maps some of them to the file, without its suffix, as which they stay. A recording that could not be
        analysed is left out. Raises WorkerError where none could.
        """
        worker = self._fork(_ServerKey(python), self.cpus, log_name="analysis")
        folder = str(self.recordings(python))
        request = AnalyseRequest(device=self.config.device, folder=folder, recordings=recordings, traces=traces or {})
        doing = f"analysing {len(recordings)} recordings of the profiler"
        try:
            return worker.ask(request, Analysis, timeout=timeout, doing=doing)
        finally:
            worker.close()
            # They may be gigabytes.
            for recording in recordings:
                shutil.rmtree(recording, ignore_errors=True)

    def log(self, name: str) -> Path:
        """Return the log that keeps what user code prints."""
        return self._logs / f"{name}.log"

    @contextmanager
    def worker(
        self,
        checkout: Checkout,
        reference: WorkloadReference,
        *,
        cpus: list[int],
        layout_seed: int,
        log_name: str,
        dead_functions: int = 0,
    ) -> Iterator[tuple[Worker, Loaded]]:
        """Yield a worker with the workload loaded, and what it says of itself; the worker ends with the context.

        Raises WorkerError when there is no worker, or it cannot load the workload.
        """
        worker = self._fork(_key(checkout), cpus, layout_seed=layout_seed, log_name=log_name, root=checkout.root)
        try:
            threads = min(self.threads, len(cpus))
            yield worker, self._load(worker, checkout, reference, threads=threads, dead_functions=dead_functions)
        finally:
            self._end(worker, checkout.root)

    @contextmanager
    def watching(self, testbed: Testbed) -> Iterator[Watcher]:
        """Watch the device while pairs run; where nothing tells its state, the watcher has seen nothing and says why."""
        with ExitStack() as stack:
            watch = watching(
                self.config.device,
                testbed.observed.get(IDENTITY, ""),
                own=self._own,
                environment=self._environment(),
                folder=self._scratch,
            )
            try:
                watcher = stack.enter_context(watch)
            except MeasuringError as error:
                self._unwatched[str(error)] = None
                watcher = Watcher(None, own=self._own)
            yield watcher

    def watch_notes(self) -> list[str]:
        """Return what a document says where nothing watched the device."""
        return [f"nothing watched {self.config.device} beside the pairs: {one_line(why)}" for why in self._unwatched]

    def left_notes(self, root: Path | None = None) -> list[str]:
        """Return what a document says of what the workers of a checkout left running, or of what is nobody's."""
        return left_processes(self._left.get(root, []))

    def cache_notes(self) -> list[str]:
        """Return what a document says of kernels that may be older than the job."""
        reused = reused_caches(self._allowed())
        return [f"reused kernel caches that an earlier job may have filled: {', '.join(reused)}"] if reused else []

    def note_orphans(self, names: list[str]) -> None:
        """Keep the names of processes that are nobody's any more."""
        self._left.setdefault(None, []).append(names)

    def start(self, python: Path | None = None, *, second: bool = False) -> ForkServer:
        """Start an interpreter's fork server and wait for its imports.

        Raises MeasuringError when a preloaded module fails, with what stands in the way of the device.
        """
        server = self._servers[_ServerKey(python, second)] = self._launch(python)
        try:
            server.wait_ready(timeout=max(self.config.measure.load_timeout, PRELOAD_SECONDS))
        except MeasuringError as error:
            raise self._explained(error, python) from error
        return server

    def start_beside(self, hash_seed: int) -> None:
        """Start new fork servers, with other addresses and other hashes, beside those that run, unless some still start."""
        if not self._coming:
            self._hash_seed = hash_seed
            self._coming = {key: self._launch(key.python) for key in self._servers}

    def renew(self) -> None:
        """Put the fork servers that were started beside in the place of those that run, once all of them are ready.

        Raises MeasuringError when a preloaded module fails.
        """
        if self._coming and all(server.is_ready() for server in self._coming.values()):
            old, self._servers, self._coming = self._servers, self._coming, {}
            for server in old.values():
                server.close()

    def redraw(self, hash_seed: int) -> None:
        """End every fork server: the next worker gets one with other addresses and other hashes."""
        self.close()
        self._hash_seed = hash_seed

    def close(self) -> None:
        """End every fork server and its workers."""
        for servers in (self._servers, self._coming):
            while servers:
                _, server = servers.popitem()
                server.close()

    def get_ready(self, checkout: Checkout) -> None:
        """Start the fork server of a checkout where it does not run, so that no worker has to wait for it."""
        self._server(_key(checkout))

    def _launch(self, python: Path | None) -> ForkServer:
        return self._start_server(
            python or RUNNING,
            environment=self._environment(),
            preload=self._preload(),
            folder=Path(tempfile.mkdtemp(prefix="server-", dir=self._scratch)),
            say=self.say,
        )

    def _server(self, key: _ServerKey) -> ForkServer:
        server = self._servers.get(key)
        if server is not None and server.running:
            return server
        if server is not None:
            server.close()
        return self.start(key.python, second=key.second)

    def _fork(
        self, key: _ServerKey, cpus: list[int], *, log_name: str, layout_seed: int = 0, root: Path | None = None
    ) -> Worker:
        worker = self._server(key).fork(
            cpus=cpus,
            layout_seed=layout_seed,
            home=self._home(root),
            log=self.log(log_name),
            memory_limit=self._memory_limit(),
        )
        self._own |= namespace_ids(worker.pid)
        return worker

    def _end(self, worker: Worker, root: Path) -> None:
        for process in process_family(worker.pid) if worker.pid else ():
            self._own |= namespace_ids(process)
        worker.close()
        if worker.exited is not None:
            self._left.setdefault(root, []).append(worker.exited.left_behind)

    def _home(self, root: Path | None) -> Path:
        """Return the home of the workers of a checkout: caches of compilers start empty for base and head alike."""
        if root not in self._homes:
            self._homes[root] = Path(tempfile.mkdtemp(prefix="home-", dir=self._scratch))
        return self._homes[root]

    def _environment(self) -> dict[str, str]:
        environment = self._allowed()
        return with_code(environment, share_code(self._scratch / "code")) if self._one_code else environment

    def _allowed(self) -> dict[str, str]:
        """Return what workers get of our environment; asked also when the scratch folder is gone."""
        measure = self.config.measure
        return worker_environment(
            os.environ,
            device=self.config.device,
            scratch=self._scratch,
            threads=self.threads,
            hash_seed=self._hash_seed,
            pass_env=measure.pass_env,
            reuse_caches=measure.reuse_caches,
        )

    def _preload(self) -> list[str]:
        """Return what the fork server imports: what the project asks for, and what belongs to torch on the device."""
        preload = self.config.measure.preload
        backend = _BACKEND_PACKAGES.get(device_kind(self.config.device))
        if backend is None or backend in preload or "torch" not in preload:
            return preload
        behind = preload.index("torch") + 1
        return [*preload[:behind], backend, *preload[behind:]]

    def _explained(self, error: MeasuringError, python: Path | None) -> MeasuringError:
        """Return an error of starting or opening with what the device's probe finds wrong; the CPU has none."""
        if device_kind(self.config.device) == "cpu":
            return error
        self.say(f"looking at what stands in the way of {self.config.device}")
        checks = probe_device(python or RUNNING, self.config.device, self._environment(), cwd=self._scratch)
        text = explain_closed(str(error), self.config.device, checks)
        return error if text == str(error) else MeasuringError(text)

    def _memory_limit(self) -> int:
        return self.config.measure.memory_limit or int(granted_memory() * MEMORY_SHARE)

    def _load(
        self, worker: Worker, checkout: Checkout, reference: WorkloadReference, *, threads: int, dead_functions: int
    ) -> Loaded:
        measure = self.config.measure
        request = LoadRequest(
            name=reference.name,
            file=str(checkout.harness / reference.file),
            attribute=reference.attribute,
            root=str(checkout.root),
            python_path=measure.python_path,
            device=self.config.device,
            seed=measure.seed,
            threads=threads,
            dead_functions=dead_functions,
        )
        doing = f"loading workload {reference.name}"
        return worker.ask(request, Loaded, timeout=measure.load_timeout, doing=doing)


@contextmanager
def open_bench(config: Config, *, logs: Path, say: Say, pythons: Iterable[Path | None] = (None,)) -> Iterator[Bench]:
    """Start a fork server for each of ``pythons`` in a scratch home; at the end nothing of them is left.

    Raises MeasuringError when a preloaded module cannot be imported.
    """
    logs.mkdir(parents=True, exist_ok=True)
    # Logs are appended to by many workers; those of an earlier run in the same folder are not ours.
    for old in logs.glob("*.log"):
        remove(old)
    measure = config.measure
    if fresh := fresh_caches(os.environ, reuse=measure.reuse_caches, pass_env=measure.pass_env):
        say(f"kernel caches start empty: {', '.join(fresh)} not passed on; [measure] reuse_caches = true would")
    adopt_orphans()
    with held_back(), scratch_folder() as scratch:
        ours = children()
        chosen = dict.fromkeys(pythons)
        bench = Bench(config, scratch=scratch, logs=logs.resolve(), say=say, one_code=any(chosen))
        try:
            for python in chosen:
                bench.start(python)
            yield bench
        finally:
            bench.close()
            bench.note_orphans(kill_leftovers(scratch, spare=ours))
