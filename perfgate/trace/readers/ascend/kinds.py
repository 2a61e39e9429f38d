"""Classify spans of Ascend's profilers by kind of event, and kernels by operator type
from their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.events import EventKind

HARDWARE = "Ascend Hardware"
# The track of collectives: HCCL until 2025-01, Communication in CANN 8.3.
COLLECTIVES = ("HCCL", "Communication")
HOST = ("Python", "CANN")
# The thread of the hardware on which msprof marks the iterations of a graph
# (MindInsight's msprof_0_2_1.json of 2023).
STEP_TRACE = "Step Trace"

# torch_npu writes operators, its internal work and record_function ranges under one
# category. An operator is named namespace::name, is a call of aclnn, or a node of
# autograd …
_OPERATOR = re.compile(r"::|^aclnn|Backward\d+$")
# … or one of these (samples msinsight-910B-alexnet-2501 and mstt-advisor), or a call
# that the task queue later dequeues under the same name (Dequeue@Conv2D).
_NATIVE = frozenset(
    (
        "detach",
        "detach_",
        "empty_tensor",
        "record_event",
        "wait_event",
        "destroy_event",
        "contiguous_h_memRepoint",
        "format_contiguousV2",
    )
)

# Task types of a kernel, of the timeline, the tables and the database: AI_CORE,
# KERNEL_AIVEC, MIX_AIC, AI_CPU, DSA_SQE (random numbers), Other (2024).
_COMPUTE_TASK = re.compile(r"AI_?C|AI_?V|MIX|DSA|VECTOR|^OTHER$")
_COPY_TASK = re.compile(r"PCIE_DMA|SDMA_SQE|MEMCPY")
# The collective unit of Ascend 950 (CCU_LAUNCH).
_COLLECTIVE_TASK = re.compile(r"^CCU")
# Task types that are not work: the device waits, signals, switches streams or is set up
# (msprof: analysis/csrc, task types). SDMA, RDMA and UB without a suffix are steps of a
# collective.
_NO_WORK = re.compile(
    r"WAIT|RECORD|NOTIFY|EVENT|PLACE.?HOLDER|WRITE.?VALUE|PROFILING|MODEL|STREAM|LABEL|TIMEOUT|FLIP|MAINT|STATUS|BARRIER|"
    r"UPDATE_ADDR|GET_DEVICE|IPC_INT|ALLOC_DSA|INVALID|RESERVED|CMO|^SDMA$|RDMA|REDUCE_ASYNC|^UB|_DB_SEND|FUSION_ISSUE|"
    r"MULTIPLE|^COMMUNICATION$|FFTS_PLUS|DVPP|VPC|JPEG|^SQE|CALLBACK|HOST_?FUNC|NOP|DQS|DEBUG|OVERFLOW|LOG|TRACE"
)
# Tasks of a collective; its whole span lies on the track of collectives.
_PARTS_OF_COLLECTIVES = ("hcom_", "hccl", "aiv_")
_COLLECTIVE = re.compile(
    r"hcom_|allreduce|allgather|reducescatter|alltoall|broadcast|sendrecv",
    re.IGNORECASE,
)


def dequeued_calls(names: Iterable[str]) -> frozenset[str]:
    """The calls that the task queue dequeues, among all names of a recording."""
    return frozenset(
        name.removeprefix("Dequeue@") for name in names if name.startswith("Dequeue@")
    )


def python_kind(category: str, name: str, *, has_inputs: bool) -> EventKind:
    """The kind of an event of the process Python; any event that is neither an operator
    nor internal is a user's range.
    """
    if category in ("enqueue", "dequeue"):
        return "runtime"
    if category == "python_function":
        return "python"
    if category != "cpu_op":
        return "other"
    if has_inputs or name in _NATIVE or _OPERATOR.search(name):
        return "host_op"
    return "annotation"


def task_kind(task_type: str, name: str) -> EventKind:
    """The kind of a task on the device.

    SDMA without a suffix is a step of a collective, which has its whole span on the
    track of collectives; a kernel that sends by itself (MoeDistributeDispatch) has no
    other span. Events, notifies, placeholders and value writes are not work; a task of
    a type that is not known counts as computing.
    """
    word = task_type.upper()
    if name.startswith("MEMCPY") or _COPY_TASK.search(word):
        return "copy"
    by_name = kernel_kind(name)
    if by_name != "compute" and not name.lower().startswith(_PARTS_OF_COLLECTIVES):
        return by_name
    if _COLLECTIVE_TASK.search(word):
        return "comm"
    # Some tables of Level0 have no task type; all tasks left at this point are kernels.
    if not word or word == "N/A" or _COMPUTE_TASK.search(word) or is_unknown_task(word):
        return "compute"
    return "other"


def is_unknown_task(task_type: str) -> bool:
    """Whether a task on a stream may be work of a kind that is not known: newer chips
    have additional types.
    """
    word = task_type.upper()
    patterns = (_COMPUTE_TASK, _COPY_TASK, _COLLECTIVE_TASK, _NO_WORK)
    return (
        bool(word)
        and word != "N/A"
        and not any(pattern.search(word) for pattern in patterns)
    )


def collective_kind(thread: str, name: str) -> EventKind:
    """The kind of a span on the track of collectives: a whole collective, or one of its
    steps, which are on planes.
    """
    if thread.startswith("Plane"):
        return "other"
    if thread.startswith("Group") or _COLLECTIVE.search(name):
        return "comm"
    return "other"


def device_of_label(label: str | None) -> int | None:
    """The device of a process label, ``NPU 3``; None for a label without a number,
    ``NPU``.
    """
    match = re.fullmatch(r"NPU\s*(\d{1,6})", label or "")
    return int(match[1]) if match else None
