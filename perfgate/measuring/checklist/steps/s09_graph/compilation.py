"""A compiled twin of the workload, made and forgotten inside one step: later steps find
the process as it was.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from perfgate.document.message import Message
from perfgate.measuring.checklist.experiment import (
    Agreement,
    ExperimentError,
    FailedExperiment,
    TimeUpError,
    agreement,
    experiment,
)
from perfgate.measuring.checklist.mistakes import one_line
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.measuring.devices.batches import tensors
from perfgate.measuring.devices.device import Call
from perfgate.measuring.devices.torch_backends import TORCH_BACKENDS
from perfgate.measuring.timing.calls import Versus, compare, timed_call
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.system.processes import kill_descendants, running_below

# The compiler backend of each device: torchair registers itself as "npu" (torch_npu,
# dynamo/__init__.py). Only takes a call's graphs, so it shows breaks and recompiles in
# a second or so on any device.
GRAPHS_ONLY = "eager"
# Settings of inductor that this torch may know: no pool of compiler processes, which
# would outlive the step; no trial of the C++ compiler's vector extensions, which takes
# 7 s of the 10 of a first compilation in a fresh cache (torch 2.13, two cores) and does
# not depend on the workload; torch's own random generator, so that dropout drops the
# same elements.
_SETTINGS: Mapping[str, Any] = {
    "compile_threads": 1,
    "cpp.vec_isa_ok": True,
    "fallback_random": True,
}


_RING_AGAIN_SECONDS = 0.2


class Compiled(NamedTuple):
    """A call without the compiler and the same call compiled, the time of the first
    compiled call, and their agreement.

    ``first_call`` makes one on the first input of the shape and returns the nanoseconds
    it took.
    """

    plain: Call
    fast: Call
    first_call: Callable[[], int]
    cold_ns: int
    agreement: Agreement
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether the compiled call answers as the other does."""
        return self.agreement.within(self.tolerance)

    @property
    def disagreement(self) -> Message:
        if not self.agreement.comparable:
            return Message("graph.other-structure")
        far = Message(
            "graph.deviation",
            {"difference": self.agreement.relative, "tolerance": self.tolerance},
        )
        return Message(
            "graph.not-finite", {"far": far, "count": self.agreement.not_finite}
        )

    def compare(self, context: StepContext, *, seconds: float) -> Versus:
        """How much faster the compiled call is, both in turns."""
        return compare(
            self.plain, self.fast, context.device, seconds=seconds, seed=context.seed
        )

    def cached_ns(self) -> int:
        """The time of the first call if only the caches on disk are warm."""
        from torch._dynamo import reset
        from torch._inductor import utils

        reset()
        utils.clear_inductor_caches()
        return self.first_call()


def missing_compiler(kind: str) -> Message | None:
    """Why a kind of device cannot compile, None if it can."""
    if TORCH_BACKENDS.get(kind) is None:
        return Message("graph.no-compiler", {"kind": kind})
    if kind == "npu":
        try:
            # torch_npu includes torchair but not its dependency protobuf.
            importlib.import_module("torch_npu.dynamo.torchair")
        except ImportError as error:
            return Message("graph.no-torchair", {"error": one_line(error)})
    if kind == "cuda" and importlib.util.find_spec("triton") is None:
        return Message("graph.no-triton")
    compiler = os.environ.get("CXX", "g++")
    if kind == "cpu" and shutil.which(compiler) is None:
        return Message("graph.no-cpp-compiler", {"compiler": compiler})
    return None


@contextmanager
def compiled(context: StepContext, shape: str, *, seconds: float) -> Iterator[Compiled]:
    """Compile the call of one shape within ``seconds``, with empty caches; forget all
    of it at the end.

    A workload that compiles itself is compared with itself run without. For an
    experiment: raises ExperimentError if compiling is impossible or exceeds its time,
    and any exception of the compiler.
    """
    if reason := missing_compiler(context.device.kind):
        raise ExperimentError(reason)
    compiles_itself = has_compiled()
    with apart():
        if not compiles_itself:
            seconds -= _start_compiler(context, seconds)
        with _fresh_caches(context.artifacts):
            if compiles_itself:
                yield _recompiled(context, shape, seconds)
            else:
                # Compile a twin of a workload without compiled code.
                workload = context.workload
                reference = _output(_copied(context), shape, context.seed)
                twin = compiled_twin(
                    context, TORCH_BACKENDS[context.device.kind].compiler
                )
                yield _compile(
                    context, shape, seconds, twin, reference, workload.caller(shape)
                )


def _start_compiler(context: StepContext, seconds: float) -> float:
    """Compile a trivial function and return the seconds that it took.

    The first compilation of a process imports hundreds of modules and probes the C++
    compiler (3 s of 4.5 on a small model, torch 2.13), and the workload's own time must
    not depend on earlier steps.
    """
    import torch

    started = context.device.clock_ns()
    with _fresh_caches(context.artifacts), compiling(seconds):
        negated = torch.compile(
            torch.neg, backend=TORCH_BACKENDS[context.device.kind].compiler
        )
        negated(torch.ones(2, device=context.device.handle()))
        torch._dynamo.reset()
    return (context.device.clock_ns() - started) / 1e9


@contextmanager
def apart() -> Iterator[None]:
    """Forget at the end what was compiled inside, and do not count it as the
    workload's.
    """
    from torch._dynamo import reset
    from torch._dynamo.utils import counters

    before = {name: counts.copy() for name, counts in counters.items()}
    reset()
    try:
        yield
    finally:
        reset()
        counters.clear()
        counters.update(before)


@contextmanager
def _fresh_caches(folder: Path) -> Iterator[None]:
    """Give inductor empty caches on disk, below ``folder`` and removed at the end, and
    in memory; it starts no processes.
    """
    # Imported before anything is timed.
    from torch._inductor import compile_fx, config, utils  # noqa: F401

    with ExitStack() as stack:
        disk = stack.enter_context(
            tempfile.TemporaryDirectory(dir=folder, prefix=".compiled-")
        )
        stack.enter_context(
            config.patch(
                {
                    name: value
                    for name, value in _SETTINGS.items()
                    if _exists(config, name)
                }
            )
        )
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            stack.enter_context(_variable(name, str(Path(disk, name.lower()))))
        utils.clear_inductor_caches()
        stack.callback(utils.clear_inductor_caches)
        yield


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def compiled_twin(context: StepContext, backend: str) -> BoundWorkload:
    """The workload with a copy of the model and compiled calls; a training step
    compiles the modules only.

    Raises ExperimentError if the model cannot be copied.
    """
    import torch

    twin = _copied(context)
    definition = context.workload.workload
    if definition.train_step is not None:
        # The result of ``build``: one module, or some next to an optimizer and the
        # like.
        members = twin.model
        if isinstance(members, dict):
            members = members.values()
        elif not isinstance(members, (tuple, list)):
            members = [members]
        for member in members:
            if isinstance(member, torch.nn.Module):
                member.compile(backend=backend)
    elif definition.call is not None:
        twin.workload = dataclasses.replace(
            definition, call=torch.compile(definition.call, backend=backend)
        )
    else:
        twin.model = torch.compile(twin.model, backend=backend)
    return twin


def _copied(context: StepContext) -> BoundWorkload:
    """The workload with a copy of its model, on the same inputs.

    Raises ExperimentError if it cannot be copied.
    """
    workload = context.workload
    twin = copy.copy(workload)
    copied = experiment(
        context, lambda: copy.deepcopy(workload.model), failing="graph.copy-fails"
    )
    if isinstance(copied, FailedExperiment):
        raise ExperimentError(copied.reason)
    twin.model = copied
    return twin


def _recompiled(context: StepContext, shape: str, seconds: float) -> Compiled:
    """Recompile a workload that compiles itself; torch's stance runs it without the
    compiler.
    """
    import torch

    workload = context.workload
    if workload.workload.train_step is not None:
        raise ExperimentError(Message("graph.compiles-itself-training"))
    call = workload.caller(shape)

    def plain() -> Any:
        with torch.compiler.set_stance("force_eager"):
            return call()

    with torch.compiler.set_stance("force_eager"):
        reference = _output(workload, shape, context.seed)
    return _compile(context, shape, seconds, workload, reference, plain)


def _compile(
    context: StepContext,
    shape: str,
    seconds: float,
    twin: BoundWorkload,
    reference: Any,
    plain: Call,
) -> Compiled:
    import torch

    outputs: list[Any] = []

    def first_call() -> int:
        return timed_call(
            lambda: outputs.append(_output(twin, shape, context.seed)), context.device
        )

    with compiling(seconds):
        cold_ns = first_call()
    # The limit, or four times the resolution of the output's coarsest type.
    tolerance = context.limit("graph.difference.most")
    for tensor in tensors(reference):
        if tensor.is_floating_point():
            tolerance = max(tolerance, 4 * torch.finfo(tensor.dtype).eps)
    return Compiled(
        plain=plain,
        fast=twin.caller(shape),
        first_call=first_call,
        cold_ns=cold_ns,
        agreement=agreement(reference, outputs[0]),
        tolerance=tolerance,
    )


@contextmanager
def compiling(seconds: float) -> Iterator[None]:
    """Raise ExperimentError if the block takes longer."""
    try:
        with time_limit(seconds):
            yield
    except TimeUpError as up:
        raise ExperimentError(Message("graph.too-slow")) from up


def _output(workload: BoundWorkload, shape: str, seed: int) -> Any:
    """The output of a call on the first input of a shape."""
    import torch

    # Both calls must draw the same random numbers.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return workload.invoke(workload.pool(shape)[0])


def _exists(config: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(config, part):
            return False
        config = getattr(config, part)
    return True


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUpError in the block after ``seconds``, and end the processes that it
    started.

    A compiler cannot be asked to stop, nor the compilers that it starts; g++ may start
    cc1plus while it is being killed.
    """
    # A timer refuses a negative time, and 0 is none at all.
    if seconds <= 0:
        raise TimeUpError
    before = set(running_below(os.getpid()))

    def ring(_signal: int, _frame: FrameType | None) -> None:
        for process in set(running_below(os.getpid())) - before:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        raise TimeUpError

    # Repeated, because an exception raised in a destructor is swallowed.
    handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _RING_AGAIN_SECONDS)
    try:
        yield
    except TimeUpError:
        signal.setitimer(signal.ITIMER_REAL, 0)
        kill_descendants(spare=before)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
