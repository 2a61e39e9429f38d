"""A small job on one stream, as torch.profiler records it: steps, operators, launches and kernels, in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def step_mark(number: int, at: float, length: float = 980, *, thread: int = 1) -> Event:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{number}",
        "pid": 9,
        "tid": thread,
        "ts": at,
        "dur": length,
    }


def kernel(at: float, length: float, number: int, *, name: str = "gemm", **changes: Any) -> Event:
    args = {"device": 0, "stream": 7, "correlation": number, "External id": number}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": at,
        "dur": length,
        "args": args,
        **changes,
    }


def launch(at: float, number: int) -> list[Event]:
    host = {"ph": "X", "pid": 9, "tid": 1}
    return [
        {**host, "cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 40, "args": {"External id": number}},
        {
            **host,
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": at + 10,
            "dur": 8,
            "args": {"correlation": number},
        },
    ]


def steps(count: int = 6, *, kernels: int = 4, length: float = 50) -> list[Event]:
    """Steps of a millisecond; each launches its kernels 100 us apart, which begin 30 us later."""
    events: list[Event] = []
    for step in range(count):
        events.append(step_mark(step, 1000 * step + 1000))
        for place in range(kernels):
            number, at = 100 * step + place + 1, 1000 * step + 1000 + 100 * place
            events += [*launch(at + 20, number), kernel(at + 50, length, number)]
    return events


def is_kernel(event: Event) -> bool:
    return event.get("cat") == "kernel"


def recorded(path: Path, events: list[Event], **members: Any) -> Path:
    """Write a recording of torch.profiler."""
    path.write_text(json.dumps({"schemaVersion": 1, **members, "traceEvents": events}))
    return path
