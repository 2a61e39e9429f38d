"""The fork server: imports torch once, touches no device, and forks a worker for every
request.

A forked worker starts in milliseconds instead of seconds, and base and head get the
same memory layout (the same libraries at the same addresses), which takes a third off
the spread between processes.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import resource
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from perfgate.measuring.worker.host_build import HostBuild, build_on_host
from perfgate.measuring.worker.spawn import write_stacks_to
from perfgate.measuring.worker.worker import (
    WorkerLoop,
    describe_error,
    draw_pad,
    no_process,
)
from perfgate.protocol import (
    AdoptRequest,
    ConnectionClosed,
    Exited,
    Failed,
    Forked,
    ForkFailed,
    ForkRequest,
    LoadRequest,
    Resumed,
    ServerFailed,
    ServerReady,
    fork_decoder,
    receive_with_descriptor,
    send,
)
from perfgate.system.processes import (
    adopt_orphans,
    be_closed,
    be_open,
    children,
    die_with_parent,
    folders_of,
    kill_children,
    kill_group,
    name_of,
    outlive_parent,
    parent_of,
    session_of,
)
from perfgate.system.walls import enter_room


def _import_all(modules: list[str]) -> None:
    """Import modules in their order.

    The package after torch, usually a device's, is looked for first: importing torch
    takes seconds and makes no other package importable.
    """
    for module, following in zip(modules, [*modules[1:], ""]):
        package = following.partition(".")[0]
        if (
            module == "torch"
            and package
            and importlib.util.find_spec(module)
            and not importlib.util.find_spec(package)
        ):
            importlib.import_module(following)
        importlib.import_module(module)


def serve(
    connection: socket.socket, *, preload: list[str], parts: list[str]
) -> NoReturn:
    """Serve fork requests until the conductor goes away; never returns.

    ``parts`` are modules that workers would otherwise import, each by itself: a failure
    here is left to them.
    """
    die_with_parent(os.getppid())
    # A process that can trace us, a worker of one side, could forge our messages about
    # the other's.
    be_closed()
    # Orphans of a worker come to us, so that no process it started can outlive it
    # unseen.
    adopt_orphans()
    try:
        _import_all(preload)
    except BaseException as error:  # noqa: BLE001 - a broken package may raise anything; the conductor reports it
        send(connection, ServerFailed(error=describe_error(error)))
        os._exit(1)
    environment = dict(os.environ)
    for part in parts:
        with suppress(Exception):
            importlib.import_module(part)
    # Settings that modules derive from the home folder must come from the worker's own
    # home.
    os.environ.clear()
    os.environ.update(environment)
    _freeze()
    # From here on the end of its socket signals the conductor's end, which leaves time
    # to kill the workers' children.
    outlive_parent()
    code = 1
    try:
        send(connection, ServerReady())
        _Server(connection).loop()
        code = 0
    finally:
        os._exit(code)


def _freeze() -> None:
    """Keep the collector from everything that there is.

    A collection in a forked worker would visit hundreds of thousands of imported
    objects and thereby copy their pages: 0.7 s on a busy machine with torch 2.13, and a
    pair of workers takes two such collections. There is no collection before: it would
    take a tenth of the start, and imports leave hardly any garbage.
    """
    gc.freeze()
    gc.enable()


class Orphans(NamedTuple):
    """The names of processes that a dead worker left running, and of orphans with an
    unknown owner.
    """

    of_worker: list[str]
    of_unknown: list[str]


class _Server:
    """Forks workers at the requests that come through ``connection``; they have the
    model that was ``built`` on the host.
    """

    def __init__(
        self, connection: socket.socket, built: HostBuild | None = None
    ) -> None:
        self.connection = connection
        self.built = built
        self.workers: dict[int, int] = {}
        # The home and the checkout of every worker by its process, also of those that
        # have ended.
        self.folders: dict[int, set[Path]] = {}
        self.own_children = set(children())
        self.wake_up, self.wake_write = os.pipe()
        for descriptor in (self.wake_up, self.wake_write):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.connection, selectors.EVENT_READ)
        self.selector.register(self.wake_up, selectors.EVENT_READ)

    def loop(self) -> None:
        """Fork and reap until the conductor closes its end; then no process that we or
        a worker started is left.
        """
        try:
            while True:
                for key, _ in self.selector.select():
                    if key.fileobj is not self.connection:
                        os.read(self.wake_up, 4096)
                        self._reap()
                        continue
                    payload, descriptor = receive_with_descriptor(self.connection)
                    request = fork_decoder.decode(payload)
                    if isinstance(request, AdoptRequest):
                        self._adopt(request)
                    elif descriptor is not None:
                        self._fork(request, descriptor)
        except ConnectionClosed:
            pass
        finally:
            for pid in self.workers:
                kill_group(pid)
            kill_children(spare=())

    def _adopt(self, request: AdoptRequest) -> None:
        """Count a process that a worker has forked among the workers, if it is that
        worker's child: user code named it.
        """
        forked_by = parent_of(request.pid)
        if (
            request.pid in self.workers
            or self.workers.get(forked_by) != request.warm_id
        ):
            send(
                self.connection,
                ForkFailed(
                    worker_id=request.worker_id, error=no_process("it ended at once")
                ),
            )
            return
        self.workers |= {request.pid: request.warm_id, forked_by: request.worker_id}
        self.folders[request.pid] = self.folders[forked_by]
        send(self.connection, Forked(worker_id=request.worker_id, pid=forked_by))

    def _fork(self, request: ForkRequest, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(descriptor)
            send(
                self.connection,
                ForkFailed(worker_id=request.worker_id, error=no_process(str(error))),
            )
            return
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.selector.close()
            self.connection.close()
            os.close(self.wake_up)
            os.close(self.wake_write)
            become_worker(
                request,
                socket.socket(fileno=descriptor),
                parent=server,
                built=self.built,
            )
        os.close(descriptor)
        self.workers[pid] = request.worker_id
        self.folders[pid] = {
            Path(folder).resolve() for folder in (request.home, request.root) if folder
        }
        send(self.connection, Forked(worker_id=request.worker_id, pid=pid))

    def _reap(self) -> None:
        while True:
            try:
                # The kernel keeps for its parent that a process was stopped and goes
                # on, however short that was.
                pid, status = os.waitpid(-1, os.WNOHANG | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFCONTINUED(status):
                if pid in self.workers:
                    send(self.connection, Resumed(worker_id=self.workers[pid]))
                continue
            worker_id = self.workers.pop(pid, None)
            if worker_id is not None:
                orphans = self._kill_orphans(pid)
                code = os.waitstatus_to_exitcode(status)
                exited = Exited(
                    worker_id=worker_id,
                    exit_code=code,
                    left_behind=orphans.of_worker,
                    of_unknown=orphans.of_unknown,
                )
                send(self.connection, exited)

    def _kill_orphans(self, dead_worker: int) -> Orphans:
        """Kill the processes that a worker left running, and return their names.

        A worker adopts its own orphans while it lives, so most that come to us are of
        one that is dead. A process may also be ours from its beginning (CLONE_PARENT):
        children of other workers stay until these end.
        """
        spare = self.own_children | self.workers.keys()
        of_worker = []
        of_unknown = []
        for pid in set(children()) - spare:
            owner = self._owner(pid, dead_worker)
            if owner is None:
                of_unknown.append(name_of(pid))
            elif owner == dead_worker:
                of_worker.append(name_of(pid))
            else:
                spare.add(pid)
        kill_group(dead_worker)
        killed = kill_children(spare=spare)
        # Processes below an orphan come to us as it dies.
        if not of_unknown and len(killed) >= len(of_worker):
            of_worker = killed
        return Orphans(sorted(of_worker), sorted(of_unknown))

    def _owner(self, pid: int, dead_worker: int) -> int | None:
        """The worker that started an orphan: the leader of its session, else a worker
        in whose folders it is; None if unknown.

        Of several workers with one checkout, which run the same code, the dead one
        counts.
        """
        leader = session_of(pid)
        if leader == dead_worker or leader in self.workers:
            return leader
        places: set[Path] = set()
        for folder in folders_of(pid):
            places.update((folder, *folder.parents))
        for worker in (dead_worker, *self.workers):
            if self.folders[worker] & places:
                return worker
        return None


def become_worker(
    request: ForkRequest,
    connection: socket.socket,
    *,
    parent: int,
    built: HostBuild | None = None,
) -> NoReturn:
    """Turn this forked process into a worker, or a server; it ends here and never
    unwinds into the server's stack.
    """
    code = 1
    try:
        if request.builds is None:
            code = _work(request, connection, parent, built)
        else:
            code = _host(request, request.builds, connection, parent)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (
                OSError,
                ValueError,
                AttributeError,
            ):  # user code closed or replaced it
                continue
    finally:
        os._exit(code)


def _host(
    request: ForkRequest, builds: LoadRequest, connection: socket.socket, parent: int
) -> int:
    """Build a workload on the host, and fork workers that have its model."""
    try:
        _set_up(request, parent)
        built = build_on_host(builds)
    except BaseException as error:  # noqa: BLE001 - user code may raise anything; workers then build for themselves
        send(connection, ServerFailed(error=describe_error(error)))
        return 1
    gc.collect()  # of what built the model
    _freeze()
    try:
        send(connection, ServerReady())
        _Server(connection, built).loop()
    except ConnectionClosed:
        return 1
    return 0


def _work(
    request: ForkRequest,
    connection: socket.socket,
    parent: int,
    built: HostBuild | None,
) -> int:
    try:
        _set_up(request, parent)
    except BaseException as error:  # noqa: BLE001 - the conductor must learn why there is no worker
        send(connection, Failed(error=describe_error(error)))
        return 1
    pad = draw_pad(request.layout_seed)
    try:
        WorkerLoop(connection, cpus=request.cpus, built=built).loop()
    except ConnectionClosed:
        return 0
    except BaseException:  # noqa: BLE001 - a request we cannot read: into the log
        traceback.print_exc()
    finally:
        del pad
    return 1


def _set_up(request: ForkRequest, parent: int) -> None:
    os.setsid()
    die_with_parent(parent)
    # Its orphans stay with it, so that the server can attribute them after its end.
    adopt_orphans()
    log = os.open(request.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    write_stacks_to(request.stack_path)
    # A home of this side: one side's compiled files must not be available to the other.
    os.chdir(request.home)
    os.environ.update(
        {**request.variables, "HOME": request.home, "TMPDIR": request.home}
    )
    tempfile.tempdir = None  # the cached result of a lookup belongs to the server
    os.sched_setaffinity(0, request.cpus)
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, 0)
    )  # a crash must not cost gigabytes of core file
    if request.memory_limit:
        # Private writable memory. Address space (RLIMIT_AS) would also count memory
        # that CUDA and the like only reserve.
        resource.setrlimit(
            resource.RLIMIT_DATA, (request.memory_limit, request.memory_limit)
        )
    has_walls = request.room is not None and enter_room(request.room)
    # The server is closed to others. Within walls this process is, too, and may look at
    # itself.
    if has_walls or request.looks_at_itself:
        be_open()
