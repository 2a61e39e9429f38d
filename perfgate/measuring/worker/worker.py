"""The worker: answers the conductor's requests one by one; a workload's exception becomes a reply, not an exit."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext

# The function itself, taken before user code may replace it.
from gc import get_objects
from pathlib import Path
from typing import Any

import msgspec

from perfgate import protocol
from perfgate.document.message import Message, ReasonedError, WorkloadError, as_message
from perfgate.document.run import ErrorDetail
from perfgate.document.sweep import Sweep
from perfgate.errors import MeasuringError
from perfgate.locale import Activity
from perfgate.measuring.checklist.batch_sweep import QUICK, measure_size, probe
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment, own_call
from perfgate.measuring.checklist.mistakes import PrintedText, ProjectCode, explained, explained_exit, own_traceback
from perfgate.measuring.checklist.runner import find_steps, run_step
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.checklist.steps.s09_graph import compiled_for_check
from perfgate.measuring.checklist.steps.s09_graph.compilation import Compiled
from perfgate.measuring.counting.again import count_again
from perfgate.measuring.counting.collect import keep_recording
from perfgate.measuring.counting.counters import WARM_UP_CALLS
from perfgate.measuring.counting.profile import OperatorProfile, SubroutineTimes, recorded_calls
from perfgate.measuring.counting.slow_lines import locate_stalls
from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.devices.card import watch_device
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.timing.blocks import BlockRecorder, warm_up
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.timing.hardware import HardwareCounters
from perfgate.measuring.timing.testbed import describe_testbed
from perfgate.measuring.timing.versus import compare
from perfgate.measuring.worker.correctness import check_outputs
from perfgate.measuring.worker.executed import LineRecorder
from perfgate.measuring.worker.host_build import HostBuild, prepare_libraries
from perfgate.measuring.worker.packages import loaded_distributions, loaded_sources
from perfgate.measuring.worker.signature import signature_of
from perfgate.measuring.worker.spawn import Holdings, is_forkable, open_files, write_stacks_to
from perfgate.measuring.worker.trial import (
    children_ran,
    copies_that_fit,
    exercise,
    faults_of_children,
    runs_unseen,
    try_calls,
)
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.layout import Layout, scatter_memory
from perfgate.measuring.workload.load import describe_functions, describe_shapes, load_workload
from perfgate.system.garbage import collector_off
from perfgate.system.processes import adopt_orphans, die_with_parent
from perfgate.trace.model.communication import add_communication

# How long a trial looks for more changed lines once the change is known to need measuring.
_MORE_SECONDS = 1.0


class WorkerLoop:
    """One worker process: at most one workload on one device, at one end of a socket.

    ``counters`` see the threads that are started after them alone, so they are opened before anything else. ``built`` is a
    workload that the fork server built on the host.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        cpus: list[int],
        counters: HardwareCounters | None = None,
        built: HostBuild | None = None,
    ) -> None:
        self.connection = connection
        self.cpus = cpus
        self.counters = counters
        self.built = built
        self.device: Device | None = None
        self.workload: BoundWorkload | None = None
        self.recorder: BlockRecorder | None = None
        self.layout: Layout | None = None
        self.profile: OperatorProfile | None = None
        self.subroutines: SubroutineTimes | None = None
        self.root = Path()
        self.load: protocol.LoadRequest | None = None
        self.began = time.time()
        self.project: ProjectCode | None = None
        self.reports: socket.socket | None = None
        self.line_recorder: LineRecorder | None = None
        self._faults_of_children = 0
        self.pad: object = None
        self.compiled_call: Compiled | None = None
        # Open until the process ends: its home, where they lie, is removed then.
        self.resources = ExitStack()
        self._began: Holdings | None = None
        self._printed = PrintedText()
        self._warm_shapes: set[str] = set()
        # Made behind the last time that we freeze: the collector lists it until user code freezes it with everything else.
        # Looking for it costs less than counting all frozen objects, which include every import of torch.
        self._unfrozen: list[object] = []
        self._answers: dict[type, Callable[[Any], msgspec.Struct]] = {
            protocol.HarnessRequest: self._read_harness,
            protocol.LoadRequest: self._load,
            protocol.TestbedRequest: self._describe,
            protocol.TryRequest: self._try,
            protocol.SignatureRequest: self._signature,
            protocol.TimeCallRequest: self._time_call,
            protocol.CheckRequest: self._check,
            protocol.RecountRequest: self._recount,
            protocol.StepRequest: self._step,
            protocol.WarmUpRequest: self._warm_up,
            protocol.MoveRequest: self._move,
            protocol.ParkRequest: self._park,
            protocol.BlockRequest: self._block,
            protocol.WakeRequest: self._wake,
            protocol.KernelsRequest: self._kernels,
            protocol.LocateStallsRequest: self._locate_stalls,
            protocol.CollectRequest: self._collect,
            protocol.TrySizesRequest: self._try_sizes,
            protocol.SizeBlockRequest: self._size_block,
            protocol.CompileRequest: self._compile,
            protocol.TimeCompiledRequest: self._time_compiled,
            protocol.ProfileRequest: self._profile,
            protocol.ProfileTimesRequest: self._profile_times,
            protocol.RecordRequest: self._record,
            protocol.TraceRequest: self._trace,
            protocol.AnalyseRequest: self._analyse,
            protocol.WatchLoadRequest: self._watch_load,
        }

    def loop(self) -> None:
        """Answer requests until the conductor closes the connection (ConnectionClosed is raised then)."""
        while True:
            payload, descriptor = protocol.receive_with_descriptor(self.connection)
            request = protocol.request_decoder.decode(payload)
            if isinstance(request, protocol.SpawnRequest) and descriptor is not None:
                self._spawn(request, socket.socket(fileno=descriptor))
                continue
            if descriptor is not None:
                self.reports = socket.socket(fileno=descriptor)
            protocol.send(self.connection, self._answer(request))

    def _spawn(self, request: protocol.SpawnRequest, connection: socket.socket) -> None:
        """Fork: the new process stays warm in our place, and we go on as a worker at the other ``connection``.

        Not the other way round, for our parent is the fork server, and the new process's will be once we have ended.
        """
        # They would count for both, and take turns with the new ones.
        if self.counters is not None:
            self.counters.close()
        try:
            pid = os.fork()
        except OSError as error:
            refused = Message("worker.no-process", {"error": str(error)})
            protocol.send(self.connection, protocol.Failed(error=ErrorDetail(kind="exception", message=refused)))
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
        if self.counters is not None:
            self.counters = HardwareCounters()
        self.recorder = BlockRecorder(self._loaded, self._opened, counters=self.counters)

    def _answer(self, request: msgspec.Struct) -> msgspec.Struct:
        self._printed = PrintedText()
        try:
            return self._answers[type(request)](request)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit included
            return protocol.Failed(error=self._describe_error(error))

    def _describe_error(self, error: BaseException) -> ErrorDetail:
        return describe_error(error, self.device, self.project, self._printed.last_line())

    def _read_harness(self, request: protocol.HarnessRequest) -> protocol.HarnessReply:
        file = Path(request.file)
        self.project = ProjectCode(Path(request.root), request.python_path)
        os.chdir(request.root)
        workload = load_workload(file, request.attribute, root=Path(request.root), python_path=request.python_path)
        return protocol.HarnessReply(
            batch=workload.batch,
            batch_sizes=list(workload.batch_sizes),
            shapes=describe_shapes(workload),
            functions=describe_functions(workload),
            sla_p99=workload.sla.p99,
        )

    def _load(self, request: protocol.LoadRequest) -> protocol.Loaded:
        started = time.perf_counter()
        self._began = Holdings.of_this_process()
        self.root, self.load = Path(request.root), request
        add_communication(request.communication)
        device = self._open(request.device)
        self.project = ProjectCode(self.root, request.python_path, device.kind)
        prepare_libraries(threads=request.threads, seed=request.seed)
        # Relative paths start at the root, as for the project's own code.
        os.chdir(self.root)
        if request.layout_seed is not None:
            scatter_memory(request.layout_seed)
        if request.watch is not None and self.reports is not None:
            self.line_recorder = self._record_lines(request.watch, self.reports)
        if self.built is not None and self.built.serves(request):
            self._say(Activity("copying {name} to the device", name=request.name))
            workload, model = self.built.workload, device.place(self.built.model)
        else:
            file = Path(request.file)
            self._say(Activity("importing {name}", name=file.name))
            workload = load_workload(file, request.attribute, root=self.root, python_path=request.python_path)
            self._say(Activity("building {name}", name=request.name))
            model = None
        self.workload = BoundWorkload(request.name, workload, device, seed=request.seed, model=model)
        if self.workload.model is None:
            raise WorkloadError(Message("workload.no-model", {"name": repr(request.name)}))
        return protocol.Loaded(
            batch=workload.batch,
            shapes=self.workload.shapes,
            sla_p99=workload.sla.p99,
            seconds=time.perf_counter() - started,
            capabilities=sorted(device.capabilities),
            sla_rate=workload.sla.rate,
        )

    def _describe(self, request: protocol.TestbedRequest) -> protocol.TestbedReply:
        device = self._open(request.device)
        prepare_libraries(threads=request.threads, seed=0)
        return protocol.TestbedReply(testbed=describe_testbed(device, threads=request.threads, cpus=self.cpus))

    def _try(self, request: protocol.TryRequest) -> protocol.Tried:
        began = time.monotonic()
        failed = try_calls(self._loaded, self._opened, self.root)
        seconds = time.monotonic() - began
        packages = loaded_distributions() if request.packages else None
        if failed is None:
            watching = self._watch(self.line_recorder, request.seconds) if self.line_recorder else None
            copies_fit = copies_that_fit(self._opened)
            return protocol.Tried(seconds=seconds, packages=packages, watching=watching, copies_fit=copies_fit)
        part, shape, raised = failed
        error = self._describe_error(raised)
        return protocol.Tried(failed=part, shape=shape, error=error, packages=packages)

    def _signature(self, _: protocol.SignatureRequest) -> protocol.Signature:
        return signature_of(self._loaded, self._opened, self.root)

    def _record_lines(self, watch: protocol.Watched, reports: socket.socket) -> LineRecorder:
        """Begin to record lines, before any module of the project is imported."""
        assert self.load is not None
        roots = [self.load.root, str(Path(self.load.file).parent), *watch.roots]
        self._faults_of_children = faults_of_children()
        recorder = LineRecorder(watch.files, watch.folders, roots, reports)
        recorder.start()
        return recorder

    def _watch(self, recorder: LineRecorder, seconds: float) -> protocol.Watching:
        """Run the workload for longer, and report all that the recorder saw."""
        assert self.load is not None
        assert self.load.watch is not None
        watch = self.load.watch
        groups = [{tuple(place) for place in group} for group in watch.groups]

        def is_done() -> bool:
            return bool(groups) and all(not group.isdisjoint(recorder.lines) for group in groups)

        began_with_a_hit = any(not group.isdisjoint(recorder.lines) for group in groups)
        exercised = exercise(
            self._loaded,
            self._opened,
            is_done,
            seconds=min(seconds, _MORE_SECONDS) if began_with_a_hit else seconds,
            most=protocol.MANY_CALLS,
        )
        recorder.finish()
        doubts = runs_unseen(self._loaded, self._opened, recorder)
        if recorder.elsewhere(watch.tails):
            doubts.append("coverage.elsewhere")
        return protocol.Watching(
            doubts=doubts,
            began_processes=recorder.began_processes or children_ran(self._faults_of_children),
            read_files=sorted(recorder.read_files),
            read_code=sorted(recorder.read_code),
            names=recorder.names(),
            entered=recorder.entered_functions(watch.roots),
            sources=loaded_sources(),
            calls=exercised.calls,
            has_all_sizes=exercised.has_all_sizes,
        )

    def _time_call(self, _: protocol.TimeCallRequest) -> protocol.CallTimed:
        workload, device, total_ns = self._loaded, self._opened, 0
        for shape in workload.shapes:
            call = workload.caller(shape)
            call()  # it may compile
            device.synchronize()
            total_ns += timed_call(call, device)
        return protocol.CallTimed(seconds=total_ns / 1e9)

    def _check(self, _: protocol.CheckRequest) -> protocol.CheckReply:
        return protocol.CheckReply(results=check_outputs(self._loaded, self._opened))

    def _recount(self, request: protocol.RecountRequest) -> protocol.Recounted:
        counters = count_again(self._loaded, self._opened, root=self.root, parts=request.parts)
        return protocol.Recounted(counters=counters)

    def _step(self, request: protocol.StepRequest) -> protocol.StepReply:
        context = StepContext(
            workload=self._loaded,
            device=self._opened,
            quick=request.quick,
            threads=request.threads,
            limits=request.limits,
            seed=request.seed,
            root=self.root,
            began=self.began,
            artifacts=Path(request.artifacts),
            progress=self._say,
            expected_kernels=tuple(request.expected_kernels),
            graph_spans=tuple(request.graph_spans),
            budgets=tuple(request.budgets),
            steady_seconds=request.steady,
            copies=tuple(request.copies),
            cold_start=request.cold_start,
            shape_space=request.shape_space,
            brief=request.brief,
            exact_only=request.exact_only,
            load=self.load,
            warm_shapes=self._warm_shapes,
            experimenting=lambda: protocol.send(self.connection, protocol.Experimenting()),
            no_experiments=request.no_experiments,
        )
        with self._opened.leave_out_waits() if request.leave_out_waits else nullcontext():
            result, outcome = run_step(find_steps()[request.number], context)
        is_spoiled = bool(context.failed_experiments) or result.error is not None
        spoiled = is_spoiled and "spoiled_by_errors" in self._opened.capabilities
        reply = protocol.StepReply(result=result, artifacts=context.kept, spoiled=spoiled)
        if outcome is None:
            return reply
        return msgspec.structs.replace(
            reply, operators=outcome.operators, accounts=outcome.accounts, counters=outcome.counters
        )

    def _warm_up(self, request: protocol.WarmUpRequest) -> protocol.WarmedUp:
        self.recorder = BlockRecorder(self._loaded, self._opened, counters=self.counters)
        loaded = open_files()
        warm = warm_up(
            self._loaded,
            self._opened,
            block_seconds=request.block_seconds,
            cap_seconds=request.cap_seconds,
            least_seconds=request.least_seconds,
            preprocessing=self.recorder.preprocessing,
        )
        self._unfrozen = []
        if self._began is None or not is_forkable(self._opened, began=self._began, loaded=loaded):
            return warm
        # Tensors that do not move would have the same address in all processes forked from this one.
        if not Layout(self._loaded).movable:
            return warm
        return msgspec.structs.replace(warm, forkable=True, parts=self._began.imported_since())

    def _park(self, request: protocol.ParkRequest) -> protocol.Parked:
        move = self._opened.park if request.away else self._opened.unpark
        move(self._loaded.model)
        return protocol.Parked()

    def _move(self, request: protocol.MoveRequest) -> protocol.LayoutMoved:
        if self.layout is None:
            self.layout = Layout(self._loaded)
        self.layout.move(request.seed)
        return protocol.LayoutMoved(movable=self.layout.movable)

    def _block(self, request: protocol.BlockRequest) -> protocol.BlockDone:
        block = {"calls": request.calls, "quad": request.quad, "sequence": request.sequence}
        if request.lane == "call":
            self._warmed.record(request.shape, **block, as_served=request.as_served)
        else:
            self._warmed.record_preprocessing(request.shape, **block)
        return protocol.BlockDone()

    def _wake(self, request: protocol.WakeRequest) -> protocol.Woken:
        with collector_off():
            self._warmed.wake(request.shape, seconds=request.seconds)
        return protocol.Woken()

    def _kernels(self, request: protocol.KernelsRequest) -> protocol.KernelsDone:
        with collector_off():
            self._warmed.record_kernels(request.shape, calls=request.calls, quad=request.quad)
        return protocol.KernelsDone()

    def _locate_stalls(self, request: protocol.LocateStallsRequest) -> protocol.StallsLocated:
        samples = locate_stalls(
            self._loaded.caller(request.shape),
            self._opened,
            SourceLines(self.root),
            longer_than=request.longer_than,
            calls=request.calls,
            seconds=request.seconds,
        )
        return protocol.StallsLocated(samples=samples)

    def _collect(self, _: protocol.CollectRequest) -> protocol.Collected:
        recorder = self._warmed
        collected = protocol.Collected(
            shapes=recorder.columns(),
            preprocess=recorder.preprocess_columns(self.root),
            kernels=recorder.kernel_columns(),
            settings=_library_settings(frozen_more=all(entry is not self._unfrozen for entry in get_objects())),
            uncounted=recorder.uncounted,
        )
        # A resident worker goes on to the blocks of another pair.
        recorder.clear()
        return collected

    def _experiment_context(self, limits: dict[str, float], seed: int, folder: Path) -> StepContext:
        """The inputs of an experiment that the conductor paces itself."""
        return StepContext(
            workload=self._loaded,
            device=self._opened,
            quick=True,
            limits=limits,
            seed=seed,
            root=self.root,
            artifacts=folder,
            progress=self._say,
        )

    def _try_sizes(self, request: protocol.TrySizesRequest) -> protocol.SizesTried:
        context = self._experiment_context(request.limits, request.seed, self.root)
        sweep = Sweep()
        with collector_off(), self._opened.leave_out_waits():
            probe(context, self._loaded.shapes[0], QUICK, sweep)
        return protocol.SizesTried(
            call_seconds=sweep.call_seconds,
            refused=sweep.refused,
            out_of_memory=sweep.out_of_memory,
            too_slow=sweep.too_slow,
        )

    def _size_block(self, request: protocol.SizeBlockRequest) -> protocol.SizeBlockDone:
        workload, device = self._loaded, self._opened
        shape = workload.shapes[0]
        try:
            with collector_off(), device.leave_out_waits():
                rate, latencies = measure_size(workload, device, shape, request.size, seconds=request.seconds)
        except Exception as error:  # noqa: BLE001 - the workload was not written for other batch sizes
            workload.drop_pool(shape, batch=request.size)
            device.empty_cache()
            refused = None if device.is_out_of_memory(error) else as_message(explained(error, self.project))
            return protocol.SizeBlockDone(refused=refused)
        return protocol.SizeBlockDone(rate=rate, latencies=latencies)

    def _compile(self, request: protocol.CompileRequest) -> protocol.CompiledCall:
        context = self._experiment_context(request.limits, request.seed, Path(request.folder))
        shape = self._loaded.shapes[0]
        for _ in range(WARM_UP_CALLS):
            own_call(context, shape)
        call = experiment(context, lambda: self.resources.enter_context(compiled_for_check(context, shape)))
        if isinstance(call, FailedExperiment):
            return protocol.CompiledCall(failed=call.reason)
        self.compiled_call = call
        disagreement = None if call.agrees else call.disagreement
        return protocol.CompiledCall(cold_seconds=call.cold_ns / 1e9, disagreement=disagreement)

    def _time_compiled(self, request: protocol.TimeCompiledRequest) -> protocol.CompiledTimed:
        if self.compiled_call is None:
            raise MeasuringError("no call is compiled yet")
        device = self._opened
        with collector_off(), device.leave_out_waits():
            versus = compare(
                self.compiled_call.plain, self.compiled_call.fast, device, seconds=request.seconds, seed=request.seed
            )
        return protocol.CompiledTimed(plain=versus.first_ns / 1e9, compiled=versus.second_ns / 1e9)

    def _profile(self, request: protocol.ProfileRequest) -> protocol.Profiled:
        profile = self._subroutine_times if request.kind == "subroutines" else self._operator_profile
        with collector_off():
            profile.run(request.shape, calls=request.calls)
        return protocol.Profiled()

    def _profile_times(self, _: protocol.ProfileTimesRequest) -> protocol.ProfileTimes:
        return protocol.ProfileTimes(
            operators=self.profile.typical_times() if self.profile else {},
            subroutines=self.subroutines.typical_times() if self.subroutines else {},
        )

    def _record(self, request: protocol.RecordRequest) -> protocol.CallsRecorded:
        profile = self._operator_profile
        with collector_off():
            recording = profile.leave(request.shape, calls=request.calls, folder=Path(request.folder))
        return protocol.CallsRecorded(recording=str(recording))

    @property
    def _operator_profile(self) -> OperatorProfile:
        if self.profile is None:
            self.profile = OperatorProfile(self._loaded, self._opened)
        return self.profile

    @property
    def _subroutine_times(self) -> SubroutineTimes:
        if self.subroutines is None:
            self.subroutines = SubroutineTimes(self._loaded, self._opened, self.root)
        return self.subroutines

    def _trace(self, request: protocol.TraceRequest) -> protocol.CallsRecorded:
        call, folder = self._loaded.caller(request.shape), Path(request.folder)
        with collector_off():
            # The consumer reads the file; reading it here would double the time.
            file = self._opened.record_trace(call, calls=request.calls, folder=folder, name=request.name)
        return protocol.CallsRecorded(recording=str(file))

    def _watch_load(self, request: protocol.WatchLoadRequest) -> protocol.LoadWatched:
        return protocol.LoadWatched(checks=watch_device(self._open(request.device), request.seconds))

    def _analyse(self, request: protocol.AnalyseRequest) -> protocol.Analysis:
        recordings = [Path(recording) for recording in request.recordings]
        recorded = recorded_calls(self._open(request.device), Path(request.folder), recordings)
        traces = {
            name: str(keep_recording(Path(name), Path(path)))
            for name, path in request.traces.items()
            if Path(name) in recorded
        }
        return protocol.Analysis(
            operators={str(recording): calls.operators for recording, calls in recorded.items()},
            kernels={str(recording): calls.kernels for recording, calls in recorded.items()},
            traces=traces,
        )

    def _open(self, kind: str) -> Device:
        if self.device is None:
            self.device = open_device(kind)
        return self.device

    def _say(self, activity: Activity) -> None:
        values = {
            name: value if isinstance(value, (int, float)) else str(value) for name, value in activity.values.items()
        }
        protocol.send(self.connection, protocol.ProgressReply(text=activity.template, values=values))

    @property
    def _opened(self) -> Device:
        if self.device is None:
            raise MeasuringError("no device is open yet")
        return self.device

    @property
    def _loaded(self) -> BoundWorkload:
        if self.workload is None:
            raise MeasuringError("no workload is loaded yet")
        return self.workload

    @property
    def _warmed(self) -> BlockRecorder:
        if self.recorder is None:
            raise MeasuringError("the worker is not warmed up yet")
        return self.recorder


def draw_pad(layout_seed: int) -> object:
    """An allocation that shifts all later ones: the same on both sides of a pair, another from pair to pair.

    So luck with addresses averages out instead of favouring one side.
    """
    return bytearray(16 * (layout_seed % 65536) + 16)


def _library_settings(*, frozen_more: bool) -> dict[str, str]:
    """Settings that a workload may have changed although they were set for both sides alike.

    Garbage frozen by user code (``gc.freeze``) is never collected, so its cost stays hidden.
    """
    settings = {"frozen objects": "more than set aside" if frozen_more else "as set aside"}
    if torch := sys.modules.get("torch"):
        settings["torch threads"] = str(torch.get_num_threads())
        settings["torch interop threads"] = str(torch.get_num_interop_threads())
    return settings


def describe_error(
    error: BaseException, device: Device | None = None, project: ProjectCode | None = None, printed: str = ""
) -> ErrorDetail:
    """Describe an exception for the conductor: the kind, one line with its place and a hint, the traceback.

    ``printed`` is the last line that the project's code printed.
    """
    text = own_traceback(error)
    if isinstance(error, SystemExit):
        return ErrorDetail(kind="exit", message=explained_exit(error, project, printed), traceback=text)
    if isinstance(error, MemoryError) or (device is not None and device.is_out_of_memory(error)):
        message = Message("worker.no-memory", {"error": explained(error, project)})
        return ErrorDetail(kind="memory", message=message, traceback=text)
    if isinstance(error, ReasonedError):
        return ErrorDetail(kind="exception", message=error.reason, traceback=text)
    return ErrorDetail(kind="exception", message=explained(error, project), traceback=text)
