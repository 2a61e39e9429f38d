"""The modes in which a call runs: whether autograd records it, which of its modules
train, and torch's settings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from perfgate.catalogue.names import (
    BLOCKING_TRANSFERS,
    LOADERS_IN_PROCESS,
    TRAINING_MODULES,
    UNBLOCKED_TRANSFERS,
)
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.measuring.counting.tally import CallTally, SourceLines
from perfgate.measuring.devices.batches import tensors
from perfgate.system.folders import PACKAGE

# They give up what autograd knows of a tensor.
_DETACHING = frozenset({"aten::detach", "aten::detach_"})


class Autograd:
    """Which operators of a call autograd records, or would without the inference mode
    that perfgate puts around the call.

    That mode would hide a lost ``torch.no_grad``. So inside it the regions of the
    project are followed, and the tensors that come from parameters.
    """

    def __init__(self) -> None:
        # Whether each region of the project that is active records, the innermost last.
        self._regions = [torch.is_grad_enabled() or torch.is_inference_mode_enabled()]
        self._recorded = WeakTensorKeyDictionary()

    @property
    def is_enabled(self) -> bool:
        """Whether the code that runs now is in no region without gradients, perfgate's
        inference mode apart.
        """
        return (
            self._regions[-1]
            if torch.is_inference_mode_enabled()
            else torch.is_grad_enabled()
        )

    def records(self, name: str, inputs: Iterable[Any], result: Any) -> bool:
        """Whether autograd records an operator that read these tensors; its results
        then require a gradient.
        """
        if (
            not self.is_enabled
            or name in _DETACHING
            or not any(map(self._requires_grad, inputs))
        ):
            return False
        is_recorded = False
        for tensor in tensors(result):
            if tensor.is_floating_point() or tensor.is_complex():
                self._recorded[tensor] = is_recorded = True
        return is_recorded

    def _requires_grad(self, tensor: Any) -> bool:
        return bool(tensor.requires_grad) or tensor in self._recorded

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow the regions that the project enters meanwhile."""
        with ExitStack() as stack:
            for kind, records in _REGIONS.items():
                stack.enter_context(self._region(kind, records))
            yield

    @contextmanager
    def _region(self, kind: Any, records: Callable[[Any], bool]) -> Iterator[None]:
        enter, leave = kind.__enter__, kind.__exit__

        def entering(region: Any) -> Any:
            self._regions.append(
                self._regions[-1] if _is_called_by_perfgate() else records(region)
            )
            return enter(region)

        def leaving(region: Any, *raised: Any) -> Any:
            if len(self._regions) > 1:  # a region may have been entered before
                self._regions.pop()
            return leave(region, *raised)

        with replaced(kind, "__enter__", entering), replaced(kind, "__exit__", leaving):
            yield


# Whether autograd records in a region that was entered.
_REGIONS: Mapping[Any, Callable[[Any], bool]] = {
    torch.no_grad: lambda _: False,
    torch.enable_grad: lambda _: True,
    torch.inference_mode: lambda region: not region.mode,
    torch.set_grad_enabled: lambda region: region.mode,
}


def _is_called_by_perfgate() -> bool:
    """Whether the code two frames up is perfgate's."""
    return PACKAGE in Path(sys._getframe(2).f_code.co_filename).parents


@contextmanager
def counted_settings_of_calls(tally: CallTally, lines: SourceLines) -> Iterator[None]:
    """Count what runs in another mode than it could: modules in training mode, loaders
    without workers, blocking transfers.

    torch's compiler guards the code of modules and tensors, so if it compiled any, none
    is replaced and none counted.
    """
    if has_compiled():
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(_counted_training(tally, lines))
        stack.enter_context(_counted_loaders(tally, lines))
        stack.enter_context(_counted_transfers(tally, lines))
        yield


def _counted_training(
    tally: CallTally, lines: SourceLines
) -> AbstractContextManager[None]:
    """Count the modules that run in training mode meanwhile, by their class and the
    line that calls them.
    """
    call = torch.nn.Module.__call__

    def calling(module: Any, *args: Any, **keywords: Any) -> Any:
        if module.training:
            tally.add(
                TRAINING_MODULES, type(module).__name__, lines.of(sys._getframe(1))
            )
        return call(module, *args, **keywords)

    return replaced(torch.nn.Module, "__call__", calling)


def _counted_loaders(
    tally: CallTally, lines: SourceLines
) -> AbstractContextManager[None]:
    """Count the passes through loaders that have no worker processes."""
    data: Any = sys.modules.get("torch.utils.data")
    if data is None:
        return nullcontext()
    iterate = data.DataLoader.__iter__

    def iterating(loader: Any) -> Any:
        if loader.num_workers == 0:
            tally.add(
                LOADERS_IN_PROCESS, type(loader).__name__, lines.of(sys._getframe(1))
            )
        return iterate(loader)

    return replaced(data.DataLoader, "__iter__", iterating)


def _counted_transfers(
    tally: CallTally, lines: SourceLines
) -> AbstractContextManager[None]:
    """Count the requests to move a tensor to a device, by whether they let the host go
    on (``non_blocking``).
    """
    move = torch.Tensor.to

    def moving(tensor: Any, *args: Any, **keywords: Any) -> Any:
        if not isinstance(next(iter((*args, *keywords.values())), None), torch.Tensor):
            device, _, non_blocking, _ = torch._C._nn._parse_to(*args, **keywords)
            if device is not None:
                metric = UNBLOCKED_TRANSFERS if non_blocking else BLOCKING_TRANSFERS
                tally.add(metric, "Tensor.to", lines.of(sys._getframe(1)))
        return move(tensor, *args, **keywords)

    return replaced(torch.Tensor, "to", moving)


@contextmanager
def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    own = vars(owner).get(name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


_FLAGS: Mapping[str, Callable[[], object]] = {
    "torch.backends.cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.backends.cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "torch.backends.cuda.matmul.allow_tf32": lambda: (
        torch.backends.cuda.matmul.allow_tf32
    ),
    "torch.backends.mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
    "torch.backends.cuda.enable_flash_sdp": torch.backends.cuda.flash_sdp_enabled,
    "torch.backends.cuda.enable_mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled,
    "torch.backends.cuda.enable_math_sdp": torch.backends.cuda.math_sdp_enabled,
    "torch.set_float32_matmul_precision": torch.get_float32_matmul_precision,
    "torch.use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "torch.set_default_dtype": torch.get_default_dtype,
    "torch.set_grad_enabled": torch.is_grad_enabled,
    "torch.autograd.set_detect_anomaly": torch.is_anomaly_enabled,
}
# Modules of settings of torch's compiler, which write those that are not the default as
# statements.
_COMPILER = ("torch._inductor.config", "torch._dynamo.config")


def process_settings() -> dict[str, str]:
    """Every setting that can be read; of the compiler those that differ from its
    defaults, if it is loaded.
    """
    settings = {}
    for name, read in _FLAGS.items():
        try:
            settings[name] = str(read())
        except (
            AttributeError,
            RuntimeError,
        ):  # another version of torch, or the old and the new switch of TF32 disagree
            continue
    for module in _COMPILER:
        if module in sys.modules:
            settings.update(_statements(sys.modules[module]))
    return settings


def _statements(config: Any) -> Iterator[tuple[str, str]]:
    for statement in config.codegen_config().splitlines():
        name, is_assignment, value = statement.partition(" = ")
        if is_assignment:
            yield name, value
