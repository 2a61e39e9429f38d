"""Audit single calls operator by operator: their copies, the causes of these, and the
layout and precision of the work.

The copies are the same as in the exact counters (``OperatorCall.copies``), classified
by the property that they change.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.batches import bytes_of, tensors
from perfgate.measuring.devices.device import Call
from perfgate.trace.model.recording import Kernel

if TYPE_CHECKING:
    from perfgate.measuring.counting.operator_calls import OperatorCall

# The property that a copy changes: the order in memory, the device, the dtype, or none.
Cause = Literal["layout", "device", "dtype", "duplicate"]
CAUSES: tuple[Cause, ...] = ("layout", "device", "dtype", "duplicate")
# A tensor that both orders describe, as one with a single channel.
EITHER = "either"

_WARM_UP_CALLS = 2
_CONVOLUTIONS = frozenset(
    {"aten::convolution", "aten::_convolution", "aten::mkldnn_convolution"}
)
# Operators that bring a tensor into or out of oneDNN's own blocked formats
# (aten/src/ATen/native/mkldnn/MKLDNNConversions.cpp).
_REORDERS = frozenset(
    {
        "aten::to_mkldnn",
        "aten::_to_dense",
        "aten::mkldnn_reorder_conv2d_weight",
        "aten::mkldnn_reorder_conv3d_weight",
    }
)
# Names of the two orders by number of dimensions, as Ascend's tables word them.
_ORDERS = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


class Copy(NamedTuple):
    """A whole tensor written anew: the changed property, the orders or dtypes before
    and after, and the bytes written.
    """

    cause: Cause
    pair: str
    size: int


class AuditedProduct(NamedTuple):
    """A matrix product, convolution or attention: its arithmetic and the dtype of its
    inputs.
    """

    flops: int
    dtype: str
    low: bool


class Convolution(NamedTuple):
    """The order in memory of a convolution's input and weight: ``NCHW``, ``NHWC``,
    ``strided`` or ``EITHER``.
    """

    input: str
    weight: str

    @property
    def mixed(self) -> bool:
        """Whether one of them must be brought into the order of the other."""
        return EITHER not in self and self.input != self.weight


class AuditedOp(NamedTuple):
    """One operator of a call.

    ``host_ns`` is how long it took on the host, ``written`` the bytes of its results (a
    view's are 0), ``inputs`` are the forms of all inputs. ``reorder`` is the pair of
    formats of an operator that only changes a format of a library's own.
    """

    name: str
    line: str | None
    host_ns: int
    written: int
    inputs: str
    copies: tuple[Copy, ...]
    reorder: str | None
    product: AuditedProduct | None
    convolution: Convolution | None


def is_cast(kernel: Kernel) -> bool:
    """Whether a kernel only converts: of type ``Cast``, or a copy to another dtype."""
    copies = kernel.type == "TensorMove" or "aclnnInplaceCopy" in kernel.name
    return kernel.type == "Cast" or (
        copies and kernel.inputs.dtypes[:1] != kernel.outputs.dtypes[:1]
    )


def audit_shape(context: StepContext, shape: str, *, calls: int = 1) -> list[AuditedOp]:
    """The operators of a typical steady call on the inputs of a shape, in order of
    dispatch.

    Times are medians over ``calls`` calls, or the last call's if the calls dispatch
    different operators.
    """
    call = context.workload.caller(shape)
    for _ in range(_WARM_UP_CALLS):
        call()
    audits = [audit_call(context, call) for _ in range(calls)]
    if len({tuple(op.name for op in audit) for audit in audits}) > 1:
        return audits[-1]
    typical = []
    for ops in zip(*audits):
        host_ns = np.median([op.host_ns for op in ops])
        typical.append(ops[-1]._replace(host_ns=int(host_ns)))
    return typical


def audit_call(context: StepContext, call: Call) -> list[AuditedOp]:
    """Make one call and return the operators of the framework that it dispatches, in
    order.
    """
    # torch is imported here, so that a step that audits can be listed without it.
    from perfgate.measuring.counting.dispatch import WatchingMode
    from perfgate.measuring.counting.tally import SourceLines

    ops: list[AuditedOp] = []
    lines = SourceLines(context.root)
    clock = context.device.timer_ns

    class Auditor(WatchingMode):  # type: ignore[no-untyped-call]
        host_ns = 0

        def run(
            self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]
        ) -> Any:
            started = clock()
            result = func(*args, **keywords)
            self.host_ns = clock() - started
            return result

        def saw(self, call: OperatorCall) -> None:
            ops.append(_audited(call, lines.of(sys._getframe(2)), self.host_ns))

    with Auditor():  # type: ignore[no-untyped-call]
        call()
    context.device.synchronize()
    return ops


def _audited(call: OperatorCall, line: str | None, host_ns: int) -> AuditedOp:
    copies = tuple(_copy(target, source) for target, source in call.copies())
    written = 0
    if not call.is_view:
        results = [tensor for tensor in tensors(call.result) if not tensor.is_nested]
        written = bytes_of(results) or sum(copy.size for copy in copies)
    reorder = convolution = None
    if call.name in _REORDERS and call.inputs:
        reorder = _pair(call.result, call.inputs[0])
    if call.name in _CONVOLUTIONS:
        convolution = Convolution(_order(call.args[0]), _order(call.args[1]))
    return AuditedOp(
        call.name,
        line,
        host_ns,
        written,
        call.forms(),
        copies,
        reorder,
        _product(call),
        convolution,
    )


def _copy(target: Any, source: Any) -> Copy:
    from perfgate.measuring.counting.operator_calls import layout_differs

    cause: Cause = "duplicate"
    pair = _pair(target, source)
    if layout_differs(target, source):
        cause = "layout"
    elif target.device != source.device:
        cause = "device"
    elif target.dtype != source.dtype:
        cause, pair = "dtype", f"{_dtype(source)} -> {_dtype(target)}"
    return Copy(cause, pair, bytes_of(target))


def _pair(target: Any, source: Any) -> str:
    return f"{_order(source, either='contiguous')} -> {_order(target, either='contiguous')}"


def _order(tensor: Any, *, either: str = EITHER) -> str:
    """The memory order of a tensor; ``either`` if it is contiguous in both possible
    orders.
    """
    import torch

    if tensor.layout != torch.strided:
        return str(tensor.layout).rpartition(".")[2].lstrip("_")
    if tensor.is_nested:
        return "nested"
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    first, last = _ORDERS.get(tensor.dim(), ("contiguous", ""))
    channels_first = tensor.is_contiguous()
    channels_last = tensor.dim() in formats and tensor.is_contiguous(
        memory_format=formats[tensor.dim()]
    )
    if channels_first and channels_last:
        return either
    if channels_first:
        return first
    if channels_last:
        return last
    return "strided"


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _product(call: OperatorCall) -> AuditedProduct | None:
    from perfgate.measuring.counting.operator_calls import LOW_PRECISION

    flops = call.flops()
    floating = [tensor for tensor in call.inputs if tensor.is_floating_point()]
    if not flops or not floating:
        return None
    # A product in lower precision may still add a bias in full.
    low = [tensor for tensor in call.inputs if tensor.dtype in LOW_PRECISION]
    first = (low or floating)[0]
    return AuditedProduct(flops, _dtype(first), bool(low))
