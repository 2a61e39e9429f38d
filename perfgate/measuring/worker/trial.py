"""One call of every shape and its check, before anything is measured: the point of failure of a misconfigured workload.

And many calls that are not timed, to see which changed lines run.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
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
from perfgate.measuring.workload.bound import BoundWorkload, answered_no, line_of
from perfgate.measuring.workload.output import UnreadOutputError
from perfgate.system.processes import children

_POWERS_OF_TWO = [1 << power for power in range(LARGEST_OF_ALL.bit_length())]

# Of a device's memory: what a process takes beside its tensors, and what all may take together.
_CONTEXT_SHARE, _USABLE_SHARE = 0.01, 0.97

TrialPart = Literal["call", "check"]


def try_calls(workload: BoundWorkload, device: Device, root: Path) -> tuple[TrialPart, str, BaseException] | None:
    """Call every shape once and have the output checked; the part, the shape and the error of the first failure."""
    for shape in workload.shapes:
        part: TrialPart = "call"
        try:
            inputs = workload.host_inputs(shape)
            output = device.to_host(workload.invoke(device.to_device(inputs)))
            device.synchronize()
            if unrun := nothing_computed(workload, device, output, inputs):
                raise UnreadOutputError(unrun)
            part = "check"
            if refused := answered_no(workload, output, inputs):
                place = line_of(workload.workload.check, root) if workload.workload.check else None
                at_place = Message("mistake.at", {"error": refused, "place": place}) if place else quote(refused)
                raise WorkloadError(at_place)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit included
            return part, shape, error
    return None


def copies_that_fit(device: Device) -> int | None:
    """How many processes that need as much memory as this one fit on the device together; None if that is unknown."""
    memory, used = device.free_memory(), device.memory_statistics()
    if memory is None or used is None:
        return None
    of_one = used.peak_reserved + _CONTEXT_SHARE * memory.total
    return int(_USABLE_SHARE * memory.total / of_one)


class Exercise(NamedTuple):
    """How much of a workload a trial has run: its calls, and whether each of its batch sizes was among them."""

    calls: int
    has_all_sizes: bool


def exercise(
    workload: BoundWorkload, device: Device, is_done: Callable[[], bool], *, seconds: float, most: int
) -> Exercise:
    """Call the workload as measuring does: its check, its inputs, its batch sizes, and many calls in a row.

    Ends early once ``is_done``, after ``seconds``, or after ``most`` calls.
    """
    ends = time.monotonic() + seconds
    calls = 0

    def is_over() -> bool:
        return is_done() or time.monotonic() > ends

    for shape in itertools.cycle(workload.shapes):
        # Half of the time is left for what measuring does beside calls.
        if is_over() or calls >= most or time.monotonic() > ends - seconds / 2:
            break
        workload.caller(shape)()
        calls += 1
    has_all_sizes = _call_sizes(workload, device, is_over)
    if not is_over():
        check_outputs(workload, device)
    device.synchronize()
    return Exercise(calls, has_all_sizes)


def _call_sizes(workload: BoundWorkload, device: Device, is_over: Callable[[], bool]) -> bool:
    """Call every shape with each batch size that the sweep may try; False if there was no time for all of them."""
    for size in sorted(workload.workload.batch_sizes) or _POWERS_OF_TWO:
        if is_over():
            return False
        began = time.monotonic()
        # User code may refuse a size in any way; then so it does in the sweep.
        with suppress(Exception):
            for shape in workload.shapes:
                workload.invoke(device.to_device(workload.host_inputs(shape, batch=size)))
            device.synchronize()
        if time.monotonic() - began > QUICK.call_seconds * len(workload.shapes):
            break
    return True


def runs_unseen(workload: BoundWorkload, device: Device, recorder: LineRecorder) -> list[str]:
    """Why code of the project may run without its lines being seen, by the codes of ``catalogue/messages/coverage.toml``."""
    reasons = set(recorder.doubts)
    torch = sys.modules.get("torch")
    model = workload.model
    if has_compiled() or (torch is not None and _is_scripted(torch, model)):
        reasons.add("coverage.compiled")
    described = workload.workload
    if described.preprocess_on_device is not None or described.reference is not None or described.ranks:
        reasons.add("coverage.checklist")
    trains = described.train_step is not None or described.grad
    if recorder.traces_threads_of_python_alone and trains and device.kind != "cpu":
        reasons.add("coverage.thread")
    return sorted(reasons)


def _is_scripted(torch: Any, model: object) -> bool:
    if not isinstance(model, torch.nn.Module):
        return isinstance(model, torch.jit.ScriptFunction)
    return any(isinstance(module, torch.jit.ScriptModule) for module in model.modules())


def children_ran(faults_before: int) -> bool:
    """Whether other processes ran since, some of which may still do."""
    return bool(multiprocessing.active_children() or children()) or faults_of_children() != faults_before


def faults_of_children() -> int:
    """The page faults of all child processes that have ended: every process has some."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
