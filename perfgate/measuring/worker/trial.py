"""One call of every shape and its check, before anything is measured: the point of failure of a misconfigured workload.

And which functions of the project run from loading to checking, so that a comment can name those a change touches in vain.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

from perfgate.document.message import Message, WorkloadError, quote
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.devices.device import Device
from perfgate.measuring.worker.correctness import nothing_computed
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload, answered_no, line_of
from perfgate.measuring.workload.output import UnreadOutputError

# How long calls on more inputs may take, for functions that only some inputs reach.
_SEEKING_SECONDS = 1.0


class Seeker:
    """Which of some functions of the project ran, in the threads of Python, since it began."""

    def __init__(self, functions: Iterable[str], root: Path) -> None:
        self._missing = set(functions)
        self._codes: set[CodeType] = set()
        self._lines = SourceLines(root)
        self._faults_of_children = _faults_of_children()
        if self._missing:
            threading.setprofile(self._enter)
            sys.setprofile(self._enter)

    def missing(self) -> list[str]:
        """Those that did not run so far."""
        codes, self._codes = self._codes, set()
        self._missing -= {str(self._lines.at(code.co_filename, code.co_firstlineno)) for code in codes}
        return sorted(self._missing)

    def saw_children(self) -> bool:
        """Whether other processes were started since, which may have run functions."""
        return bool(multiprocessing.active_children()) or _faults_of_children() != self._faults_of_children

    def _enter(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            self._codes.add(frame.f_code)


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


def unseen_functions(workload: BoundWorkload, device: Device, seeker: Seeker) -> list[str]:
    """The functions that do not run on other inputs either; none if functions may run unseen."""
    ends = time.monotonic() + _SEEKING_SECONDS
    for index in range(1, POOL_SIZE):
        for shape in workload.shapes:
            if not seeker.missing() or time.monotonic() > ends:
                break
            workload.invoke(device.to_device(workload.host_inputs(shape, index=index)))
    device.synchronize()
    return [] if seeker.saw_children() or _may_run_unseen(workload) else seeker.missing()


def _faults_of_children() -> int:
    """The page faults of all child processes that have ended: every process has some."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _may_run_unseen(workload: BoundWorkload) -> bool:
    """Whether a compiler runs functions in its own way, or a step of the checklist alone does."""
    torch = sys.modules.get("torch")
    model = workload.model
    scripted = (
        torch is not None
        and isinstance(model, torch.nn.Module)
        and any(isinstance(module, torch.jit.ScriptModule) for module in model.modules())
    )
    return scripted or has_compiled() or workload.workload.preprocess_on_device is not None
