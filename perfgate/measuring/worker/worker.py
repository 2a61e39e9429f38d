"""The worker: answers the conductor's requests one by one; a workload's exception
becomes a reply, not an exit.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import msgspec

from perfgate import protocol
from perfgate.document.message import Message, ReasonedError, WorkloadError
from perfgate.document.run import ErrorDetail
from perfgate.errors import MeasuringError
from perfgate.locale import Activity
from perfgate.measuring.checklist.mistakes import (
    PrintedText,
    ProjectCode,
    explained,
    explained_exit,
    own_traceback,
)
from perfgate.measuring.counting.collect import keep_recording
from perfgate.measuring.counting.profile import recorded_calls
from perfgate.measuring.devices.card import watch_device
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.timing.hardware import HardwareCounters
from perfgate.measuring.timing.testbed import describe_testbed
from perfgate.measuring.worker.answers.blocks import BlockAnswers
from perfgate.measuring.worker.answers.checklist import ChecklistAnswers
from perfgate.measuring.worker.answers.profiles import ProfileAnswers
from perfgate.measuring.worker.answers.trials import TrialAnswers
from perfgate.measuring.worker.host_build import HostBuild, prepare_libraries
from perfgate.measuring.worker.loaded import AnswersByRequest, LoadedWorkload
from perfgate.measuring.worker.spawn import Holdings, write_stacks_to
from perfgate.measuring.worker.trial import TrialWatch
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.layout import scatter_memory
from perfgate.measuring.workload.load import (
    describe_functions,
    describe_shapes,
    load_workload,
)
from perfgate.system.processes import adopt_orphans, die_with_parent
from perfgate.trace.model.communication import add_communication


class WorkerLoop:
    """One worker process: at most one workload on one device, at one end of a socket.

    ``built`` is a workload that the fork server built on the host.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        cpus: list[int],
        built: HostBuild | None,
    ) -> None:
        # They see the threads that are started after them alone, so they are opened
        # before anything else.
        self.counters = HardwareCounters()
        self.connection = connection
        self.cpus = cpus
        self.built = built
        self.device: Device | None = None
        self.project: ProjectCode | None = None
        self.blocks: BlockAnswers | None = None
        # Where a trial reports the lines that it runs.
        self.reports: socket.socket | None = None
        self.pad: object = None
        self._began = time.time()
        self._printed = PrintedText()
        self.answers: AnswersByRequest = {
            protocol.HarnessRequest: self._read_harness,
            protocol.LoadRequest: self._load,
            protocol.TestbedRequest: self._describe,
            protocol.AnalyseRequest: self._analyse,
            protocol.WatchLoadRequest: self._watch_load,
        }

    def loop(self) -> None:
        """Answer requests until the conductor closes the connection (ConnectionClosed
        is raised then).
        """
        while True:
            payload, descriptor = protocol.receive_with_descriptor(self.connection)
            request = protocol.request_decoder.decode(payload)
            if isinstance(request, protocol.SpawnRequest) and descriptor is not None:
                self._spawn(request, socket.socket(fileno=descriptor))
                continue
            if descriptor is not None:
                self.reports = socket.socket(fileno=descriptor)
            protocol.send(self.connection, self.answer(request))

    def answer(self, request: msgspec.Struct) -> msgspec.Struct:
        self._printed = PrintedText()
        try:
            answer = self.answers.get(type(request))
            if answer is None:
                raise MeasuringError("no workload is loaded yet")
            return answer(request)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit included
            return protocol.Failed(error=self._describe_error(error))

    def _describe_error(self, error: BaseException) -> ErrorDetail:
        return describe_error(
            error, self.device, self.project, self._printed.last_line()
        )

    def _spawn(self, request: protocol.SpawnRequest, connection: socket.socket) -> None:
        """Fork: the new process stays warm in our place, and we go on as a worker at
        the other ``connection``.

        Not the other way round, for our parent is the fork server, and the new
        process's will be once we have ended.
        """
        # They would count for both processes, and take turns with the new counters.
        self.counters.close()
        try:
            pid = os.fork()
        except OSError as error:
            protocol.send(
                self.connection, protocol.Failed(error=no_process(str(error)))
            )
            return
        if pid == 0:
            connection.close()
            os.setsid()
            adopt_orphans()
            return
        die_with_parent(os.getppid())
        protocol.send(self.connection, protocol.Spawned(pid=pid))
        self.connection.close()
        self.connection = connection
        write_stacks_to(request.stack_path)
        self.pad = draw_pad(request.layout_seed)
        self.counters = HardwareCounters()
        assert self.blocks is not None, "only a warm worker is forked"
        self.blocks.count_by(self.counters)

    def _read_harness(self, request: protocol.HarnessRequest) -> protocol.HarnessReply:
        root = Path(request.root)
        self.project = ProjectCode(root, request.python_path)
        os.chdir(root)
        workload = load_workload(
            Path(request.file),
            request.attribute,
            root=root,
            python_path=request.python_path,
        )
        return protocol.HarnessReply(
            batch=workload.batch,
            batch_sizes=list(workload.batch_sizes),
            shapes=describe_shapes(workload),
            functions=describe_functions(workload),
            sla_p99=workload.sla.p99,
        )

    def _load(self, request: protocol.LoadRequest) -> protocol.Loaded:
        started = time.perf_counter()
        before = Holdings.of_this_process()
        add_communication(request.communication)
        device = self._open(request.device)
        self.project = ProjectCode(Path(request.root), request.python_path, device.kind)
        prepare_libraries(threads=request.threads, seed=request.seed)
        # Relative paths start at the root, as for the project's own code.
        os.chdir(request.root)
        if request.layout_seed is not None:
            scatter_memory(request.layout_seed)
        line_watch = None
        if request.watch is not None and self.reports is not None:
            line_watch = TrialWatch(request, request.watch, self.reports)
        workload = self._build(request, device)
        self.take_up(request, workload, before, line_watch)
        return protocol.Loaded(
            batch=workload.batch,
            shapes=workload.shapes,
            sla_p99=workload.workload.sla.p99,
            seconds=time.perf_counter() - started,
            capabilities=sorted(device.capabilities),
            sla_rate=workload.workload.sla.rate,
        )

    def _build(self, request: protocol.LoadRequest, device: Device) -> BoundWorkload:
        root, file = Path(request.root), Path(request.file)
        if self.built is not None and self.built.serves(request):
            self._say(Activity("copying {name} to the device", name=request.name))
            model = device.place(self.built.model)
            return BoundWorkload(
                request.name,
                self.built.workload,
                device,
                seed=request.seed,
                root=root,
                model=model,
            )
        self._say(Activity("importing {name}", name=file.name))
        workload = load_workload(
            file, request.attribute, root=root, python_path=request.python_path
        )
        self._say(Activity("building {name}", name=request.name))
        bound = BoundWorkload(
            request.name, workload, device, seed=request.seed, root=root
        )
        if bound.model is None:
            raise WorkloadError(
                Message("workload.no-model", {"name": repr(request.name)})
            )
        return bound

    def take_up(
        self,
        request: protocol.LoadRequest,
        workload: BoundWorkload,
        before: Holdings,
        line_watch: TrialWatch | None,
    ) -> None:
        """Answer requests about a workload from now on."""
        loaded = LoadedWorkload(
            request=request,
            workload=workload,
            before=before,
            line_watch=line_watch,
            say=self._say,
            announce_experiment=lambda: protocol.send(
                self.connection, protocol.Experimenting()
            ),
            describe_error=self._describe_error,
        )
        self.blocks = BlockAnswers(loaded, self.counters)
        self.answers = {
            **self.answers,
            **TrialAnswers(loaded).answers,
            **self.blocks.answers,
            **ChecklistAnswers(loaded, self._began).answers,
            **ProfileAnswers(loaded).answers,
        }

    def _describe(self, request: protocol.TestbedRequest) -> protocol.TestbedReply:
        device = self._open(request.device)
        prepare_libraries(threads=request.threads, seed=0)
        return protocol.TestbedReply(
            testbed=describe_testbed(device, threads=request.threads, cpus=self.cpus)
        )

    def _watch_load(self, request: protocol.WatchLoadRequest) -> protocol.LoadWatched:
        return protocol.LoadWatched(
            checks=watch_device(self._open(request.device), request.seconds)
        )

    def _analyse(self, request: protocol.AnalyseRequest) -> protocol.Analysis:
        recordings = [Path(recording) for recording in request.recordings]
        device, folder = self._open(request.device), Path(request.folder)
        analysis = protocol.Analysis(operators={})
        for recording, calls in recorded_calls(device, folder, recordings).items():
            name = str(recording)
            analysis.operators[name] = calls.operators
            analysis.kernels[name] = calls.kernels
            if name in request.traces:
                analysis.traces[name] = str(
                    keep_recording(recording, Path(request.traces[name]))
                )
        return analysis

    def _open(self, kind: str) -> Device:
        if self.device is None:
            self.device = open_device(kind)
        return self.device

    def _say(self, activity: Activity) -> None:
        values: dict[str, str | int | float] = {}
        for name, value in activity.values.items():
            values[name] = value if isinstance(value, (int, float)) else str(value)
        protocol.send(
            self.connection,
            protocol.ProgressReply(text=activity.template, values=values),
        )


def no_process(error: str) -> ErrorDetail:
    return ErrorDetail(
        kind="exception", message=Message("worker.no-process", {"error": error})
    )


def draw_pad(layout_seed: int) -> object:
    """An allocation that shifts all later allocations: the same on both sides of a
    pair, another from pair to pair.

    So luck with addresses averages out instead of favouring one side.
    """
    return bytearray(16 * (layout_seed % 65536) + 16)


def describe_error(
    error: BaseException,
    device: Device | None = None,
    project: ProjectCode | None = None,
    printed: str = "",
) -> ErrorDetail:
    """Describe an exception for the conductor: the kind, one line with its place and a
    hint, the traceback.

    ``printed`` is the last line that the project's code printed.
    """
    text = own_traceback(error)
    if isinstance(error, SystemExit):
        return ErrorDetail(
            kind="exit", message=explained_exit(error, project, printed), traceback=text
        )
    if isinstance(error, MemoryError) or (
        device is not None and device.is_out_of_memory(error)
    ):
        message = Message("worker.no-memory", {"error": explained(error, project)})
        return ErrorDetail(kind="memory", message=message, traceback=text)
    if isinstance(error, ReasonedError):
        return ErrorDetail(kind="exception", message=error.reason, traceback=text)
    return ErrorDetail(
        kind="exception", message=explained(error, project), traceback=text
    )
