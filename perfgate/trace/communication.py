"""Which kernels communicate, by their names: one table for every reader, question, step and counter.

Device libraries mark no kernel as communication, so names decide. A team adds its own by ``[trace] communication`` in
perfgate.toml, or with ``--comm PATTERN``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from functools import lru_cache
from typing import NamedTuple

from perfgate.errors import UsageError


class CommunicationLibrary(NamedTuple):
    """A library's kernels that communicate; ``source`` is where its names are from."""

    name: str
    pattern: str
    source: str


# Matched anywhere in a name, without regard to case.
LIBRARIES = (
    CommunicationLibrary("NCCL, RCCL", r"^nccl|^rccl", "nccl: src/device/generate.py"),
    CommunicationLibrary(
        "HCCL", r"^hccl|^hcom_|^aiv_(?:all|reduce|broad)", "hccl: src/domain/collective_communication"
    ),
    CommunicationLibrary("oneCCL", r"^oneccl|(?:^|[ :])ccl::|^ccl_", "oneCCL: src/coll"),
    CommunicationLibrary(
        "DeepEP",
        r"(?:deep_ep|dpsk::ep|inter_?node|intra_?node|internode_ll)::.*(?:dispatch|combine|notify|barrier|clean_low_latency)",
        "DeepEP: csrc/kernels/{intranode,internode,internode_ll}.cu",
    ),
    CommunicationLibrary("NVSHMEM", r"nvshmemx?i?_|nvshmem::", "nvshmem: src/device"),
    CommunicationLibrary(
        "symmetric memory of PyTorch",
        r"multimem_(?:all_reduce|one_shot|all_gather)|(?:one|two)_shot_all_reduce|multimem_",
        "pytorch: torch/csrc/distributed/c10d/cuda/CUDASymmetricMemoryOps.cu",
    ),
    CommunicationLibrary(
        "custom all-reduce of vLLM, SGLang, TensorRT-LLM, AITER",
        r"cross_device_reduce_[12]stage|(?:all_?reduce|reduce_?scatter|all_?gather)_?(?:fusion_kernel|one_?shot|two_?shot|lamport|"
        r"prototype|kernel)|quickreduce::|mscclpp|userbuffers_fp16_sum",
        "vllm: csrc/custom_all_reduce.cuh, csrc/quickreduce; sglang: sgl-kernel/csrc/allreduce; TensorRT-LLM: "
        "cpp/tensorrt_llm/kernels/communicationKernels",
    ),
    CommunicationLibrary(
        "expert parallelism on Ascend",
        r"MoeDistribute(?:Dispatch|Combine)|^(?:aclnn)?AllToAll(?:v|vc)?(?:_|V|$)",
        "vllm-ascend: MC2 operators; CANN: aclnnMoeDistributeDispatchV2",
    ),
)
_ADDED: ContextVar[tuple[str, ...]] = ContextVar("added_communication", default=())


def add_communication(patterns: Iterable[str]) -> None:
    """Count kernels whose names match one of these patterns as communication too, from now on.

    Raises UsageError for a text that is no regular expression.
    """
    patterns = tuple(patterns)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{pattern!r} is no regular expression: {error}") from error
    _ADDED.set(tuple(dict.fromkeys((*_ADDED.get(), *patterns))))


def added_communication() -> tuple[str, ...]:
    """The patterns that count beside those of the libraries."""
    return _ADDED.get()


def communicates(name: str) -> bool:
    """Whether a kernel of this name is a collective, or the sending or receiving end of one."""
    return _matcher(_ADDED.get()).search(name) is not None


@lru_cache(maxsize=16)
def _matcher(added: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(
        "|".join(f"(?:{pattern})" for pattern in (*(one.pattern for one in LIBRARIES), *added)), re.IGNORECASE
    )
