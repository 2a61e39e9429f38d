"""The bench: fork servers, a scratch folder and the limits, from which loaded workers
are taken.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from perfgate.conductor.machine.cpus import granted_cpus, granted_memory
from perfgate.conductor.machine.watcher import Watcher, namespace_ids, watching
from perfgate.conductor.workers.checkout import Checkout, ServerKey
from perfgate.conductor.workers.cleanup import (
    kill_leftovers,
    leftover_notes,
    remove,
    scratch_folder,
)
from perfgate.conductor.workers.environment import (
    MALLOC_SETTINGS,
    WAIT_POLICY,
    find_secrets,
    fresh_caches,
    reused_caches,
)
from perfgate.conductor.workers.foresight import Foresee, foresee_nothing
from perfgate.conductor.workers.fork_servers import ForkServers, ServerSettings
from perfgate.conductor.workers.host_builds import HostBuilds, HostServer
from perfgate.conductor.workers.interpreters import RUNNING, with_code
from perfgate.conductor.workers.load_log import LoadLog, with_reports
from perfgate.conductor.workers.loading import (
    AheadWorker,
    LineWatch,
    LoadingWorker,
    WorkerPlan,
)
from perfgate.conductor.workers.parking import Parking, can_move_weights
from perfgate.conductor.workers.rooms import HOME, RECORDINGS, Rooms
from perfgate.conductor.workers.seals import SealedFolder, sealed_files, sealed_tree
from perfgate.conductor.workers.worker import (
    ForkServer,
    Say,
    Worker,
    WorkerError,
    WorkerSource,
)
from perfgate.config import Config, MeasureSettings, WorkloadReference, device_kind
from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, distinct, reason_of
from perfgate.document.run import Side
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
    WatchLoadRequest,
)
from perfgate.system.interrupts import held_back
from perfgate.system.processes import adopt_orphans, children, process_family

MEMORY_SHARE = 0.9
# Opening a device, and a fresh worker's first use of it.
DEVICE_SECONDS = 120.0
# A model that takes longer to load, or to answer, is not tried before it is measured.
TRIAL_LOAD_SECONDS = 15.0
TRIAL_SECONDS = 3.0
WATCHED_CALLS_SECONDS = 60.0
# Some readings of npu-smi, each of a second or two.
LOAD_SECONDS = 10.0


class Bench:
    """The source of workers, which share the fork server of their interpreter, so that
    both sides share a memory layout.
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
        of_stacks: bool = False,
        loads: LoadLog | None = None,
        start_server: Callable[..., ForkServer] = ForkServer,
    ) -> None:
        self.config = config
        self.say = say
        self.foresee = foresee
        self.cpus = granted_cpus()
        self.threads = config.measure.threads or len(self.cpus)
        self.rooms = Rooms(scratch)
        self.settings = ServerSettings(
            config,
            self.rooms,
            self.threads,
            config.measure.seed,
            one_code,
            of_stacks,
            loads,
        )
        self.host_builds = HostBuilds(self)
        self.servers = ForkServers(
            self.settings,
            say,
            start_server=start_server,
            is_prepared=self.host_builds.are_built_on,
            before_end=self.let_go_ahead,
        )
        # Names of processes that workers left running, by their checkout; None if
        # unknown.
        self.leftovers: dict[Path | None, list[list[str]]] = defaultdict(list)
        # How many processes of the workload that was tried last fit on the device; None
        # if that is unknown.
        self.copies_fit: int | None = None
        # Set if only one fits, and its weights can be moved off the device.
        self.parking: Parking | None = None
        # Whether only one fits, and its weights cannot be moved.
        self.holds_one = False
        self._logs = logs
        self._worker_ids: set[int] = set()
        self._unwatched: list[Message] = []
        # Workers that load ahead of their use.
        self._ahead: dict[tuple[Checkout, str], AheadWorker] = {}

    @property
    def is_accelerated(self) -> bool:
        """Whether workloads run on a device other than the CPU: processes that opened
        it cannot be forked.
        """
        return device_kind(self.config.device) != "cpu"

    @property
    def loads_slowly(self) -> bool:
        """Whether every worker builds its model for a device, so that loading takes
        long.
        """
        return self.is_accelerated and not self.host_builds.are_used

    def fits(self, copies: int) -> bool:
        """Whether the device is known to hold this many processes at once."""
        return self.copies_fit is not None and copies <= self.copies_fit

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    # --- workers with a workload

    @contextmanager
    def worker(
        self,
        checkout: Checkout,
        reference: WorkloadReference,
        *,
        cpus: list[int] | None = None,
        layout_seed: int = 0,
        log_name: str = "",
        room: Path | None = None,
    ) -> Iterator[tuple[Worker, Loaded]]:
        """Yield a worker with the workload loaded, and its own description; the worker
        ends with the context.

        Raises WorkerError when there is no worker, or it cannot load the workload.
        """
        log_name = log_name or reference.name
        plan = WorkerPlan(
            checkout, reference, cpus or self.cpus, log_name, layout_seed, room=room
        )
        with self.loading(plan) as loading:
            yield loading.worker, loading.wait()

    @contextmanager
    def loading(self, plan: WorkerPlan) -> Iterator[LoadingWorker]:
        """Yield a worker that begins to load the workload; it ends with the context.

        It may have loaded ahead. Raises WorkerError when there is no worker.
        """
        checkout, reference = plan.checkout, plan.reference
        if plan.takes_any and self.has_ahead(checkout, reference):
            ahead = self._ahead.pop((checkout, reference.name))
            with ahead.stack:
                yield ahead.worker
            return
        source = plan.host
        if source is None:
            key, servers = checkout.server, self.servers
            server = servers.get_next(key) if plan.on_next else servers.get(key)
            source = server
            if plan.is_usual:
                source = self.host_builds.server_of(checkout, reference, server)
        room = plan.room or self.rooms.of(checkout)
        descriptor = None if plan.watch is None else plan.watch.reports.fileno()
        with self._accounted(self._fork(plan, source, room), checkout.root) as worker:
            worker.parking = self.parking
            worker.begin(self._load_request(plan), descriptor=descriptor)
            yield LoadingWorker(
                worker,
                reference.name,
                plan.load_timeout or self.config.measure.load_timeout,
            )

    def _fork(
        self,
        plan: WorkerPlan,
        source: WorkerSource,
        room: Path,
        *,
        builds: LoadRequest | None = None,
    ) -> Worker:
        """Fork a worker that runs the code of a checkout."""
        # A host server is within the walls of its room, and so is what it forks.
        walls = None if isinstance(source, HostServer) else self.rooms.walls(room)
        return source.fork(
            cpus=plan.cpus,
            layout_seed=plan.layout_seed,
            home=room / HOME,
            room=walls,
            variables=self._own_variables(plan.checkout),
            looks_at_itself=self.is_accelerated,
            root=plan.checkout.root,
            log=self.log(plan.log_name),
            memory_limit=self._memory_limit,
            builds=builds,
        )

    def _load_request(self, plan: WorkerPlan) -> LoadRequest:
        checkout, reference = plan.checkout, plan.reference
        return LoadRequest(
            name=reference.name,
            file=str(checkout.harness / reference.file),
            attribute=reference.attribute,
            root=str(checkout.root),
            python_path=self._settings_of(checkout).python_path,
            device=self.config.device,
            seed=self.config.measure.seed,
            threads=min(self.threads, len(plan.cpus)),
            layout_seed=plan.layout_seed if plan.scatters else None,
            watch=None if plan.watch is None else plan.watch.files,
            communication=self.config.trace.communication,
        )

    def fork_host(
        self, server: ForkServer, checkout: Checkout, reference: WorkloadReference
    ) -> HostServer:
        """Fork a server that builds a workload on the host."""
        plan = WorkerPlan(checkout, reference, self.cpus, f"{reference.name}-host")
        worker = self._fork(
            plan, server, self.rooms.of(checkout), builds=self._load_request(plan)
        )
        self._worker_ids |= namespace_ids(worker.pid)
        return HostServer(worker, folder=Path(f"host-{worker.worker_id}"), say=self.say)

    @contextmanager
    def spawned(
        self, checkout: Checkout, warm: Worker, *, layout_seed: int
    ) -> Iterator[Worker]:
        """Yield a worker that is forked from a ``forkable`` one of the checkout; it
        ends with the context.

        Raises WorkerError when there is none.
        """
        worker = self.servers.get(checkout.server).spawn(warm, layout_seed=layout_seed)
        self._worker_ids |= namespace_ids(warm.pid)
        with self._accounted(worker, checkout.root):
            yield worker

    def load_ahead(self, checkout: Checkout, reference: WorkloadReference) -> None:
        """Begin to load a workload that the next worker of the checkout takes over."""
        if not self.has_ahead(checkout, reference):
            loading = self.loading(
                WorkerPlan(checkout, reference, self.cpus, reference.name)
            )
            self._ahead[checkout, reference.name] = AheadWorker.begin(loading)

    def has_ahead(self, checkout: Checkout, reference: WorkloadReference) -> bool:
        return (checkout, reference.name) in self._ahead

    def loaded_ahead(
        self, checkout: Checkout, reference: WorkloadReference
    ) -> Loaded | None:
        """The workload that loads ahead, once it is loaded; None if it does not, or
        cannot be loaded.
        """
        ahead = self._ahead.get((checkout, reference.name))
        if ahead is None:
            return None
        try:
            return ahead.worker.wait()
        except WorkerError:
            return None

    def let_go_ahead(self) -> None:
        """End the workers that have loaded ahead of their use."""
        while self._ahead:
            _, ahead = self._ahead.popitem()
            ahead.stack.close()

    # --- before anything is measured

    def try_workload(
        self,
        checkout: Checkout,
        reference: WorkloadReference,
        *,
        packages: bool = False,
        watch: LineWatch | None = None,
    ) -> Tried:
        """Load a workload, make one call of every shape and run its check, in a
        separate home.

        So the first call that counts finds no compiled code. A trial that takes too
        long, or ends the worker, is left to the measuring.
        """
        tried = self._trial(checkout, reference, packages, watch)
        lacks_memory = tried.error is not None and tried.error.is_out_of_memory
        if lacks_memory and self._ahead:
            # Another worker loaded meanwhile.
            self.let_go_ahead()
            return self.try_workload(
                checkout, reference, packages=packages, watch=watch
            )
        self.copies_fit = tried.copies_fit
        fits_once = tried.copies_fit is not None and not self.fits(2)
        self.parking = Parking() if fits_once and tried.can_park else None
        self.holds_one = fits_once and not tried.can_park
        # A lack of memory may be the machine's fault.
        return Tried() if lacks_memory else tried

    def _trial(
        self,
        checkout: Checkout,
        reference: WorkloadReference,
        packages: bool,
        watch: LineWatch | None,
    ) -> Tried:
        """Try a workload once; the result is empty if it took too long or ended the
        worker.
        """
        load_timeout = min(self.config.measure.load_timeout, TRIAL_LOAD_SECONDS)
        call_timeout = TRIAL_SECONDS
        if watch is not None or self.host_builds.have_begun:
            # Measuring a change that no workload runs costs more than waiting for a
            # model that loads slowly.
            load_timeout = self.config.measure.load_timeout
            call_timeout = WATCHED_CALLS_SECONDS
        request = TryRequest(
            seconds=0.0 if watch is None else watch.seconds, packages=packages
        )
        doing = Activity("testing {name}", name=reference.name)
        with self.rooms.empty(checkout) as room:
            plan = WorkerPlan(
                checkout,
                reference,
                self.cpus,
                log_name=str(room / "trial"),
                load_timeout=load_timeout,
                room=room,
                watch=watch,
            )
            is_loaded = False
            try:
                with self.loading(plan) as loading:
                    loaded = loading.wait()
                    is_loaded = True
                    tried = loading.worker.ask(
                        request, Tried, timeout=call_timeout, doing=doing
                    )
                    signature = None
                    if self.host_builds.have_begun and tried.failed is None:
                        # A model that cannot be described is built by every process.
                        with suppress(WorkerError):
                            signature = self.host_builds.signature_of(loading)
                    can_park = (
                        tried.copies_fit is None
                        or tried.copies_fit > 1
                        or can_move_weights(loading.worker)
                    )
                    return msgspec.structs.replace(
                        tried,
                        load_seconds=loaded.seconds,
                        signature=signature,
                        can_park=can_park,
                    )
            except WorkerError as error:
                if error.alive:
                    return Tried(
                        failed="call" if is_loaded else "load", error=error.detail
                    )
                return Tried()

    def time_call(
        self, checkout: Checkout, reference: WorkloadReference
    ) -> tuple[float, Loaded] | None:
        """Seconds of a warm call of every shape, and the loaded workload; None if that
        fails, which measuring then reports.
        """
        doing = Activity("timing a call of {name}", name=reference.name)
        self.say(doing.shown)
        try:
            with self.worker(checkout, reference) as (worker, loaded):
                timed = worker.ask(TimeCallRequest(), CallTimed, doing=doing)
                return timed.seconds, loaded
        except WorkerError:
            return None

    def read_harness(
        self, checkout: Checkout, reference: WorkloadReference
    ) -> HarnessReply:
        """Read a workload file's description, without building anything. Raises
        WorkerError when it cannot be imported.
        """
        request = HarnessRequest(
            name=reference.name,
            file=str(checkout.harness / reference.file),
            attribute=reference.attribute,
            root=str(checkout.root),
            python_path=self._settings_of(checkout).python_path,
        )
        plan = WorkerPlan(checkout, reference, self.cpus, f"{reference.name}-harness")
        worker = self._fork(
            plan, self.servers.get(checkout.server), self.rooms.of(checkout)
        )
        with self._accounted(worker, checkout.root):
            doing = Activity("reading workload {name}", name=reference.name)
            return worker.ask(
                request,
                HarnessReply,
                timeout=self.config.measure.load_timeout,
                doing=doing,
            )

    # --- workers that run no code of a checkout

    def testbed(self, python: Path | None = None) -> Testbed:
        """The testbed as a fresh worker of an interpreter sees it.

        Raises MeasuringError when the device cannot be opened, with its fault.
        """
        request = TestbedRequest(device=self.config.device, threads=self.threads)
        doing = Activity("opening device {device}", device=self.config.device)
        with self.own_worker(python, "testbed") as worker:
            try:
                return worker.ask(
                    request, TestbedReply, timeout=DEVICE_SECONDS, doing=doing
                ).testbed
            except MeasuringError as error:
                raise self.settings.explain(error, python, self.say) from error

    def watch_load(self) -> list[FitnessCheck]:
        """Let a fresh worker load the device for some seconds, and return the behaviour
        of its clock.

        Raises MeasuringError when the device cannot be opened or loaded.
        """
        device = self.config.device
        request = WatchLoadRequest(device=device, seconds=LOAD_SECONDS)
        doing = Activity("loading {device}", device=device)
        with self.own_worker(None, "load") as worker:
            return worker.ask(
                request, LoadWatched, timeout=DEVICE_SECONDS, doing=doing
            ).checks

    def recordings(self, checkout: Checkout) -> Path:
        """The folder of the raw profiler recordings of a checkout's workers, to be
        analysed later.
        """
        # torch_npu takes no path with other characters than letters, digits, dashes and
        # underscores, and none that others may write to.
        return (self.rooms.of(checkout) / RECORDINGS).resolve()

    def analyse(
        self,
        checkout: Checkout,
        recordings: list[str],
        *,
        timeout: float,
        traces: dict[str, str] | None = None,
    ) -> Analysis:
        """Each operator's typical seconds in the recordings that a checkout's workers
        left.

        ``traces`` maps some of them to the file, without its suffix, as which they
        stay. A recording that could not be analysed is left out. Raises WorkerError if
        none could.
        """
        folder = str(self.recordings(checkout))
        request = AnalyseRequest(
            device=self.config.device,
            folder=folder,
            recordings=recordings,
            traces=traces or {},
        )
        doing = Activity(
            "analysing {count} recordings of the profiler", count=len(recordings)
        )
        try:
            with self.own_worker(checkout.python, "analysis") as worker:
                return worker.ask(request, Analysis, timeout=timeout, doing=doing)
        finally:
            # They may be gigabytes.
            for recording in recordings:
                shutil.rmtree(recording, ignore_errors=True)

    def own_worker(
        self, python: Path | None, log_name: str
    ) -> AbstractContextManager[Worker]:
        """A new worker of an interpreter, without walls."""
        worker = self.servers.get(ServerKey(python)).fork(
            cpus=self.cpus,
            layout_seed=0,
            home=self.rooms.ours(python) / HOME,
            looks_at_itself=self.is_accelerated,
            log=self.log(log_name),
            memory_limit=self._memory_limit,
        )
        return self._accounted(worker, None)

    @property
    def _memory_limit(self) -> int:
        return self.config.measure.memory_limit or int(granted_memory() * MEMORY_SHARE)

    @contextmanager
    def _accounted(self, worker: Worker, root: Path | None) -> Iterator[Worker]:
        """Close a worker at the end, and note the processes that it left running."""
        worker.timeout = self.config.measure.step_timeout
        self._worker_ids |= namespace_ids(worker.pid)
        try:
            yield worker
        finally:
            if root is not None and worker.pid:
                for process in process_family(worker.pid):
                    self._worker_ids |= namespace_ids(process)
            worker.close()
            if root is not None:
                self.leftovers[root].append(worker.left_behind)
            self.leftovers[None].append(worker.of_unknown)

    # --- the settings of a side

    def python_path(self, checkout: Checkout) -> list[Path]:
        """The folders of a checkout that its own settings put on Python's path."""
        return [
            checkout.root / folder for folder in self._settings_of(checkout).python_path
        ]

    def _settings_of(self, checkout: Checkout) -> MeasureSettings:
        return checkout.measure or self.config.measure

    def _own_variables(self, checkout: Checkout) -> dict[str, str]:
        """The variables that only the settings of this side pass on; the fork server
        has those that both do.
        """
        names = set(self._settings_of(checkout).pass_env) - set(
            self.config.measure.pass_env
        )
        if names:
            names -= set(find_secrets(os.environ).names)
        return {name: os.environ[name] for name in names if name in os.environ}

    def program_environment(
        self, checkout: Checkout, *, threads: int
    ) -> dict[str, str]:
        """The environment of a side's program: as workers have it, without their
        tuning.

        Its checkout's code comes before any other, and the side's interpreter is the
        first ``python`` that it finds.
        """
        environment = self.settings.allowed_environment
        for name in {*MALLOC_SETTINGS, *WAIT_POLICY} - os.environ.keys():
            environment.pop(name, None)
        environment |= self._own_variables(checkout)
        import_path = [
            str(folder) for folder in self.python_path(checkout) if folder.is_dir()
        ]
        if environment.get("PYTHONPATH"):
            import_path.append(environment["PYTHONPATH"])
        python = checkout.python or RUNNING
        home = str(self.rooms.of(checkout) / HOME)
        environment.update(
            PATH=os.pathsep.join(
                [str(python.parent), environment.get("PATH", os.defpath)]
            ),
            PYTHONPATH=os.pathsep.join(import_path),
            HOME=home,
            TMPDIR=home,
            # A program may mean to have all the CPUs that it is bound to.
            OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", str(threads)),
        )
        return with_code(
            with_reports(environment, self.settings.loads), self.settings.shared_code
        )

    def sealed_home(self, checkout: Checkout, side: Side) -> SealedFolder:
        """The home of a side, for a machine without walls: what is there, and start-up
        files, are that side's alone.
        """
        return sealed_files(
            f"the home of {side}", self.rooms.of(checkout) / HOME, own=side
        )

    def sealed_shared_code(self) -> SealedFolder:
        return sealed_tree("perfgate's link to itself", self.settings.shared_code)

    # --- the device, and notes for the documents

    @contextmanager
    def watching(self, testbed: Testbed) -> Iterator[Watcher]:
        """Watch the device while pairs run; if its state cannot be read, the watcher is
        empty and has the reason.
        """
        watch = watching(
            self.config.device,
            testbed.observed.get(IDENTITY, ""),
            own=self._worker_ids,
            environment=self.settings.environment,
            folder=self.rooms.scratch,
        )
        with ExitStack() as stack:
            try:
                watcher = stack.enter_context(watch)
            except MeasuringError as error:
                self._unwatched.append(reason_of(error))
                watcher = Watcher(None, own=self._worker_ids)
            yield watcher

    def watch_notes(self) -> list[Message]:
        """The notes for documents if the device was not watched."""
        notes = []
        for reason in distinct(self._unwatched):
            note = Message(
                "notes.watcher-failed", {"device": self.config.device, "why": reason}
            )
            notes.append(note)
        return notes

    def leftover_notes(self, root: Path | None = None) -> list[Message]:
        """The notes for documents on processes left running by the workers of a
        checkout, or of unknown origin.
        """
        return leftover_notes(self.leftovers[root])

    def cache_notes(self) -> list[Message]:
        """The notes for documents on cached kernels that may be older than the job."""
        reused = reused_caches(self.settings.allowed_environment)
        if not reused:
            return []
        return [Message("notes.caches-reused", {"names": reused})]


@contextmanager
def open_bench(
    config: Config,
    *,
    logs: Path,
    say: Say,
    foresee: Foresee = foresee_nothing,
    pythons: Iterable[Path | None] = (None,),
    of_stacks: bool = False,
    loads: LoadLog | None = None,
) -> Iterator[Bench]:
    """Start a fork server for each of ``pythons`` in a scratch home, and remove
    everything of them at the end.

    ``say`` is called with progress, ``foresee`` with the remaining time. ``of_stacks``
    is described in ``ServerSettings``.

    Raises MeasuringError when a preloaded module cannot be imported.
    """
    logs.mkdir(parents=True, exist_ok=True)
    # Logs are appended to by many workers; logs of an earlier run in the same folder
    # are not ours.
    for old in logs.glob("*.log"):
        remove(old)
    measure = config.measure
    if fresh := fresh_caches(
        os.environ, reuse=measure.reuse_caches, pass_env=measure.pass_env
    ):
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
            of_stacks=of_stacks,
            loads=loads,
        )
        try:
            for python in interpreters:
                bench.servers.start(ServerKey(python))
            yield bench
        finally:
            bench.servers.close()
            bench.leftovers[None].append(kill_leftovers(scratch, spare=ours))
