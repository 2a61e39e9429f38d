"""Which kernels communicate, alone or while they compute, by their names: one table for
all readers, questions and steps.

Device libraries mark no kernel as communication, so names decide. A team adds its own
by ``[trace] communication`` in perfgate.toml, or with ``--comm PATTERN``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal

from perfgate.errors import UsageError

KernelKind = Literal["compute", "comm", "fused"]


_COLLECTIVE = r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?)"
_PRODUCT = r"(?:mat_?mul|gemm|gmm|ffn)"
# Patterns that are matched anywhere in a name, without regard to case. First, kernels
# that multiply matrices and exchange the parts at once: neither computing nor
# communication alone.
_FUSED = (
    # MC2 of CANN, flux, CUTLASS, TensorRT-LLM (CANN ops-transformer: mc2/ has
    # MatmulAllReduce, AllGatherMatmul, MatmulReduceScatter, AlltoAllvGroupedMatMul;
    # TensorRT-LLM: cpp/tensorrt_llm/kernels/cutlass_kernels).
    rf"{_COLLECTIVE}\w*{_PRODUCT}|{_PRODUCT}\w*{_COLLECTIVE}",
    # Fused expert parallelism of vLLM Ascend (vllm-ascend: csrc/dispatch_ffn_combine,
    # csrc/dispatch_gmm_combine_decode).
    rf"dispatch_?{_PRODUCT}\w*combine",
    # flux, Triton-distributed (flux: src/ag_gemm, src/gemm_rs).
    r"(?:^|[_:])(?:ag_gemm|gemm_rs|gemm_ar)(?:_|$|<)",
)
_LIBRARIES = (
    # NCCL, RCCL (nccl: src/device/generate.py).
    r"^nccl|^rccl",
    # HCCL (hccl: src/domain/collective_communication).
    r"^hccl|^hcom_|^aiv_(?:all|reduce|broad)",
    # oneCCL (oneCCL: src/coll).
    r"^oneccl|(?:^|[ :])ccl::|^ccl_",
    # DeepEP (DeepEP: csrc/kernels/{intranode,internode,internode_ll}.cu).
    r"(?:deep_ep|dpsk::ep|inter_?node|intra_?node|internode_ll)::.*(?:dispatch|combine|notify|barrier|clean_low_latency)",
    # NVSHMEM (nvshmem: src/device).
    r"nvshmemx?i?_|nvshmem::",
    # Symmetric memory of PyTorch (pytorch:
    # torch/csrc/distributed/c10d/cuda/CUDASymmetricMemoryOps.cu).
    r"multimem_(?:all_reduce|one_shot|all_gather)|(?:one|two)_shot_all_reduce|multimem_",
    # Custom all-reduce of vLLM, SGLang, TensorRT-LLM, AITER (vllm:
    # csrc/custom_all_reduce.cuh, csrc/quickreduce; sglang: sgl-kernel/csrc/allreduce;
    # TensorRT-LLM: cpp/tensorrt_llm/kernels/communicationKernels).
    r"cross_device_reduce_[12]stage|(?:all_?reduce|reduce_?scatter|all_?gather)_?(?:fusion_kernel|one_?shot|two_?shot|lamport|"
    r"prototype|kernel)|quickreduce::|mscclpp|userbuffers_fp16_sum",
    # XLA: all-reduce.2, all-gather-start, all-reduce_2.kd (openxla:
    # xla/hlo/ir/hlo_opcode.h).
    r"^(?:all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast)(?:[-_.]|$)",
    r"^(?:send|recv)(?:-done)?(?:\.\d+)?$",
    # Expert parallelism on Ascend (vllm-ascend: MC2 operators; CANN:
    # aclnnMoeDistributeDispatchV2).
    r"MoeDistribute(?:Dispatch|Combine)|^(?:aclnn)?AllToAll(?:v|vc)?(?:_|V|$)",
)
# One of these is in every name that a pattern above matches. Most names have none, and
# the patterns take 30 us for each.
_PARTS = (
    *(
        "ccl",
        "reduce",
        "gather",
        "toall",
        "to_all",
        "to-all",
        "collective",
        "send",
        "recv",
        "hcom_",
        "aiv_",
    ),
    *(
        "dispatch",
        "combine",
        "notify",
        "barrier",
        "clean_low",
        "nvshmem",
        "multimem",
        "userbuffers",
    ),
    *("ag_gemm", "gemm_rs", "gemm_ar"),
)
_ADDED: ContextVar[tuple[str, ...]] = ContextVar("added_communication", default=())


def add_communication(patterns: Iterable[str]) -> None:
    """From now on, count kernels with names that match one of these patterns as
    communication too.

    Raises UsageError for a text that is not a regular expression.
    """
    patterns = tuple(patterns)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(
                "{pattern!r} is not a regular expression: {error}",
                pattern=pattern,
                error=error,
            ) from error
    _ADDED.set(tuple(dict.fromkeys((*_ADDED.get(), *patterns))))


def added_communication() -> tuple[str, ...]:
    """The patterns of communication that a team added."""
    return _ADDED.get()


def kernel_kind(name: str) -> KernelKind:
    """Whether a kernel of this name computes, communicates, or does both at once; added
    patterns come first.
    """
    return _kind(name, _ADDED.get())


@lru_cache(maxsize=1 << 12)
def _kind(name: str, added: tuple[str, ...]) -> KernelKind:
    """A table of kernels has few names, each in thousands of rows."""
    if added and _any_of(added).search(name):
        return "comm"
    lower = name.lower()
    if not any(part in lower for part in _PARTS):
        return "compute"
    if _any_of(_FUSED).search(name):
        return "fused"
    return "comm" if _any_of(_LIBRARIES).search(name) else "compute"


@lru_cache(maxsize=16)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)
