"""One resident side of the clocks of a card: loads a model, and then times a block or
its kernels for every line that it reads.

    python side.py --device cuda --model gemm --plant device --block 0.05

The first line that it writes says how long it took to load and how many calls make a
block. Then every ``block`` or ``kernels`` on its standard input is answered by a line
of JSON; all times are nanoseconds of a call.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

BEGAN = time.perf_counter()
# A tenth of the calls are faster: steadier than the fastest, and hardly ever disturbed.
LOW = 0.1
PROFILED_CALLS = 5
LAYERS = {"tiny": 24, "gemm": 12, "stream": 20}
# The batch of the extra layer is this share of the batch of the model's: about 1 % more
# work of twelve layers.
EXTRA_SHARE = 0.12


class Block(NamedTuple):
    """Until a call has ended (a low quantile, and the median), until it returns, on the
    device, and of calls back to back.
    """

    wall: float
    p50: float
    host: float
    span: float
    piped: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", choices=sorted(LAYERS), default="tiny")
    parser.add_argument("--plant", choices=("", "device", "host"), default="")
    parser.add_argument(
        "--spin",
        type=int,
        default=1000,
        help="turns of the loop that is planted in the host's work",
    )
    parser.add_argument(
        "--warm",
        type=float,
        default=1.5,
        help="seconds of calls before the first block",
    )
    parser.add_argument("--block", type=float, default=0.05, help="seconds of a block")
    options = parser.parse_args()

    import torch

    with torch.inference_mode():
        side = Side(torch, options)
        side.warm_up(options.warm)
        print(json.dumps(side.ready(options.block)), flush=True)
        for line in sys.stdin:
            order, calls = json.loads(line)
            answer = side.block(calls)._asdict() if order == "block" else side.kernels()
            print(json.dumps(answer), flush=True)


class Side:
    """A model on the device, with or without more work than the other side's."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        self.torch = torch
        torch.manual_seed(0)
        torch.set_num_threads(1)
        device = _device_of(torch, options.device)
        self.has_queue = device.type != "cpu"
        model, example = _model(torch, options.model, is_large=self.has_queue)
        dtype = (
            torch.bfloat16
            if self.has_queue and options.model == "gemm"
            else torch.float32
        )
        model = model.to(device, dtype).eval()
        example = example.to(device, dtype)
        self.call = _with_plant(torch, model, example, options)
        accelerator = getattr(torch, device.type, None)
        self.synchronize: Callable[[], None] = (
            accelerator.synchronize if self.has_queue and accelerator else _done
        )
        self.event = accelerator.Event if self.has_queue and accelerator else None
        self.call()
        self.synchronize()
        self.loaded = time.perf_counter() - BEGAN

    def warm_up(self, seconds: float) -> None:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            self.call()
        self.synchronize()
        self.kernels()  # the first profile of a process is slow

    def ready(self, block_seconds: float) -> dict[str, float]:
        began = time.perf_counter()
        self.call()
        self.synchronize()
        call = time.perf_counter() - began
        return {
            "loaded": self.loaded,
            "call": call,
            "calls": max(3, math.ceil(block_seconds / max(call, 1e-6))),
        }

    def block(self, calls: int) -> Block:
        """Time calls one by one, and then as many back to back, so that the host runs
        ahead of the device.
        """
        self.call()
        self.synchronize()
        events = [self._events() for _ in range(calls)]
        wall: list[int] = []
        host: list[int] = []
        for before, after in events:
            began = time.perf_counter_ns()
            before.record()
            self.call()
            after.record()
            returned = time.perf_counter_ns()
            self.synchronize()
            wall.append(time.perf_counter_ns() - began)
            host.append(returned - began)
        spans = [before.elapsed_time(after) * 1e6 for before, after in events]
        began = time.perf_counter_ns()
        for _ in range(calls):
            self.call()
        self.synchronize()
        piped = (time.perf_counter_ns() - began) / calls
        return Block(
            _low(wall), statistics.median(wall), _low(host), _low(spans), piped
        )

    def kernels(self) -> dict[str, Any]:
        """The sum of kernel durations of a call, and a digest of what ran.

        Not by torch.profiler, which imports the compiler: that took 5 s on an H100.
        """
        from torch.autograd.profiler import profile

        with profile(
            use_cpu=True, use_device=self._kind_of_profile(), use_kineto=True
        ) as profiled:
            for _ in range(PROFILED_CALLS):
                self.call()
            self.synchronize()
        rows = profiled.key_averages()
        time_of = (
            (lambda row: row.self_device_time_total)
            if self.has_queue
            else (lambda row: row.self_cpu_time_total)
        )
        names = json.dumps(sorted((row.key, row.count) for row in rows))
        digest = hashlib.sha256(names.encode()).hexdigest()[:16]
        return {
            "kernels": sum(map(time_of, rows)) / PROFILED_CALLS * 1e3,
            "work": digest,
        }

    def _kind_of_profile(self) -> str | None:
        return None if self.event is None else self.event.__module__.split(".")[1]

    def _events(self) -> tuple[Any, Any]:
        if self.event is None:
            return _HostEvent(), _HostEvent()
        return self.event(enable_timing=True), self.event(enable_timing=True)


def _device_of(torch: Any, name: str) -> Any:
    """The device of torch, or the CPU for a plug-in's that torch does not know: its
    tensors are the host's.
    """
    try:
        return torch.device(name)
    except RuntimeError:
        return torch.device("cpu")


def _done() -> None:
    """A call of a device without a queue has ended when it returns."""


class _HostEvent:
    """An event of a device without a queue: the host's clock."""

    def record(self) -> None:
        self.at = time.perf_counter_ns()

    def elapsed_time(self, later: _HostEvent) -> float:
        return (later.at - self.at) / 1e6


def _model(torch: Any, name: str, *, is_large: bool) -> tuple[Any, Any]:
    """A model and its input: bound by the host, by the device, or by its memory."""
    nn = torch.nn
    layers = range(LAYERS[name])
    if name == "tiny":
        return nn.Sequential(
            *[part for _ in layers for part in (nn.Linear(64, 64), nn.ReLU())]
        ), torch.randn(8, 64)
    if name == "gemm":
        size = 4096 if is_large else 128
        return nn.Sequential(
            *[nn.Linear(size, size, bias=False) for _ in layers]
        ), torch.randn(size, size)
    return nn.Sequential(*[nn.ReLU() for _ in layers]), torch.randn(
        64 << 20 if is_large else 1 << 16
    )


def _with_plant(
    torch: Any, model: Any, example: Any, options: argparse.Namespace
) -> Callable[[], Any]:
    """A call of the model, and beside it about 1 % more work of the device, or a loop
    of the host.
    """
    if options.plant == "device":
        rows = max(1, int(example.shape[0] * EXTRA_SHARE))
        extra = torch.randn(
            rows, *example.shape[1:], device=example.device, dtype=example.dtype
        )

        def with_kernel() -> Any:
            output = model(example)
            model[0](extra)
            return output

        return with_kernel
    if options.plant == "host":

        def with_loop() -> Any:
            for _ in range(options.spin):
                pass
            return model(example)

        return with_loop
    return lambda: model(example)


def _low(values: list[int] | list[float]) -> float:
    return float(sorted(values)[int(LOW * len(values))])


if __name__ == "__main__":
    main()
