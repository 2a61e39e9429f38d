"""One call of every shape and its check, before anything is measured: the point of
failure of a misconfigured workload.

And many calls that are not timed, to see which changed lines run.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perfgate.document.message import Message, WorkloadError, quote
from perfgate.measuring.checklist.batch_sweep import LARGEST_OF_ALL, QUICK
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.measuring.devices.device import Device
from perfgate.measuring.worker.correctness import check_outputs, nothing_computed
from perfgate.measuring.worker.executed import LineRecorder
from perfgate.measuring.worker.packages import loaded_sources
from perfgate.measuring.workload.bound import BoundWorkload, answered_no, line_of
from perfgate.measuring.workload.output import UnreadOutputError
from perfgate.protocol import MANY_CALLS, LoadRequest, Watched, Watching
from perfgate.system.processes import children

_POWERS_OF_TWO = [1 << power for power in range(LARGEST_OF_ALL.bit_length())]

# Of a device's memory: what a process takes besides its tensors, and what all processes
# may take together.
_CONTEXT_SHARE, _USABLE_SHARE = 0.01, 0.97

# How long a trial looks for more changed lines once the change is known to need
# measuring.
_MORE_SECONDS = 1.0


class TrialFailure(NamedTuple):
    """The first part of a trial that failed, its shape and the exception."""

    part: Literal["call", "check"]
    shape: str
    error: BaseException


def try_calls(workload: BoundWorkload) -> TrialFailure | None:
    """Call every shape once and have the output checked."""
    device = workload.device
    for shape in workload.shapes:
        part: Literal["call", "check"] = "call"
        try:
            inputs = workload.host_inputs(shape)
            output = device.to_host(workload.invoke(device.to_device(inputs)))
            device.synchronize()
            if unrun := nothing_computed(workload, output, inputs):
                raise UnreadOutputError(unrun)
            part = "check"
            if refused := answered_no(workload, output, inputs):
                assert workload.workload.check is not None, "it has refused the output"
                why = quote(refused)
                if place := line_of(workload.workload.check, workload.root):
                    why = Message("mistake.at", {"error": refused, "place": place})
                raise WorkloadError(why)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit included
            return TrialFailure(part, shape, error)
    return None


def copies_that_fit(device: Device) -> int | None:
    """How many processes that need as much memory as this one fit on the device
    together; None if that is unknown.
    """
    memory, used = device.free_memory(), device.memory_statistics()
    if memory is None or used is None:
        return None
    of_one = used.peak_reserved + _CONTEXT_SHARE * memory.total
    return int(_USABLE_SHARE * memory.total / of_one)


class TrialWatch:
    """Records the lines of watched files that a trial runs; recording begins before any
    module of the project is imported.
    """

    def __init__(
        self, request: LoadRequest, watched: Watched, reports: socket.socket
    ) -> None:
        self._watched = watched
        self._groups = [set(group) for group in watched.groups]
        self._faults_of_children = _faults_of_children()
        roots = [request.root, str(Path(request.file).parent), *watched.roots]
        self._recorder = LineRecorder(watched.files, watched.folders, roots, reports)
        self._recorder.start()

    def run(self, workload: BoundWorkload, seconds: float) -> Watching:
        """Run the workload for longer, and report all that the recorder saw."""
        recorder = self._recorder
        if any(not group.isdisjoint(recorder.lines) for group in self._groups):
            seconds = min(seconds, _MORE_SECONDS)
        exercised = _exercise(workload, self._has_seen_all, seconds)
        recorder.finish()
        return Watching(
            doubts=self._doubts(workload),
            began_processes=recorder.began_processes or self._children_ran(),
            read_files=sorted(recorder.read_files),
            read_code=sorted(recorder.read_code),
            names=recorder.names(),
            entered=recorder.entered_functions(self._watched.roots),
            sources=loaded_sources(),
            calls=exercised.calls,
            has_all_sizes=exercised.has_all_sizes,
        )

    def _has_seen_all(self) -> bool:
        """Whether a line of every changed statement has run."""
        if not self._groups:
            return False
        return not any(group.isdisjoint(self._recorder.lines) for group in self._groups)

    def _doubts(self, workload: BoundWorkload) -> list[str]:
        """Why the project's code may run without its lines being seen, by the codes of
        ``catalogue/messages/coverage.toml``.
        """
        reasons = set(self._recorder.doubts)
        if has_compiled() or _is_scripted(workload.model):
            reasons.add("coverage.compiled")
        described = workload.workload
        if (
            described.preprocess_on_device is not None
            or described.reference is not None
            or described.ranks
        ):
            reasons.add("coverage.checklist")
        trains = described.train_step is not None or described.grad
        if (
            self._recorder.traces_threads_of_python_alone
            and trains
            and workload.device.kind != "cpu"
        ):
            reasons.add("coverage.thread")
        doubts = sorted(reasons)
        if self._recorder.elsewhere(self._watched.tails):
            doubts.append("coverage.elsewhere")
        return doubts

    def _children_ran(self) -> bool:
        """Whether other processes have run, some of which may still do."""
        if multiprocessing.active_children() or children():
            return True
        return _faults_of_children() != self._faults_of_children


def _faults_of_children() -> int:
    """The page faults of all child processes that have ended: every process has some."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _is_scripted(model: object) -> bool:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return False
    if not isinstance(model, torch.nn.Module):
        return isinstance(model, torch.jit.ScriptFunction)
    return any(isinstance(module, torch.jit.ScriptModule) for module in model.modules())


class Exercise(NamedTuple):
    """How much of a workload a trial has run: its calls, and whether each of its batch
    sizes was among them.
    """

    calls: int
    has_all_sizes: bool


def _exercise(
    workload: BoundWorkload, is_done: Callable[[], bool], seconds: float
) -> Exercise:
    """Call the workload as measuring does: its check, its inputs, its batch sizes, and
    many calls in a row.

    Ends early once ``is_done``, after ``seconds``, or after MANY_CALLS calls.
    """
    ends = time.monotonic() + seconds
    calls = 0

    def is_over() -> bool:
        return is_done() or time.monotonic() > ends

    for shape in itertools.cycle(workload.shapes):
        # Half of the time is left for the other parts of measuring.
        if is_over() or calls >= MANY_CALLS or time.monotonic() > ends - seconds / 2:
            break
        workload.caller(shape)()
        calls += 1
    has_all_sizes = _call_sizes(workload, is_over)
    if not is_over():
        check_outputs(workload)
    workload.device.synchronize()
    return Exercise(calls, has_all_sizes)


def _call_sizes(workload: BoundWorkload, is_over: Callable[[], bool]) -> bool:
    """Call every shape with each batch size that the sweep may try; False if there was
    no time for all of them.
    """
    device = workload.device
    for size in sorted(workload.workload.batch_sizes) or _POWERS_OF_TWO:
        if is_over():
            return False
        began = time.monotonic()
        # User code may refuse a size in any way; then so it does in the sweep.
        with suppress(Exception):
            for shape in workload.shapes:
                workload.invoke(
                    device.to_device(workload.host_inputs(shape, batch=size))
                )
            device.synchronize()
        if time.monotonic() - began > QUICK.call_seconds * len(workload.shapes):
            break
    return True
