"""Profiles a few calls on a software NPU: `python profiled.py FOLDER now|later [Level0|Level1] [METRICS]`.

`now` lets torch_npu analyse inside this process, `later` leaves that to `python profiled.py FOLDER analyse`.
"""

from __future__ import annotations

import sys

import torch
import torch_npu
from torch import nn
from torch_npu.profiler import profiler

tools = torch_npu.profiler


def collect(folder: str, *, analyse: bool, level: str, metrics: str) -> None:
    """Two steps of a small network, an asynchronous copy and a cast between formats in each."""
    torch.npu.config.allow_internal_format = True
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).npu()
    x = torch.randn(16, 64).pin_memory()
    image = torch.randn(1, 16, 4, 4).npu()
    model(x.npu())
    torch.npu.synchronize()
    settings = tools._ExperimentalConfig(
        profiler_level=getattr(tools.ProfilerLevel, level),
        aic_metrics=getattr(tools.AiCMetrics, metrics),
        l2_cache=metrics == "L2Cache",
    )
    with tools.profile(
        activities=[tools.ProfilerActivity.CPU, tools.ProfilerActivity.NPU],
        schedule=tools.schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=tools.tensorboard_trace_handler(folder, analyse_flag=analyse),
        record_shapes=True,
        profile_memory=True,
        experimental_config=settings,
    ) as profile:
        for _ in range(4):
            model(x.npu(non_blocking=True))
            torch_npu.npu_format_cast(image, 3)
            # Kernels that end after the step's mark have no step.
            torch.npu.synchronize()
            profile.step()


if __name__ == "__main__":
    if sys.argv[2] == "analyse":
        profiler.analyse(sys.argv[1])
    else:
        level, metrics = [*sys.argv[3:], *("Level1", "PipeUtilization")[len(sys.argv) - 3 :]]
        collect(sys.argv[1], analyse=sys.argv[2] == "now", level=level, metrics=metrics)
