"""Watch every operator a call dispatches. Imports torch, so import it only for counting."""

from __future__ import annotations

import concurrent.futures.thread
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch._C import DispatchKey
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from perfgate.measuring.counting.modes import Autograd, counted_settings_of_calls, replaced
from perfgate.measuring.counting.tally import (
    COPIES,
    COPY_BYTES,
    DEFERRED_OPS,
    DOUBLE_OPS,
    FLOPS,
    FRAMEWORK_OPS,
    LOW_PRECISION_OPS,
    NONCONTIGUOUS_COPIES,
    SYNCS,
    AllocatedBlock,
    CallTally,
    Dispatched,
    SourceLines,
)
from perfgate.measuring.devices.batches import tensors
from perfgate.measuring.devices.device import HostWait
from perfgate.measuring.workload.output import reading_into
from perfgate.trace.model.spans import COLLECTIVES

# Which operators copy a whole tensor, by schema name: position of (result, source) among result and arguments is in
# copied. contiguous(), reshape() and to() arrive as clone or _to_copy, because composite operators are taken apart.
_COPY_TO_RESULT = frozenset({"aten::clone", "aten::_to_copy", "aten::copy"})
_COPY_IN_PLACE = frozenset({"aten::copy_", "aten::_foreach_copy_"})
# The second half of a reshape that copies: the clone is counted, this hides from autograd that it is a view of it.
_UNMARKED_VIEWS = frozenset({"aten::_unsafe_view"})
# torch's own marks of operators that must read data before the host can go on: a value for Python, a shape that depends
# on the data (aten/src/ATen/native/tags.yaml).
_WAITING_TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
# Indexing carries such a tag for the sake of masks; with positions it waits for nothing.
_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
_MASKS = frozenset({torch.bool, torch.uint8})
LOW_PRECISION = frozenset(
    {
        *(torch.float16, torch.bfloat16, torch.qint8, torch.quint8, torch.qint32),
        *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
    }
)
# Operators that round their float32 inputs if torch.set_float32_matmul_precision allows it.
_MATRIX_PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "convolution")
)
# Operations between processes: those of torch.distributed, and their functional variants (the only ones in a compiled
# graph), without those that only wait for one or wrap its result.
_COLLECTIVES = ("c10d::", "_c10d_functional::")
_AROUND_COLLECTIVES = frozenset({"_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd"})

# Whether this torch does by itself the part of ``WatchingMode`` that needs the compiler to be loaded.
_TORCH_KEEPS_IT_OUT = hasattr(TorchDispatchMode, "_should_skip_dynamo")
_compiler_kept_out = False


class WatchingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """See every operator that is dispatched while active; a subclass handles it in ``saw``.

    Under inference mode composite operators such as ``aten::linear`` reach a dispatch mode whole, with gradients on
    they arrive as their parts. Here they are always taken apart by their C++ kernel, so that both look the same: the
    operators that have a kernel of their own. Marks of ``record_function`` (``profiler::``) are no operators.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Answer no at class creation: torch would import its compiler to skip this class (torch 2.13: 822 modules)."""
        return False

    def __enter__(self) -> WatchingMode:
        """Become active. If the workload has loaded torch's compiler, it is kept out of this mode."""
        global _compiler_kept_out  # noqa: PLW0603 - once in a process
        if not _compiler_kept_out and "torch._dynamo" in sys.modules and _TORCH_KEEPS_IT_OUT:
            WatchingMode.__torch_dispatch__ = torch._disable_dynamo(  # type: ignore[method-assign, attr-defined]
                WatchingMode.__torch_dispatch__, recursive=True
            )
            _compiler_kept_out = True
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if any(map(_dispatches_itself, types)):
            # The dispatcher then runs the operator's parts, which return here one by one.
            return NotImplemented
        if _is_composite(func) and not (_has_nested_kernel(func) and any(one.is_nested for one in tensors(args))):
            # A mode runs without ADInplaceOrView, which under inference mode creates views of weights; a view created
            # without it reports no gradient, and matmul then takes another path. An operator with a kernel of its own there
            # (chunk, narrow) is made a view by that, and not twice.
            made_outside = not torch.is_inference_mode_enabled() or _makes_its_view(func)
            with self, torch._C._SetExcludeDispatchKeyGuard(DispatchKey.ADInplaceOrView, made_outside):
                return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **keywords)
        result = self.run(func, args, keywords)
        name = func._schema.name
        if not name.startswith("profiler::"):
            self.saw(func, name, args, keywords, result)
        return result

    def run(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return func(*args, **keywords)

    def saw(self, func: Any, name: str, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        """Take note of an operator that ran; its caller is two frames up (``sys._getframe(2)``)."""
        raise NotImplementedError


@dataclass
class _ThreadWork:
    """The work of a thread for a call, and whether it was still running when the call returned."""

    tally: CallTally
    done: threading.Event
    # A waiter continues once this is done, slightly before the thread is.
    future: concurrent.futures.Future[Any] | None
    outlived_call: bool

    @property
    def has_result(self) -> bool:
        return self.done.is_set() if self.future is None else self.future.done()


# Functions that run a thread from start to end, and the one that runs a task of a thread pool.
_THREAD_WORK: tuple[tuple[Any, str], ...] = (
    (threading.Thread, "_bootstrap_inner"),
    (concurrent.futures.thread._WorkItem, "run"),
)
# How long to wait for the threads of a call; one that goes on for longer serves all of them.
_THREAD_SECONDS = 10.0


class _AnyOperator(WatchingMode):  # type: ignore[no-untyped-call]
    """Whether any operator was dispatched."""

    ran: bool = False

    def saw(self, *_: Any) -> None:
        self.ran = True


def runs_operators(call: Callable[[], Any]) -> bool:
    """Whether a call dispatches an operator in this thread."""
    mode = _AnyOperator()  # type: ignore[no-untyped-call]
    with mode:
        call()
    return mode.ran


class CountingMode(WatchingMode):
    """Count the operators that one call dispatches into ``tally`` while active, by schema name (``aten::addmm``).

    ``waits`` are functions that make the host wait without being operators; each call of one is a synchronisation. On a
    device with memory of its own the host's is not counted, so tensors there are no blocks.
    """

    def __init__(
        self, tally: CallTally, *, root: Path, waits: Sequence[HostWait] = (), counts_host_memory: bool = True
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tally = tally
        self._root = root
        self._in_threads: list[_ThreadWork] = []
        self._counts_host_memory = counts_host_memory
        self._lines = SourceLines(root)
        self._waits = waits
        self._waiting = False
        self._returned = False
        self._autocast_lines: list[str | None] = []
        self._autograd = Autograd()
        self._seen_storages: set[int] = set()
        # Looked up once: a call that changes it changes it for the next call.
        self._rounds_products = torch.get_float32_matmul_precision() != "highest"

    def count(self, call: Callable[[], Any]) -> None:
        """Make one call and count it, including its Python threads; its output is released on return."""
        with ExitStack() as stack:
            for wait in self._waits:
                stack.enter_context(replaced(wait.owner, wait.name, self._counting(wait)))
            for owner, name in _THREAD_WORK:
                stack.enter_context(replaced(owner, name, self._counting_thread(getattr(owner, name))))
            stack.enter_context(self._autograd.following())
            stack.enter_context(counted_settings_of_calls(self._tally, self._lines))
            stack.enter_context(_watched_autocast(self._lines, self._autocast_lines))
            with self:
                call()
        for work in self._in_threads:
            work.done.wait(_THREAD_SECONDS)
            self._tally.include(work.tally, deferred=work.outlived_call)

    def call_returned(self) -> None:
        """From now on the output is read."""
        self._returned = True
        for work in self._in_threads:
            work.outlived_call = not work.has_result

    def _counting_thread(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Count the work of a thread of the call: a dispatch mode is active only in the thread that entered it."""

        def counting(item: Any) -> Any:
            work = _ThreadWork(CallTally(), threading.Event(), getattr(item, "future", None), self._returned)
            self._in_threads.append(work)
            try:
                with CountingMode(work.tally, root=self._root, counts_host_memory=self._counts_host_memory):
                    return run(item)
            finally:
                work.done.set()

        return counting

    def saw(self, func: Any, name: str, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        if reading_into and (reading_into[-1] is None or any(argument is reading_into[-1] for argument in args)):
            return  # our own copy of a lazy tensor's result
        view = is_view(func)
        line = self._lines.of(sys._getframe(2))
        self._tally.see(name, line, view=view)
        recorded = self._autograd.records(name, (args, keywords), result)
        flops = flops_of(func, args, keywords, result)
        if self._tally.order is not None:
            self._tally.order.append(describe(func, args, keywords, result, line=line, flops=flops, view=view))
        add = self._tally.add
        add(FLOPS, name, line, flops or 0)
        if not view:
            add(FRAMEWORK_OPS, name, line)
            add(DEFERRED_OPS, name, line, self._returned)
            self._tally.record(name, line, recorded=recorded, records=self._autograd.is_enabled)
            add(COLLECTIVES, name, line, name.startswith(_COLLECTIVES) and name not in _AROUND_COLLECTIVES)
            # A region of autocast is the cause of everything that runs in it.
            region = self._autocast_lines[-1] if self._autocast_lines else None
            add(LOW_PRECISION_OPS, name, region or line, self._is_low_precision(name, result))
            add(DOUBLE_OPS, name, line, any(tensor.dtype == torch.float64 for tensor in tensors(result)))
            self._remember(name, line, result, older=(args, keywords))
        waits = _reads_data(func, name, args, keywords)
        for target, source in copied(name, args, result):
            add(COPIES, name, line)
            add(COPY_BYTES, name, line, target.numel() * target.element_size())
            add(NONCONTIGUOUS_COPIES, name, line, layout_differs(target, source))
            # The third argument of operators that copy in place.
            in_place = name in _COPY_IN_PLACE or name == "aten::copy"
            non_blocking = bool(keywords.get("non_blocking", args[2] if in_place and len(args) > 2 else False))
            waits = waits or _waits_for_copy(target, source, non_blocking=non_blocking)
        add(SYNCS, name, line, waits and not self._waiting)

    def _is_low_precision(self, name: str, result: Any) -> bool:
        dtypes = {tensor.dtype for tensor in _as_list(result) if isinstance(tensor, torch.Tensor)}
        if not dtypes.isdisjoint(LOW_PRECISION) or name.startswith("quantized::"):
            return True
        return self._rounds_products and name in _MATRIX_PRODUCTS and torch.float32 in dtypes

    def _remember(self, name: str, line: str | None, result: Any, *, older: Any) -> None:
        """Note the memory of a result, unless it is that of ``older`` tensors which the operator only changed."""
        made = [tensor for tensor in _as_list(result) if isinstance(tensor, torch.Tensor)]
        counted = [tensor for tensor in made if self._counts_host_memory or tensor.device.type != "cpu"]
        storages = [(tensor, weak_storage(tensor)) for tensor in counted]
        new = [(tensor, at) for tensor, at in storages if at is not None and at.cdata not in self._seen_storages]
        if not new:
            return
        older_storages = {at.cdata for tensor in tensors(older) if (at := weak_storage(tensor)) is not None}
        for tensor, storage in new:
            if storage.cdata in older_storages or storage.cdata in self._seen_storages:
                continue
            self._seen_storages.add(storage.cdata)
            form = "" if self._tally.order is None else form_of(tensor)
            block = AllocatedBlock(storage, name, line, tensor.untyped_storage().nbytes(), form)
            self._tally.blocks.append(block)
            if self._tally.order is not None:
                self._tally.live.add(block)

    def _counting(self, wait: HostWait) -> Callable[..., Any]:
        original = getattr(wait.owner, wait.name)

        def counting(*args: Any, **keywords: Any) -> Any:
            line = self._lines.of(sys._getframe(1))
            self._tally.see(wait.label, line, calls=0, view=True)
            self._tally.add(SYNCS, wait.label, line, not self._waiting)
            # Nested waits belong to the same wait.
            before, self._waiting = self._waiting, True
            try:
                return original(*args, **keywords)
            finally:
                self._waiting = before

        return counting


def weak_storage(tensor: Any) -> Any | None:
    """A weak reference to a tensor's memory, None if it has no accessible memory."""
    if not isinstance(tensor, torch.Tensor):
        return None
    try:
        return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    except (NotImplementedError, RuntimeError):  # sparse tensors and wrappers have no storage of their own
        return None


def _reads_data(func: Any, name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether an operator must read data before the host can go on."""
    if name in _INDEXING:
        # Putting one value at a mask is a masked_fill, which needs no positions (TensorAdvancedIndexing.cpp).
        fills = len(args) > 2 and isinstance(args[2], torch.Tensor) and args[2].numel() == 1
        return not fills and any(index is not None and index.dtype in _MASKS for index in args[1])
    if name == "aten::repeat_interleave" and keywords.get("output_size") is not None:
        return False
    return _waits_for_data(func)


def _waits_for_copy(target: torch.Tensor, source: torch.Tensor, *, non_blocking: bool) -> bool:
    """Whether the host waits for a copy between itself and a device.

    A copy to the device does not wait if it is non-blocking and its source page-locked: from pageable memory such a copy
    "might be synchronous with respect to host" (CUDA driver API, "API synchronization behavior", Memcpy, asynchronous).
    """
    if target.device.type == source.device.type or "meta" in (target.device.type, source.device.type):
        return False
    return target.device.type == "cpu" or not (non_blocking and source.is_pinned())


@lru_cache(maxsize=4096)
def _waits_for_data(func: Any) -> bool:
    return not _WAITING_TAGS.isdisjoint(func.tags)


@lru_cache(maxsize=4096)
def is_view(func: Any) -> bool:
    """Whether an operator's result shares its input's memory, by the alias marks of its schema (``Tensor(a)``)."""
    if func._schema.name in _UNMARKED_VIEWS:
        return True
    marks = [argument.alias_info for argument in func._schema.arguments if argument.alias_info is not None]
    return bool(marks) and not any(mark.is_write for mark in marks)


@contextmanager
def _watched_autocast(lines: SourceLines, entered: list[str | None]) -> Iterator[None]:
    """While active, keep in ``entered`` the lines of the project that entered the regions of ``torch.autocast``.

    The last is that of the innermost region; None stands for a disabled one.
    """
    region_kind: Any = torch.autocast
    enter, leave = region_kind.__enter__, region_kind.__exit__

    def entering(region: Any) -> Any:
        entered.append(lines.of(sys._getframe(1)) if region._enabled else None)
        return enter(region)

    def leaving(region: Any, *raised: Any) -> Any:
        del entered[-1:]  # a region may have been entered before
        return leave(region, *raised)

    with replaced(torch.autocast, "__enter__", entering), replaced(torch.autocast, "__exit__", leaving):
        yield


@lru_cache(maxsize=256)
def _dispatches_itself(kind: type) -> bool:
    """Whether a class of tensors runs operators in a way of its own (``__torch_dispatch__``)."""
    return getattr(kind, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__


@lru_cache(maxsize=4096)
def _is_composite(func: Any) -> bool:
    """Whether an operator is made of others on every device that is in use.

    A backend outside torch may have its own kernel for an operator that is composite elsewhere: torch_npu has one for
    ``scaled_dot_product_attention`` (FlashAttentionScore), and taking that apart would count operators that never run.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(func.name(), "PrivateUse1")


@lru_cache(maxsize=4096)
def _has_nested_kernel(func: Any) -> bool:
    """Whether nested tensors, which have no sizes, have a kernel of their own for a composite operator."""
    names = ("NestedTensorCPU", "NestedTensorCUDA", "CompositeImplicitAutogradNestedTensor")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), name) for name in names)


@lru_cache(maxsize=4096)
def _makes_its_view(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView"))


def copied(name: str, args: tuple[Any, ...], result: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (result, source) of every tensor an operator copies."""
    if name in _COPY_TO_RESULT and isinstance(result, torch.Tensor):
        yield result, args[1] if name == "aten::copy" else args[0]
    elif name in _COPY_IN_PLACE:
        yield from zip(_as_list(args[0]), _as_list(args[1]))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def layout_differs(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether source and result lie differently in memory; strides of dimensions of size 1 mean nothing."""
    if target.layout != torch.strided or source.layout != torch.strided or target.is_nested or source.is_nested:
        return target.layout != source.layout
    if target.shape != source.shape:
        return True
    return any(
        size > 1 and ours != theirs for size, ours, theirs in zip(target.shape, target.stride(), source.stride())
    )


MAX_INPUTS = 200  # characters
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def describe(
    func: Any,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
    result: Any,
    *,
    line: str | None,
    flops: int | None,
    view: bool,
) -> Dispatched:
    read = list(tensors((args, keywords)))
    touched = [] if view else [tensor for tensor in (*read, *tensors(result)) if not tensor.is_nested]
    return Dispatched(
        op=func._schema.name,
        line=line,
        inputs=", ".join(form_of(tensor) for tensor in read)[:MAX_INPUTS],
        flops=flops,
        moved_bytes=sum(tensor.numel() * tensor.element_size() for tensor in touched),
        view=view,
    )


def form_of(tensor: torch.Tensor) -> str:
    """Dtype, shape and any unusual layout of a tensor: ``bfloat16[8,3,64,64] channels_last``."""
    dtype = str(tensor.dtype).partition(".")[2]
    if tensor.is_nested and tensor.layout == torch.strided:  # it has a shape a member, and none itself
        return f"{dtype}[{tensor.size(0)} nested]"
    text = f"{dtype}[{','.join(str(size) for size in tensor.shape)}]"
    if tensor.layout != torch.strided:
        return f"{text} {str(tensor.layout).partition('.')[2]}"
    if tensor.is_nested or tensor.is_contiguous():
        return text
    channels_last = _CHANNELS_LAST.get(tensor.dim())
    if channels_last is not None and tensor.is_contiguous(memory_format=channels_last):
        return f"{text} channels_last"
    return f"{text} strided"


def flops_of(func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> int | None:
    """The FLOPs of an operator by torch's own formulas, None if there is none for it."""
    from torch.utils.flop_counter import flop_registry

    formula: Callable[..., int] | None = flop_registry.get(getattr(func, "overloadpacket", None))
    return None if formula is None else int(formula(*args, **keywords, out_val=result))
