"""Watch and count every operator that a call dispatches.

Imports torch, so import it only for counting.
"""

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
from torch.utils._python_dispatch import TorchDispatchMode

from perfgate.catalogue.names import (
    COPIES,
    DEFERRED_OPS,
    FLOPS,
    FRAMEWORK_OPS,
    LOW_PRECISION_OPS,
    SYNCS,
)
from perfgate.measuring.counting.modes import (
    Autograd,
    counted_settings_of_calls,
    replaced,
)
from perfgate.measuring.counting.operator_calls import (
    LOW_PRECISION,
    OperatorCall,
    form_of,
    layout_differs,
    waits_for_copy,
    weak_storage,
)
from perfgate.measuring.counting.tally import (
    COPY_BYTES,
    DOUBLE_OPS,
    NONCONTIGUOUS_COPIES,
    AllocatedBlock,
    CallTally,
    Dispatched,
    SourceLines,
)
from perfgate.measuring.devices.batches import bytes_of, tensors
from perfgate.measuring.devices.device import Call, HostWait
from perfgate.measuring.workload.output import reading_into
from perfgate.trace.model.spans import COLLECTIVES

# Operators that round their float32 inputs if torch.set_float32_matmul_precision allows
# it.
_MATRIX_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "addbmm",
        "mv",
        "addmv",
        "convolution",
    )
)
# Operations between processes: of torch.distributed, and their functional variants (all
# that remain in a compiled graph), without those that only wait for one or wrap its
# result.
_COLLECTIVES = ("c10d::", "_c10d_functional::")
_AROUND_COLLECTIVES = frozenset(
    {"_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd"}
)

# Whether this torch does by itself the part of ``WatchingMode`` that needs the compiler
# to be loaded.
_TORCH_KEEPS_IT_OUT = hasattr(TorchDispatchMode, "_should_skip_dynamo")
_compiler_kept_out = False


class WatchingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """See every operator that is dispatched while active; a subclass handles it in
    ``saw``.

    Under inference mode composite operators such as ``aten::linear`` reach a dispatch
    mode whole, with gradients on they arrive as their parts. Here they are always taken
    apart by their C++ kernel, so that both look the same: the operators that have their
    own kernel. Marks of ``record_function`` (``profiler::``) do not count as operators.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Answer no at class creation: torch would import its compiler to skip this
        class (torch 2.13: 822 modules).
        """
        return False

    def __enter__(self) -> WatchingMode:
        """Become active. If the workload has loaded torch's compiler, it is kept out of
        this mode.
        """
        global _compiler_kept_out  # noqa: PLW0603 - once in a process
        if (
            not _compiler_kept_out
            and "torch._dynamo" in sys.modules
            and _TORCH_KEEPS_IT_OUT
        ):
            WatchingMode.__torch_dispatch__ = torch._disable_dynamo(  # type: ignore[method-assign, attr-defined]
                WatchingMode.__torch_dispatch__, recursive=True
            )
            _compiler_kept_out = True
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        keywords = kwargs or {}
        if any(map(_dispatches_itself, types)):
            # The dispatcher then runs the operator's parts, which return here one by
            # one.
            return NotImplemented
        if _is_composite(func) and not (
            _has_nested_kernel(func)
            and any(tensor.is_nested for tensor in tensors(args))
        ):
            # A mode runs without ADInplaceOrView, which under inference mode creates
            # views of weights; a view created without it reports no gradient, and
            # matmul then takes another path. An operator that has a kernel there
            # (chunk, narrow) is made a view by that, and not twice.
            made_outside = not torch.is_inference_mode_enabled() or _makes_its_view(
                func
            )
            with (
                self,
                torch._C._SetExcludeDispatchKeyGuard(
                    DispatchKey.ADInplaceOrView, made_outside
                ),
            ):
                return func._op_dk(
                    DispatchKey.CompositeImplicitAutograd, *args, **keywords
                )
        result = self.run(func, args, keywords)
        call = OperatorCall(func, args, keywords, result)
        if not call.name.startswith("profiler::"):
            self.saw(call)
        return result

    def run(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return func(*args, **keywords)

    def saw(self, call: OperatorCall) -> None:
        """Take note of an operator that ran; its caller is two frames up
        (``sys._getframe(2)``).
        """
        raise NotImplementedError


@dataclass
class _ThreadWork:
    """The work of a thread for a call, and whether it was still running when the call
    returned.
    """

    tally: CallTally
    done: threading.Event
    # A waiter continues once this is done, slightly before the thread is.
    future: concurrent.futures.Future[Any] | None
    outlived_call: bool

    @property
    def has_result(self) -> bool:
        return self.done.is_set() if self.future is None else self.future.done()


# Functions that run a thread from start to end, and a task of a thread pool.
_THREAD_WORK: tuple[tuple[Any, str], ...] = (
    (threading.Thread, "_bootstrap_inner"),
    (concurrent.futures.thread._WorkItem, "run"),
)
# How long to wait for the threads of a call; one that goes on for longer serves all of
# them.
_THREAD_SECONDS = 10.0


class _AnyOperator(WatchingMode):  # type: ignore[no-untyped-call]
    """Whether any operator was dispatched."""

    ran: bool = False

    def saw(self, _: OperatorCall) -> None:
        self.ran = True


def runs_operators(call: Call) -> bool:
    """Whether a call dispatches an operator in this thread."""
    mode = _AnyOperator()  # type: ignore[no-untyped-call]
    with mode:
        call()
    return mode.ran


class CountingMode(WatchingMode):
    """Count the operators that one call dispatches into ``tally`` while active, by
    schema name (``aten::addmm``).

    ``waits`` are functions that make the host wait without being operators; each call
    of one is a synchronisation. On a device with its own memory the host's is not
    counted, so tensors there are no blocks.
    """

    def __init__(
        self,
        tally: CallTally,
        *,
        root: Path,
        waits: Sequence[HostWait] = (),
        counts_host_memory: bool,
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

    def count(self, call: Call) -> None:
        """Make one call and count it, including its Python threads; its output is
        released on return.
        """
        with ExitStack() as stack:
            for wait in self._waits:
                stack.enter_context(
                    replaced(wait.owner, wait.name, self._counting(wait))
                )
            for owner, name in _THREAD_WORK:
                stack.enter_context(
                    replaced(owner, name, self._counting_thread(getattr(owner, name)))
                )
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
        """Count the work of a thread of the call: a dispatch mode is active only in the
        thread that entered it.
        """

        def counting(item: Any) -> Any:
            work = _ThreadWork(
                CallTally(),
                threading.Event(),
                getattr(item, "future", None),
                self._returned,
            )
            self._in_threads.append(work)
            try:
                with CountingMode(
                    work.tally,
                    root=self._root,
                    counts_host_memory=self._counts_host_memory,
                ):
                    return run(item)
            finally:
                work.done.set()

        return counting

    def saw(self, call: OperatorCall) -> None:
        if reading_into and (
            reading_into[-1] is None
            or any(argument is reading_into[-1] for argument in call.args)
        ):
            return  # our own copy of a lazy tensor's result
        name, view = call.name, call.is_view
        line = self._lines.of(sys._getframe(2))
        self._tally.see(name, line, view=view)
        recorded = self._autograd.records(name, call.inputs, call.result)
        flops = call.flops()
        if self._tally.order is not None:
            moved_bytes = call.moved_bytes()
            self._tally.order.append(
                Dispatched(name, line, call.forms(), flops, moved_bytes, view)
            )
        add = self._tally.add
        add(FLOPS, name, line, flops or 0)
        if not view:
            add(FRAMEWORK_OPS, name, line)
            add(DEFERRED_OPS, name, line, self._returned)
            self._tally.record(
                name, line, recorded=recorded, records=self._autograd.is_enabled
            )
            add(
                COLLECTIVES,
                name,
                line,
                name.startswith(_COLLECTIVES) and name not in _AROUND_COLLECTIVES,
            )
            # A region of autocast is the cause of everything that runs in it.
            region = self._autocast_lines[-1] if self._autocast_lines else None
            add(LOW_PRECISION_OPS, name, region or line, self._is_low_precision(call))
            add(
                DOUBLE_OPS,
                name,
                line,
                any(tensor.dtype == torch.float64 for tensor in tensors(call.result)),
            )
            self._remember(call, line)
        waits = call.reads_data()
        for target, source in call.copies():
            add(COPIES, name, line)
            add(COPY_BYTES, name, line, bytes_of(target))
            add(NONCONTIGUOUS_COPIES, name, line, layout_differs(target, source))
            waits = waits or waits_for_copy(
                target, source, non_blocking=call.non_blocking
            )
        add(SYNCS, name, line, waits and not self._waiting)

    def _is_low_precision(self, call: OperatorCall) -> bool:
        dtypes = {tensor.dtype for tensor in call.results}
        if not dtypes.isdisjoint(LOW_PRECISION) or call.name.startswith("quantized::"):
            return True
        return (
            self._rounds_products
            and call.name in _MATRIX_PRODUCTS
            and torch.float32 in dtypes
        )

    def _remember(self, call: OperatorCall, line: str | None) -> None:
        """Note the memory of a result, unless the operator only changed an input."""
        new = []
        for tensor in call.results:
            storage = weak_storage(tensor)
            if storage is None or storage.cdata in self._seen_storages:
                continue
            if self._counts_host_memory or tensor.device.type != "cpu":
                new.append((tensor, storage))
        if not new:
            return
        inputs = set()
        for tensor in call.inputs:
            storage = weak_storage(tensor)
            if storage is not None:
                inputs.add(storage.cdata)
        for tensor, storage in new:
            if storage.cdata in inputs or storage.cdata in self._seen_storages:
                continue
            self._seen_storages.add(storage.cdata)
            in_order = self._tally.order is not None
            form = form_of(tensor) if in_order else ""
            block = AllocatedBlock(
                storage, call.name, line, tensor.untyped_storage().nbytes(), form
            )
            self._tally.blocks.append(block)
            if in_order:
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


@contextmanager
def _watched_autocast(lines: SourceLines, entered: list[str | None]) -> Iterator[None]:
    """While active, keep in ``entered`` the lines of the project that entered the
    regions of ``torch.autocast``.

    The last belongs to the innermost region; None stands for a disabled region.
    """
    region_kind: Any = torch.autocast
    enter, leave = region_kind.__enter__, region_kind.__exit__

    def entering(region: Any) -> Any:
        entered.append(lines.of(sys._getframe(1)) if region._enabled else None)
        return enter(region)

    def leaving(region: Any, *raised: Any) -> Any:
        del entered[-1:]  # a region may have been entered before
        return leave(region, *raised)

    with (
        replaced(torch.autocast, "__enter__", entering),
        replaced(torch.autocast, "__exit__", leaving),
    ):
        yield


@lru_cache(maxsize=256)
def _dispatches_itself(kind: type) -> bool:
    """Whether a class of tensors overrides how operators run (``__torch_dispatch__``)."""
    return (
        getattr(kind, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__
    )


@lru_cache(maxsize=4096)
def _is_composite(func: Any) -> bool:
    """Whether an operator is made of others on every device that is in use.

    A backend outside torch may have its own kernel for an operator that is composite
    elsewhere: torch_npu has one for ``scaled_dot_product_attention``
    (FlashAttentionScore), and taking that apart would count operators that never run.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(
        func.name(), "PrivateUse1"
    )


@lru_cache(maxsize=4096)
def _has_nested_kernel(func: Any) -> bool:
    """Whether there is a kernel of a composite operator for nested tensors, which have
    no sizes.
    """
    names = (
        "NestedTensorCPU",
        "NestedTensorCUDA",
        "CompositeImplicitAutogradNestedTensor",
    )
    return any(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), name)
        for name in names
    )


@lru_cache(maxsize=4096)
def _makes_its_view(func: Any) -> bool:
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView")
    )
