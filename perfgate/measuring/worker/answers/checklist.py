"""The steps of the checklist, and their experiments that the conductor paces itself."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path

import msgspec

from perfgate.document.message import as_message
from perfgate.document.sweep import Sweep
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.batch_sweep import QUICK, measure_size, probe
from perfgate.measuring.checklist.experiment import (
    FailedExperiment,
    experiment,
    own_call,
)
from perfgate.measuring.checklist.mistakes import explained
from perfgate.measuring.checklist.runner import find_steps, run_step
from perfgate.measuring.checklist.step import Experiments, StepContext, StepProcess
from perfgate.measuring.checklist.steps.s09_graph import compiled_for_check
from perfgate.measuring.checklist.steps.s09_graph.compilation import Compiled
from perfgate.measuring.counting.counters import WARM_UP_CALLS
from perfgate.measuring.timing.calls import compare
from perfgate.measuring.worker.loaded import AnswersByRequest, LoadedWorkload
from perfgate.protocol import (
    CompiledCall,
    CompiledTimed,
    CompileRequest,
    SizeBlockDone,
    SizeBlockRequest,
    SizesTried,
    StepReply,
    StepRequest,
    TimeCompiledRequest,
    TrySizesRequest,
)
from perfgate.system.garbage import collector_off


class ChecklistAnswers:
    """Runs steps and experiments.

    ``began`` is when the process started, in seconds since the epoch.
    """

    def __init__(self, loaded: LoadedWorkload, began: float) -> None:
        self._loaded = loaded
        self._workload = loaded.workload
        self._device = loaded.workload.device
        self._process = StepProcess(began, loaded.request)
        self._compiled: Compiled | None = None
        # Open until the process ends: its home, where they lie, is removed then.
        self._resources = ExitStack()
        self.answers: AnswersByRequest = {
            StepRequest: self._run_step,
            TrySizesRequest: self._try_sizes,
            SizeBlockRequest: self._size_block,
            CompileRequest: self._compile,
            TimeCompiledRequest: self._time_compiled,
        }

    def _run_step(self, request: StepRequest) -> StepReply:
        context = StepContext(
            workload=self._workload,
            limits=request.limits,
            seed=request.seed,
            artifacts=Path(request.artifacts),
            progress=self._loaded.say,
            extent=request.extent,
            settings=request.settings,
            process=self._process,
            experiments=Experiments(
                self._loaded.announce_experiment, request.no_experiments
            ),
        )
        with (
            self._device.leave_out_waits() if request.leave_out_waits else nullcontext()
        ):
            result, outcome = run_step(find_steps()[request.number], context)
        is_spoiled = bool(context.experiments.failures) or result.error is not None
        spoiled = is_spoiled and "spoiled_by_errors" in self._device.capabilities
        reply = StepReply(result=result, artifacts=context.kept, spoiled=spoiled)
        if outcome is None:
            return reply
        return msgspec.structs.replace(
            reply,
            operators=outcome.operators,
            accounts=outcome.accounts,
            counters=outcome.counters,
        )

    def _experiment_context(
        self, request: TrySizesRequest | CompileRequest, folder: Path
    ) -> StepContext:
        return StepContext(
            workload=self._workload,
            limits=request.limits,
            seed=request.seed,
            artifacts=folder,
            progress=self._loaded.say,
        )

    def _try_sizes(self, request: TrySizesRequest) -> SizesTried:
        context = self._experiment_context(request, self._workload.root)
        sweep = Sweep()
        with collector_off(), self._device.leave_out_waits():
            probe(context, self._workload.shapes[0], QUICK, sweep)
        return SizesTried(sweep)

    def _size_block(self, request: SizeBlockRequest) -> SizeBlockDone:
        workload, device = self._workload, self._device
        shape = workload.shapes[0]
        try:
            with collector_off(), device.leave_out_waits():
                rate, latencies = measure_size(
                    workload, shape, request.size, seconds=request.seconds
                )
        except Exception as error:  # noqa: BLE001 - the workload was not written for other batch sizes
            workload.drop_pool(shape, batch=request.size)
            device.empty_cache()
            if device.is_out_of_memory(error):
                return SizeBlockDone()
            return SizeBlockDone(
                refused=as_message(explained(error, self._loaded.project))
            )
        return SizeBlockDone(rate=rate, latencies=latencies)

    def _compile(self, request: CompileRequest) -> CompiledCall:
        context = self._experiment_context(request, Path(request.folder))
        shape = self._workload.shapes[0]
        for _ in range(WARM_UP_CALLS):
            own_call(context, shape)
        compiled = experiment(
            context,
            lambda: self._resources.enter_context(compiled_for_check(context, shape)),
        )
        if isinstance(compiled, FailedExperiment):
            return CompiledCall(failed=compiled.reason)
        self._compiled = compiled
        disagreement = None if compiled.agrees else compiled.disagreement
        return CompiledCall(
            cold_seconds=compiled.cold_ns / 1e9, disagreement=disagreement
        )

    def _time_compiled(self, request: TimeCompiledRequest) -> CompiledTimed:
        compiled, device = self._compiled, self._device
        if compiled is None:
            raise MeasuringError("no call is compiled yet")
        with collector_off(), device.leave_out_waits():
            versus = compare(
                compiled.plain,
                compiled.fast,
                device,
                seconds=request.seconds,
                seed=request.seed,
            )
        return CompiledTimed(
            plain=versus.first_ns / 1e9, compiled=versus.second_ns / 1e9
        )
