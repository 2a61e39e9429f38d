"""The bench: fork servers, a scratch folder and the limits, from which loaded workers are taken."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from perfgate.conductor.machine.cpus import granted_cpus, granted_memory
from perfgate.conductor.machine.watcher import Watcher, namespace_ids, watching
from perfgate.conductor.workers.cleanup import kill_leftovers, leftover_notes, remove, scratch_folder
from perfgate.conductor.workers.environment import (
    MALLOC_SETTINGS,
    WAIT_POLICY,
    find_secrets,
    fresh_caches,
    reused_caches,
    worker_environment,
)
from perfgate.conductor.workers.foresight import Foresee, foresee_nothing
from perfgate.conductor.workers.host_builds import HostBuilds
from perfgate.conductor.workers.host_server import HostServer
from perfgate.conductor.workers.hubs import show_hub_caches
from perfgate.conductor.workers.interpreters import RUNNING, explain_closed, probe_device, share_code, with_code
from perfgate.conductor.workers.load_log import LoadLog, with_reports
from perfgate.conductor.workers.loading import AheadWorker, LoadingWorker
from perfgate.conductor.workers.parking import Parking
from perfgate.conductor.workers.seals import SealedFolder, sealed_files, sealed_tree
from perfgate.conductor.workers.worker import ForkServer, Say, Worker, WorkerError, WorkerSource
from perfgate.config import Config, MeasureSettings, WorkloadReference, device_kind
from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, distinct, reason_of
from perfgate.document.run import ErrorDetail, Side
from perfgate.document.testbed import IDENTITY, Testbed
from perfgate.errors import MeasuringError
from perfgate.locale import Activity, sentence
from perfgate.protocol import (
    AnalyseRequest,
    Analysis,
    CallTimed,
    HarnessReply,
    HarnessRequest,
    Loaded,
    LoadRequest,
    LoadWatched,
    TestbedReply,
    TestbedRequest,
    TimeCallRequest,
    Tried,
    TryRequest,
    Watched,
    WatchLoadRequest,
)
from perfgate.system.interrupts import held_back
from perfgate.system.processes import adopt_orphans, children, process_family
from perfgate.system.walls import Room

MEMORY_SHARE = 0.9
# Importing torch is not the workload's doing: a short limit for loading the workload must not end it on a slow disk.
PRELOAD_SECONDS = 120.0
# Opening a device, and a fresh worker's first use of it.
DEVICE_SECONDS = 120.0
# A model that takes longer to load, or to answer, is not tried before it is measured.
TRIAL_LOAD_SECONDS = 15.0
TRIAL_SECONDS = 3.0
WATCHED_CALLS_SECONDS = 60.0
# Some readings of npu-smi, each of a second or two.
LOAD_SECONDS = 10.0
# Packages that register a kind of device with torch, imported once after torch: torch before 2.5 does not look for them by
# itself.
_BACKEND_PACKAGES = {"npu": "torch_npu"}
# In a room: the home of what runs there, and the recordings of its profiler. Stacks of its workers lie next to them.
_HOME, _RECORDINGS = "home", "recordings"
_SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


class _ServerKey(NamedTuple):
    """Which fork server: of an interpreter the first, or the second."""

    python: Path | None = None
    second: bool = False


@dataclass(frozen=True)
class Checkout:
    """Code to measure: ``root`` is the root of its imports, ``harness`` the folder of the workload files.

    The harness is that of the head on both sides, so that a change of the workload file itself cannot look like a change of
    speed. ``python`` is the interpreter that runs it, None the one that runs perfgate; ``second_server`` takes its workers
    from another fork server of the same interpreter. ``measure`` are the settings of its own perfgate.toml, None if they are
    the bench's.
    """

    root: Path
    harness: Path
    python: Path | None = None
    second_server: bool = False
    measure: MeasureSettings | None = field(default=None, hash=False)

    @property
    def server(self) -> _ServerKey:
        return _ServerKey(self.python, self.second_server)


class Bench:
    """The source of workers. Those of one interpreter share a fork server, so that base and head share their memory layout.

    A fork server that ends and that we did not end is the end of the measurement: whoever ended it may have prepared what
    the next one would find. With ``one_code`` every interpreter finds the perfgate that runs us, before any of its own.
    ``start_server`` takes the arguments of ``ForkServer``; the processes report their imports to ``loads``.
    """

    def __init__(
        self,
        config: Config,
        *,
        scratch: Path,
        logs: Path,
        say: Say,
        foresee: Foresee = foresee_nothing,
        one_code: bool = False,
        loads: LoadLog | None = None,
        start_server: Callable[..., ForkServer] = ForkServer,
    ) -> None:
        self.config = config
        self.say = say
        self.foresee = foresee
        self.cpus = granted_cpus()
        self.threads = config.measure.threads or len(self.cpus)
        self._scratch = scratch
        self._logs = logs
        self._one_code = one_code
        self._loads = loads
        self._start_server = start_server
        self._servers: dict[_ServerKey, ForkServer] = {}
        self._starting: dict[_ServerKey, ForkServer] = {}
        # How often fork servers with other addresses and other hashes took the place of those before.
        self.draws = 0
        self._hash_seed = config.measure.seed
        self._parts = False
        # By interpreter, the folder of everything that its processes work in, and by checkout the room in it.
        self._houses: dict[Path | None, Path] = {}
        self._rooms: dict[tuple[Path | None, Path | None], Path] = {}
        # Names of processes that workers left running, by their checkout; None if unknown.
        self.leftovers: dict[Path | None, list[list[str]]] = defaultdict(list)
        self._worker_ids: set[int] = set()
        self._unwatched: list[Message] = []
        # How a fork server ended that we did not end.
        self._lost: ErrorDetail | None = None
        self.host_builds = HostBuilds(self)
        # How many processes of the workload that was tried last fit on the device; None if that is unknown.
        self.copies_fit: int | None = None
        # Set if only one fits.
        self.parking: Parking | None = None
        # Workers that load ahead of their use.
        self._ahead: dict[tuple[Checkout, str], AheadWorker] = {}

    # --- fork servers

    @property
    def is_accelerated(self) -> bool:
        """Whether workloads run on a device other than the CPU: processes that opened it cannot be forked."""
        return device_kind(self.config.device) != "cpu"

    def start(self, python: Path | None = None, *, second: bool = False) -> ForkServer:
        """Start an interpreter's fork server and wait for its imports.

        Raises MeasuringError when a preloaded module fails, with the device's fault.
        """
        server = self._servers[_ServerKey(python, second)] = self._launch(python)
        try:
            server.wait_ready(timeout=max(self.config.measure.load_timeout, PRELOAD_SECONDS))
        except MeasuringError as error:
            raise self._explained(error, python) from error
        return server

    def get_ready(self, checkout: Checkout) -> None:
        """Start the fork server of a checkout unless it runs, so that no worker has to wait for it."""
        self._server(checkout.server)

    def start_beside(self, hash_seed: int, *, parts: Sequence[str] = ()) -> None:
        """Start new fork servers, with other addresses and other hashes, beside those that run, unless some still start.

        They import ``parts`` too, until ``forget_parts``.
        """
        if not self._starting:
            self._hash_seed = hash_seed
            self._parts |= bool(parts)
            self._starting = {key: self._launch(key.python, parts) for key in self._servers}

    def forget_parts(self) -> None:
        """End the fork servers if they imported parts: the first load of a workload must include those imports."""
        if self._parts:
            self.close()
            self._parts = False

    def renew(self, *, let_go: Callable[[], None]) -> None:
        """Put the fork servers that were started beside in the place of those that run, once all of them are ready.

        They are ready if they have also built what is built on the host. ``let_go`` is called before those end, to close
        their remaining workers. Raises MeasuringError when a preloaded module fails.
        """
        if self.has_next:
            let_go()
            self.let_go_ahead()
            self.draws += 1
            old, self._servers, self._starting = self._servers, self._starting, {}
            for server in old.values():
                self._close(server)

    @property
    def has_next(self) -> bool:
        """Whether ``renew`` would replace the fork servers now."""
        return bool(self._starting) and all(self._is_prepared(*entry) for entry in self._starting.items())

    def _is_prepared(self, key: _ServerKey, server: ForkServer) -> bool:
        """Whether a server has imported its modules, and has built the workloads on the host, or cannot; begins the latter."""
        if not server.is_ready():
            return False
        checkouts = [checkout for checkout in self.host_builds.checkouts if checkout.server == key]
        return self.host_builds.are_built_on(server, checkouts)

    def redraw(self, hash_seed: int) -> None:
        """End every fork server: the next worker gets one with other addresses and other hashes."""
        self.close()
        self.draws += 1
        self._hash_seed = hash_seed

    def close(self) -> None:
        """End every fork server and its workers."""
        self.let_go_ahead()
        for servers in (self._servers, self._starting):
            while servers:
                _, server = servers.popitem()
                self._close(server)

    def _close(self, server: ForkServer) -> None:
        self._lost = self._lost or server.lost
        server.close()

    def _launch(self, python: Path | None, parts: Sequence[str] = ()) -> ForkServer:
        # The fork server imports what the project names, and torch's package for the device.
        preload = list(self.config.measure.preload)
        backend = _BACKEND_PACKAGES.get(device_kind(self.config.device))
        if backend is not None and backend not in preload and "torch" in preload:
            preload.insert(preload.index("torch") + 1, backend)
        return self._start_server(
            python or RUNNING,
            environment=_without_current_folder(self._environment()),
            preload=preload,
            parts=parts,
            folder=Path(tempfile.mkdtemp(prefix="server-", dir=self._house(python))),
            room=None if python is None else self._walls(self._house(python)),
            say=self.say,
        )

    def servers(self) -> list[ForkServer]:
        return [*self._servers.values(), *self._starting.values()]

    def server_of(self, checkout: Checkout) -> ForkServer:
        return self._server(checkout.server)

    def fork_host(self, server: ForkServer, checkout: Checkout, reference: WorkloadReference) -> HostServer:
        """Fork a server that builds a workload on the host."""
        room = self._room(checkout.python, checkout.root)
        worker = server.fork(
            cpus=self.cpus,
            layout_seed=0,
            home=room / _HOME,
            room=self._walls(room),
            variables=self._own_variables(checkout),
            root=checkout.root,
            log=self.log(f"{reference.name}-host"),
            memory_limit=self._memory_limit,
            builds=self._load_request(checkout, reference, cpus=self.cpus),
        )
        self._worker_ids |= namespace_ids(worker.pid)
        return HostServer(worker, folder=Path(f"host-{worker.worker_id}"), say=self.say)

    def _server(self, key: _ServerKey) -> ForkServer:
        server = self._servers.get(key)
        if server is not None:
            self._lost = self._lost or server.lost
        if self._lost is not None:
            raise WorkerError(self._lost, alive=False)
        return server or self.start(key.python, second=key.second)

    def _environment(self) -> dict[str, str]:
        environment = with_reports(self._allowed_environment(), self._loads)
        return with_code(environment, share_code(self._scratch / "code")) if self._one_code else environment

    def program_environment(self, checkout: Checkout, *, threads: int) -> dict[str, str]:
        """The environment of a side's program: that of workers without their tuning, and with its checkout's code before any
        other.

        The side's interpreter is the first ``python`` that it finds.
        """
        tuned = {*MALLOC_SETTINGS, *WAIT_POLICY} - os.environ.keys()
        environment = {name: value for name, value in self._allowed_environment().items() if name not in tuned}
        python = checkout.python or RUNNING
        own = [str(folder) for folder in self.python_path(checkout) if folder.is_dir()]
        environment |= self._own_variables(checkout)
        path = os.pathsep.join([*own, *filter(None, [environment.get("PYTHONPATH")])])
        home = str(self._room(checkout.python, checkout.root) / _HOME)
        environment.update(
            PATH=os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)]),
            PYTHONPATH=path,
            HOME=home,
            TMPDIR=home,
            # A program may mean to have all the CPUs that it is bound to.
            OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", str(threads)),
        )
        environment = with_reports(environment, self._loads)
        return with_code(environment, share_code(self._scratch / "code"))

    def _allowed_environment(self) -> dict[str, str]:
        """The part of our environment that workers get; also needed when the scratch folder is gone."""
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

    def _explained(self, error: MeasuringError, python: Path | None) -> MeasuringError:
        """An error of starting or opening, with the faults that the device's probe reports; the CPU has no probe."""
        device = self.config.device
        if device_kind(device) == "cpu":
            return error
        self.say(sentence("diagnosing why {device} cannot be opened", device=device))
        checks = probe_device(python or RUNNING, device, self._environment(), cwd=self._scratch)
        package = _BACKEND_PACKAGES.get(device_kind(device), "")
        if package and package not in self.config.measure.preload and f"No module named {package!r}" in str(error):
            error = MeasuringError(
                "device {device!r} needs {package}, which {python} does not have; install the {package} of the same "
                "version as torch there, or set device to one that is here",
                device=device,
                package=package,
                python=python or RUNNING,
            )
        text = explain_closed(str(error), device, checks)
        return error if text == str(error) else MeasuringError(text)

    def seal_shared_code(self) -> SealedFolder:
        """The folder from which programs, and the workers of another interpreter, import perfgate."""
        return sealed_tree("perfgate's link to itself", share_code(self._scratch / "code"))

    # --- workers

    @contextmanager
    def worker(
        self,
        checkout: Checkout,
        reference: WorkloadReference,
        *,
        cpus: list[int],
        layout_seed: int,
        log_name: str,
        load_timeout: float | None = None,
        room: Path | None = None,
        watch: Watched | None = None,
        reports: socket.socket | None = None,
    ) -> Iterator[tuple[Worker, Loaded]]:
        """Yield a worker with the workload loaded, and its own description; the worker ends with the context.

        Raises WorkerError when there is no worker, or it cannot load the workload.
        """
        loading = self.loading(
            checkout,
            reference,
            cpus=cpus,
            layout_seed=layout_seed,
            log_name=log_name,
            load_timeout=load_timeout,
            room=room,
            watch=watch,
            reports=reports,
        )
        with loading as worker:
            yield worker.worker, worker.wait()

    # --- loading once for several workers

    @property
    def loads_slowly(self) -> bool:
        """Whether every worker builds its model for a device, so that loading takes long."""
        return self.is_accelerated and not self.host_builds.are_used

    def fits(self, copies: int) -> bool:
        """Whether the device is known to hold this many processes at once."""
        return self.copies_fit is not None and copies <= self.copies_fit

    def load_ahead(self, checkout: Checkout, reference: WorkloadReference) -> None:
        """Begin to load a workload that the next worker of the checkout takes over."""
        if not self.has_ahead(checkout, reference):
            loading = self.loading(checkout, reference, cpus=self.cpus, layout_seed=0, log_name=reference.name)
            self._ahead[checkout, reference.name] = AheadWorker.begin(loading)

    def has_ahead(self, checkout: Checkout, reference: WorkloadReference) -> bool:
        return (checkout, reference.name) in self._ahead

    def let_go_ahead(self) -> None:
        """End the workers that have loaded ahead of their use."""
        while self._ahead:
            _, ahead = self._ahead.popitem()
            ahead.stack.close()

    @contextmanager
    def loading(  # noqa: PLR0913 - all by name
        self,
        checkout: Checkout,
        reference: WorkloadReference,
        *,
        cpus: list[int],
        layout_seed: int,
        log_name: str,
        scatters: bool = False,
        on_next: bool = False,
        load_timeout: float | None = None,
        room: Path | None = None,
        watch: Watched | None = None,
        reports: socket.socket | None = None,
        source: HostServer | None = None,
    ) -> Iterator[LoadingWorker]:
        """Yield a worker that begins to load the workload; it ends with the context.

        If it ``scatters``, the workload is loaded into memory with holes at random places, by the ``layout_seed``. ``room``
        replaces the room that the checkout's workers share; a trial may ``watch`` files, and sends what it sees of them to
        ``reports``. If it comes ``on_next``, it is forked from the server that replaces the present one at the next renewal,
        if there is one; ``source`` has the model already. Raises WorkerError when there is no worker.
        """
        forks_anew = room is not None or watch is not None or source is not None
        if not forks_anew and not scatters and self.has_ahead(checkout, reference):
            ahead = self._ahead.pop((checkout, reference.name))
            with ahead.stack:
                yield ahead.worker
            return
        server = self.server_of(checkout)
        if on_next:
            server = self._starting.get(checkout.server, server)
        if not forks_anew:
            source = self.host_builds.server_of(checkout, reference, server)
        request = self._load_request(
            checkout, reference, cpus=cpus, layout_seed=layout_seed if scatters else None, watch=watch
        )
        forked = self._forked_from(
            source or server, log_name, cpus=cpus, layout_seed=layout_seed, checkout=checkout, room=room
        )
        with forked as worker:
            worker.parking = self.parking
            worker.begin(request, descriptor=None if reports is None else reports.fileno())
            yield LoadingWorker(worker, reference.name, load_timeout or self.config.measure.load_timeout)

    def _load_request(
        self,
        checkout: Checkout,
        reference: WorkloadReference,
        *,
        cpus: list[int],
        layout_seed: int | None = None,
        watch: Watched | None = None,
    ) -> LoadRequest:
        return LoadRequest(
            name=reference.name,
            file=str(checkout.harness / reference.file),
            attribute=reference.attribute,
            root=str(checkout.root),
            python_path=self._settings_of(checkout).python_path,
            device=self.config.device,
            seed=self.config.measure.seed,
            threads=min(self.threads, len(cpus)),
            layout_seed=layout_seed,
            watch=watch,
            communication=self.config.trace.communication,
        )

    @contextmanager
    def spawned(self, checkout: Checkout, warm: Worker, *, layout_seed: int) -> Iterator[Worker]:
        """Yield a worker that is forked from a ``forkable`` one of the checkout; it ends with the context.

        Raises WorkerError when there is none.
        """
        worker = self._server(checkout.server).spawn(warm, layout_seed=layout_seed)
        self._worker_ids |= namespace_ids(warm.pid)
        with self._accounted(worker, checkout.root):
            yield worker

    def try_workload(
        self,
        checkout: Checkout,
        reference: WorkloadReference,
        *,
        packages: bool = False,
        watch: Watched | None = None,
        watching_seconds: float = 0.0,
        reports: socket.socket | None = None,
    ) -> Tried:
        """Load a workload, make one call of every shape and run its check, in a separate home.

        So nothing that is compiled lies ready for the first call that counts. A trial that takes too long, or ends the
        worker, is left to the measuring. If it is to ``watch`` files, it makes many calls, for ``watching_seconds`` at most,
        and sends the executed lines to ``reports``.
        """
        doing = Activity("testing {name}", name=reference.name)
        load_timeout = min(self.config.measure.load_timeout, TRIAL_LOAD_SECONDS)
        call_timeout = TRIAL_SECONDS
        if watch is not None or self.host_builds.have_begun:
            # Measuring a change that no workload runs costs more than waiting for a model that loads slowly.
            load_timeout, call_timeout = self.config.measure.load_timeout, WATCHED_CALLS_SECONDS
        part: Literal["load", "call"] = "load"
        with self.empty_room(checkout) as room:
            trial = self.worker(
                checkout,
                reference,
                cpus=self.cpus,
                layout_seed=0,
                log_name=str(room / "trial"),
                load_timeout=load_timeout,
                room=room,
                watch=watch,
                reports=reports,
            )
            try:
                with trial as (worker, loaded):
                    part = "call"
                    request = TryRequest(seconds=watching_seconds, packages=packages)
                    tried = worker.ask(request, Tried, timeout=call_timeout, doing=doing)
                    tried = msgspec.structs.replace(tried, load_seconds=loaded.seconds)
                    if self.host_builds.have_begun and tried.failed is None:
                        trying = LoadingWorker(worker, reference.name, call_timeout, loaded)
                        # A model that cannot be described is built by every process.
                        with suppress(WorkerError):
                            tried = msgspec.structs.replace(tried, signature=self.host_builds.signature_of(trying))
            except WorkerError as error:
                tried = Tried(failed=part, error=error.detail) if error.alive else Tried()
        if tried.error and tried.error.kind == "memory" and self._ahead:
            # Another worker loaded meanwhile.
            self.let_go_ahead()
            return self.try_workload(
                checkout,
                reference,
                packages=packages,
                watch=watch,
                watching_seconds=watching_seconds,
                reports=reports,
            )
        self.copies_fit = tried.copies_fit
        self.parking = Parking() if tried.copies_fit is not None and not self.fits(2) else None
        # A lack of memory may be the machine's fault.
        return Tried() if tried.error and tried.error.kind == "memory" else tried

    def time_call(self, checkout: Checkout, reference: WorkloadReference) -> tuple[float, Loaded] | None:
        """Seconds of a warm call of every shape, and the loaded workload; None if that fails, which measuring then reports."""
        doing = Activity("timing a call of {name}", name=reference.name)
        self.say(doing.shown)
        try:
            with self.worker(checkout, reference, cpus=self.cpus, layout_seed=0, log_name=reference.name) as (
                worker,
                loaded,
            ):
                timed = worker.ask(TimeCallRequest(), CallTimed, timeout=self.config.measure.step_timeout, doing=doing)
                return timed.seconds, loaded
        except WorkerError:
            return None

    def testbed(self, python: Path | None = None) -> Testbed:
        """The testbed as a fresh worker of an interpreter sees it.

        Raises MeasuringError when the device cannot be opened, with its fault.
        """
        request = TestbedRequest(device=self.config.device, threads=self.threads)
        doing = Activity("opening device {device}", device=self.config.device)
        with self._forked(_ServerKey(python), "testbed") as worker:
            try:
                return worker.ask(request, TestbedReply, timeout=DEVICE_SECONDS, doing=doing).testbed
            except MeasuringError as error:
                raise self._explained(error, python) from error

    def watch_load(self) -> list[FitnessCheck]:
        """Let a fresh worker load the device for some seconds, and return the behaviour of its clock.

        Raises MeasuringError when the device cannot be opened or loaded.
        """
        device = self.config.device
        request = WatchLoadRequest(device=device, seconds=LOAD_SECONDS)
        with self._forked(_ServerKey(), "load") as worker:
            return worker.ask(
                request, LoadWatched, timeout=DEVICE_SECONDS, doing=Activity("loading {device}", device=device)
            ).checks

    def read_harness(self, checkout: Checkout, reference: WorkloadReference) -> HarnessReply:
        """Read a workload file's description, without building anything. Raises WorkerError when it cannot be imported."""
        request = HarnessRequest(
            name=reference.name,
            file=str(checkout.harness / reference.file),
            attribute=reference.attribute,
            root=str(checkout.root),
            python_path=self._settings_of(checkout).python_path,
        )
        with self._forked(checkout.server, f"{reference.name}-harness", checkout=checkout) as worker:
            doing = Activity("reading workload {name}", name=reference.name)
            return worker.ask(request, HarnessReply, timeout=self.config.measure.load_timeout, doing=doing)

    def recordings(self, checkout: Checkout) -> Path:
        """The folder of the raw profiler recordings of a checkout's workers, to be analysed later."""
        # torch_npu takes no path with other characters than letters, digits, dashes and underscores, and none that others
        # may write to.
        return (self._room(checkout.python, checkout.root) / _RECORDINGS).resolve()

    def analyse(
        self,
        checkout: Checkout,
        recordings: list[str],
        *,
        timeout: float,
        traces: dict[str, str] | None = None,
    ) -> Analysis:
        """Each operator's typical seconds in the recordings that a checkout's workers left.

        ``traces`` maps some of them to the file, without its suffix, as which they stay. A recording that could not be
        analysed is left out. Raises WorkerError if none could.
        """
        folder = str(self.recordings(checkout))
        request = AnalyseRequest(device=self.config.device, folder=folder, recordings=recordings, traces=traces or {})
        doing = Activity("analysing {count} recordings of the profiler", count=len(recordings))
        try:
            with self._forked(_ServerKey(checkout.python), "analysis") as worker:
                return worker.ask(request, Analysis, timeout=timeout, doing=doing)
        finally:
            # They may be gigabytes.
            for recording in recordings:
                shutil.rmtree(recording, ignore_errors=True)

    @contextmanager
    def _forked(
        self,
        server: _ServerKey,
        log_name: str,
        *,
        cpus: list[int] | None = None,
        layout_seed: int = 0,
        checkout: Checkout | None = None,
        room: Path | None = None,
    ) -> Iterator[Worker]:
        """Yield a new worker, which runs the code of a checkout, if any, within walls."""
        room = room or self._room(server.python, checkout.root if checkout else None)
        forked = self._forked_from(
            self._server(server), log_name, cpus=cpus, layout_seed=layout_seed, checkout=checkout, room=room
        )
        with forked as worker:
            yield worker

    @contextmanager
    def _forked_from(
        self,
        server: WorkerSource,
        log_name: str,
        *,
        cpus: list[int] | None = None,
        layout_seed: int = 0,
        checkout: Checkout | None = None,
        room: Path | None = None,
    ) -> Iterator[Worker]:
        root = checkout.root if checkout else None
        room = room or self._room(checkout.python if checkout else None, root)
        worker = server.fork(
            cpus=cpus or self.cpus,
            layout_seed=layout_seed,
            home=room / _HOME,
            # What a host server forks is within its walls.
            room=None if root is None or isinstance(server, HostServer) else self._walls(room),
            variables=self._own_variables(checkout) if checkout else {},
            looks_at_itself=device_kind(self.config.device) != "cpu",
            root=root,
            log=self.log(log_name),
            memory_limit=self._memory_limit,
        )
        with self._accounted(worker, root):
            yield worker

    @property
    def _memory_limit(self) -> int:
        return self.config.measure.memory_limit or int(granted_memory() * MEMORY_SHARE)

    @contextmanager
    def _accounted(self, worker: Worker, root: Path | None) -> Iterator[None]:
        """Close a worker at the end, and note the processes that it left running."""
        self._worker_ids |= namespace_ids(worker.pid)
        try:
            yield
        finally:
            if root is not None:
                for process in process_family(worker.pid) if worker.pid else ():
                    self._worker_ids |= namespace_ids(process)
            worker.close()
            if root is not None:
                self.leftovers[root].append(worker.left_behind)
            self.leftovers[None].append(worker.of_unknown)

    def _house(self, python: Path | None) -> Path:
        """The folder of an interpreter: if packages of a side are in it, all of its processes stay in there."""
        if python not in self._houses:
            self._houses[python] = Path(tempfile.mkdtemp(prefix="house-", dir=self._scratch))
        return self._houses[python]

    def _room(self, python: Path | None, root: Path | None) -> Path:
        """The room of a checkout's workers, or of ours: caches of compilers start empty for base and head alike."""
        if (python, root) not in self._rooms:
            room = self._rooms[python, root] = Path(tempfile.mkdtemp(prefix="room-", dir=self._house(python)))
            self._furnish(room, has_hubs=root is not None)
        return self._rooms[python, root]

    def _furnish(self, room: Path, *, has_hubs: bool) -> None:
        for name in (_HOME, _RECORDINGS):
            (room / name).mkdir(mode=0o700)
        if has_hubs:
            show_hub_caches(os.environ, room / _HOME)

    def _walls(self, room: Path) -> Room:
        return Room(closed=str(self._scratch), folder=str(room))

    def python_path(self, checkout: Checkout) -> list[Path]:
        """The folders of a checkout that its own settings put on Python's path."""
        return [checkout.root / folder for folder in self._settings_of(checkout).python_path]

    def _settings_of(self, checkout: Checkout) -> MeasureSettings:
        return checkout.measure or self.config.measure

    def _own_variables(self, checkout: Checkout) -> dict[str, str]:
        """The variables that only the settings of this side pass on; the fork server has those that both do."""
        more = set(self._settings_of(checkout).pass_env) - set(self.config.measure.pass_env)
        withheld = find_secrets(os.environ).names
        return {name: os.environ[name] for name in more if name in os.environ and name not in withheld}

    def sealed_home(self, checkout: Checkout, side: Side) -> SealedFolder:
        """The home of a side, for a machine without walls: what is there, and start-up files, are that side's alone."""
        return sealed_files(f"the home of {side}", self._room(checkout.python, checkout.root) / _HOME, own=side)

    def walls_of(self, checkout: Checkout) -> Room:
        """The walls around the programs of a checkout."""
        return self._walls(self._room(checkout.python, checkout.root))

    @contextmanager
    def empty_room(self, checkout: Checkout) -> Iterator[Path]:
        """Yield a new room for a worker: its home has no files that other workers compiled or chose."""
        with tempfile.TemporaryDirectory(prefix="empty-room-", dir=self._house(checkout.python)) as folder:
            self._furnish(Path(folder), has_hubs=True)
            yield Path(folder)

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    # --- the device, and notes for the documents

    @contextmanager
    def watching(self, testbed: Testbed) -> Iterator[Watcher]:
        """Watch the device while pairs run; if its state cannot be read, the watcher is empty and has the reason."""
        with ExitStack() as stack:
            watch = watching(
                self.config.device,
                testbed.observed.get(IDENTITY, ""),
                own=self._worker_ids,
                environment=self._environment(),
                folder=self._scratch,
            )
            try:
                watcher = stack.enter_context(watch)
            except MeasuringError as error:
                self._unwatched.append(reason_of(error))
                watcher = Watcher(None, own=self._worker_ids)
            yield watcher

    def watch_notes(self) -> list[Message]:
        """The notes for documents if the device was not watched."""
        return [
            Message("notes.watcher-failed", {"device": self.config.device, "why": reason})
            for reason in distinct(self._unwatched)
        ]

    def leftover_notes(self, root: Path | None = None) -> list[Message]:
        """The notes for documents on processes left running by the workers of a checkout, or of unknown origin."""
        return leftover_notes(self.leftovers[root])

    def cache_notes(self) -> list[Message]:
        """The notes for documents on cached kernels that may be older than the job."""
        reused = reused_caches(self._allowed_environment())
        return [Message("notes.caches-reused", {"names": list(reused)})] if reused else []


def _without_current_folder(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment whose search paths do not lead to the current folder, as an empty or relative entry would."""
    paths = {name: environment[name].split(os.pathsep) for name in _SEARCH_PATHS if name in environment}
    kept = {name: os.pathsep.join(filter(os.path.isabs, entries)) for name, entries in paths.items()}
    without = {name: value for name, value in environment.items() if name not in paths}
    return without | {name: value for name, value in kept.items() if value}


@contextmanager
def open_bench(
    config: Config,
    *,
    logs: Path,
    say: Say,
    foresee: Foresee = foresee_nothing,
    pythons: Iterable[Path | None] = (None,),
    loads: LoadLog | None = None,
) -> Iterator[Bench]:
    """Start a fork server for each of ``pythons`` in a scratch home; at the end nothing of them is left.

    ``say`` is called with progress, ``foresee`` with the remaining time.

    Raises MeasuringError when a preloaded module cannot be imported.
    """
    logs.mkdir(parents=True, exist_ok=True)
    # Logs are appended to by many workers; those of an earlier run in the same folder are not ours.
    for old in logs.glob("*.log"):
        remove(old)
    measure = config.measure
    if fresh := fresh_caches(os.environ, reuse=measure.reuse_caches, pass_env=measure.pass_env):
        say(
            sentence(
                "kernel caches start empty: {names} not passed on; [measure] reuse_caches = true would",
                names=", ".join(fresh),
            )
        )
    adopt_orphans()
    with held_back(), scratch_folder() as scratch:
        ours = children()
        interpreters = dict.fromkeys(pythons)
        bench = Bench(
            config,
            scratch=scratch,
            logs=logs.resolve(),
            say=say,
            foresee=foresee,
            one_code=any(interpreters),
            loads=loads,
        )
        try:
            for python in interpreters:
                bench.start(python)
            yield bench
        finally:
            bench.close()
            bench.leftovers[None].append(kill_leftovers(scratch, spare=ours))
