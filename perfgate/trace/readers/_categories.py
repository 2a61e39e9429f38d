"""What categories and names of Chrome trace events say, whoever wrote them."""

from __future__ import annotations

from perfgate.trace.events import EventKind

# Categories of today's Kineto (torch 2.x) and of 2021 (cat "Kernel", "Operator" …), in lower case. Seen in the recorded
# samples cpu-torch2.13, cuda-hta and cuda-kineto; privateuse1_runtime in torch-native-privateuse1.
KIND_OF_CATEGORY: dict[str, EventKind] = {
    "cpu_op": "host_op",
    "operator": "host_op",
    "kernel": "compute",
    # What runs on the device in traces of converters, with the stream as thread; what it is the name says.
    "npu": "compute",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "copy",
    "memset": "copy",
    "user_annotation": "annotation",
    "gpu_user_annotation": "device_annotation",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "cuda_sync": "runtime",
    "privateuse1_runtime": "runtime",
    "runtime": "runtime",
    "python_function": "python",
    "cpu_instant_event": "memory",
}
# These stand on the device's tracks, a synchronisation included (sample cuda-hta/a100_event_sync).
DEVICE_CATEGORIES = frozenset(
    {"kernel", "npu", "gpu_memcpy", "memcpy", "gpu_memset", "memset", "gpu_user_annotation", "cuda_sync"}
)
# Kernels of collectives by how their names begin: NCCL and RCCL (sample cuda-hta/nccl_data), HCCL (hcom_allReduce_).
COLLECTIVES = ("nccl", "rccl", "hccl", "hcom_")
# torch's record_function("request#17"), as serving code marks what it does for one request.
_REQUEST = "request#"


def request_of(argument: int | float | str | None, name: str) -> str | None:
    """Return the request an event served: its argument ``request_id``, else what its name says."""
    if argument is not None:
        return str(argument)
    return name[len(_REQUEST) :] if name.startswith(_REQUEST) else None
