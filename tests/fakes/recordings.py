"""A small recording as torch.profiler writes it on a GPU, modelled on the recorded sample cuda-hta/nccl_data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

US_PER_STEP = 1000
GEMM, TO_NHWC, ADD = "ampere_sgemm_128x64_tn", "nchwToNhwcKernel", "vectorized_elementwise_kernel"
ALL_REDUCE, UPLOAD = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "Memcpy HtoD (Pinned -> Device)"
# Kernel, microseconds: a step computes for 400 of its 1000 us, and copies for 50 more before anything is computed.
STEP = ((UPLOAD, 50), (TO_NHWC, 40), (GEMM, 250), (ADD, 60), (TO_NHWC, 50), (ALL_REDUCE, 100))
_CATEGORIES = {UPLOAD: "gpu_memcpy"}
_CALLS = {UPLOAD: "cudaMemcpyAsync"}


def kineto_recording(
    path: Path, *, steps: Iterable[Sequence[tuple[str, int]]] = (STEP, STEP, STEP), marked: bool = True, rank: int = 0
) -> Path:
    """Write a recording of so many steps, each the kernels given with their microseconds, one after another.

    A step takes longer than US_PER_STEP if its kernels do.
    """
    events: list[dict[str, Any]] = []
    correlation = 0
    began = 1_700_000_000_000_000
    for number, kernels in enumerate(steps):
        length_of_step = max(US_PER_STEP, 20 + sum(length + 1 for _, length in kernels))
        if marked:
            events.append(_event("user_annotation", f"ProfilerStep#{number + 2}", 77, 77, began, length_of_step, {}))
        at = began + 20
        for name, length in kernels:
            correlation += 1
            launch = {"correlation": correlation, "External id": correlation}
            events.append(_event("cpu_op", "aten::op", 77, 77, at - 15, 8, {}))
            events.append(_event("cuda_runtime", _CALLS.get(name, "cudaLaunchKernel"), 77, 77, at - 12, 4, launch))
            on_device = {"device": 0, "stream": 7, **launch}
            events.append(_event(_CATEGORIES.get(name, "kernel"), name, 0, 7, at, length, on_device))
            at += length + 1
        began += length_of_step
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 85_000_000_000}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": events,
    }
    path.write_text(json.dumps(document))
    return path


def _event(
    category: str, name: str, pid: int, tid: int, start: int, length: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": args}
