"""A compiled twin of the workload, made and forgotten inside one step: later steps find the process as it was."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Optional

from perfgate.measuring.checklist.agreement import Agreement, agreement
from perfgate.measuring.checklist.limits import limit
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.batches import tensors
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.timing.versus import Versus, compare
from perfgate.measuring.workload.bound import BoundWorkload

# What compiles for a device: torchair registers itself as "npu" (torch_npu, dynamo/__init__.py).
BACKENDS: Mapping[str, str] = {"cpu": "inductor", "cuda": "inductor", "npu": "npu"}
# Only takes a call's graphs, so it shows breaks and recompiles in a second or so on any device.
GRAPHS_ONLY = "eager"
_AGAIN_SECONDS = 0.2

# What inductor is told, as far as this torch knows it: no pool of compiler processes, which would outlive the step; the
# C++ compiler's every vector extension is not tried out first, which takes 7 s of the 10 that the first compilation in a
# fresh cache takes (torch 2.13, two cores) and says nothing of the workload; the generator of random numbers is torch's own,
# so that dropout drops the same.
_SETTINGS: Mapping[str, Any] = {"compile_threads": 1, "cpp.vec_isa_ok": True, "fallback_random": True}


class NotCompiledError(Exception):
    """There is no compiled call; the text says why."""


class TimeUpError(BaseException):
    """Time is up. No Exception, so that nobody who handles those in between takes it for one of theirs."""


@dataclass(frozen=True)
class Compiled:
    """A compiled twin: what its first call took in nanoseconds, and how far that call's output is from the workload's own."""

    twin: BoundWorkload
    cold_ns: int
    agreement: Agreement
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Return whether it answers as the workload itself does."""
        return self.agreement.within(self.tolerance)

    @property
    def disagreement(self) -> str:
        """Return in words how far it answers from the workload itself."""
        if not self.agreement.comparable:
            return "the compiled call's output has another structure, or none that could be compared"
        far = f"{self.agreement.relative:.2g} of the largest value, {self.tolerance:.2g} may be"
        return (
            f"the compiled call answers differently: {far}, {self.agreement.not_finite} values are not finite any more"
        )

    def against(self, workload: BoundWorkload, context: StepContext, shape: str, *, seconds: float) -> Versus:
        """Return how much faster the twin's call is than the workload's, both in turns."""
        return compare(
            workload.caller(shape), self.twin.caller(shape), context.device, seconds=seconds, seed=context.seed
        )


def missing_compiler(kind: str) -> Optional[str]:
    """Return why nothing can be compiled for a kind of device, None where it can be tried."""
    if kind not in BACKENDS:
        return f"no compiler is known for a device of kind {kind}"
    if (
        kind == "npu"
        and importlib.util.find_spec("torchair") is None
        and importlib.util.find_spec("npugraph_ex") is None
    ):
        return "torchair, which compiles for an NPU, is not installed"
    if kind == "cuda" and importlib.util.find_spec("triton") is None:
        return "triton, which compiles for a GPU, is not installed"
    compiler = os.environ.get("CXX", "g++")
    if kind == "cpu" and shutil.which(compiler) is None:
        return f"the C++ compiler {compiler}, which inductor needs on a CPU, is not on PATH"
    return None


@contextmanager
def compiled(context: StepContext, shape: str, *, seconds: float) -> Iterator[Compiled]:
    """Compile the workload for one shape in at most so many seconds, with empty caches; forget all of it at the end.

    Raises NotCompiledError, also where the compiler fails, with the first line of what it says.
    """
    if reason := missing_compiler(context.device.kind):
        raise NotCompiledError(reason)
    with apart(), fresh_caches(context.artifacts):
        yield _compile(context, shape, seconds)


@contextmanager
def apart() -> Iterator[None]:
    """Let nothing that is compiled inside last, nor count as the workload's own."""
    from torch._dynamo import reset
    from torch._dynamo.utils import counters

    before = {name: counted.copy() for name, counted in counters.items()}
    reset()
    try:
        yield
    finally:
        reset()
        counters.clear()
        counters.update(before)


@contextmanager
def fresh_caches(folder: Path) -> Iterator[None]:
    """Give inductor empty caches on disk, below ``folder`` and removed at the end, and in memory; no processes of its own."""
    from torch._inductor import config, utils

    with ExitStack() as stack:
        disk = stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix=".compiled-"))
        stack.enter_context(config.patch({name: value for name, value in _SETTINGS.items() if _knows(config, name)}))
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


def forget_in_memory() -> None:
    """Forget what is compiled but for the caches on disk, as a new process would find it."""
    from torch._dynamo import reset
    from torch._inductor import utils

    reset()
    utils.clear_inductor_caches()


def compiled_twin(workload: BoundWorkload, backend: str) -> BoundWorkload:
    """Return the workload with a model of its own and calls that are compiled; a training step compiles the modules only.

    Raises NotCompiledError where the model cannot be copied.
    """
    import torch

    twin = copied(workload)
    given = workload.workload
    if given.train_step is not None:
        for module in _modules(twin.model):
            module.compile(backend=backend)
    elif given.call is not None:
        twin.workload = dataclasses.replace(given, call=torch.compile(given.call, backend=backend))
    else:
        twin.model = torch.compile(twin.model, backend=backend)
    return twin


def copied(workload: BoundWorkload) -> BoundWorkload:
    """Return the workload with a copy of its model, on the same inputs. Raises NotCompiledError where it cannot be copied."""
    twin = copy.copy(workload)
    try:
        twin.model = copy.deepcopy(workload.model)
    except (TypeError, RuntimeError, AttributeError) as error:
        raise NotCompiledError(
            f"the model cannot be copied, and the original shall stay as it is: {_said(error)}"
        ) from error
    return twin


def _compile(context: StepContext, shape: str, seconds: float) -> Compiled:
    workload, device = context.workload, context.device
    inputs = workload.pool(shape)[0]
    backend = BACKENDS[device.kind]
    reference = _output(copied(workload), inputs, context.seed)
    twin = compiled_twin(workload, backend)
    outputs: list[Any] = []
    try:
        with time_limit(seconds):
            cold_ns = timed_call(lambda: outputs.append(_output(twin, inputs, context.seed)), device)
    except TimeUpError as up:
        raise NotCompiledError(f"{backend} was not done compiling after {seconds:g} s") from up
    except (RuntimeError, ImportError, OSError) as error:
        raise NotCompiledError(f"{backend} cannot compile it: {_said(error)}") from error
    return Compiled(twin, cold_ns, agreement(reference, outputs[0]), _tolerance(reference, context))


def _output(workload: BoundWorkload, inputs: Any, seed: int) -> Any:
    import torch

    # Only what this call draws must be what the other one drew.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return workload.invoke(inputs)


def _tolerance(reference: Any, context: StepContext) -> float:
    """Return how far outputs may differ: as the limit says, or four times the resolution of the output's coarsest type."""
    import torch

    types = {tensor.dtype for tensor in tensors(reference) if tensor.is_floating_point()}
    return max([limit("graph.difference.most", context.limits), *(4 * torch.finfo(dtype).eps for dtype in types)])


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUpError in here after so many seconds, and end the processes that were started in here."""
    before = set(_below(os.getpid()))

    def ring(_signal: int, _frame: Optional[FrameType]) -> None:
        for process in set(_below(os.getpid())) - before:
            _end(process)
        raise TimeUpError

    # Again and again: an exception in a destructor, where the first may fall, goes no further.
    found = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, found)


def _below(process: int) -> Iterator[int]:
    """Yield the processes below one, as Linux lists them (proc(5), ``children``)."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:  # it ended meanwhile
        return
    for child in (int(number) for text in lists for number in text.split()):
        yield child
        yield from _below(child)


def _end(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _modules(built: Any) -> list[Any]:
    """Return the modules in what ``build`` returned: one, or some among an optimizer and the like."""
    import torch

    members = built if isinstance(built, (tuple, list)) else built.values() if isinstance(built, dict) else [built]
    return [member for member in members if isinstance(member, torch.nn.Module)]


def _knows(config: Any, name: str) -> bool:
    holder, _, last = name.rpartition(".")
    return hasattr(getattr(config, holder) if holder else config, last)


def _said(error: Exception) -> str:
    """Return type and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
