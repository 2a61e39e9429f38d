"""Write traces of many events in the layouts of Kineto (torch.profiler on CUDA) and of
torch_npu's trace_view.json.

Sizes and fields are those of recorded ones (a Kineto event of a GPU trace has about 330
bytes); the times are made up: one host thread launches kernels on two streams, a copy
and a collective now and then, in profiler steps.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

# nanoseconds; in microseconds a float of that size is 250 ns wide
ORIGIN = 1736408883704801_000
LAUNCHES_IN_A_STEP = 400
# Events of one launch: operator, call of the runtime, kernel, and both ends of the
# arrow.
EVENTS_OF_A_LAUNCH = 5
OPERATORS = (
    "addmm",
    "conv2d",
    "layer_norm",
    "gelu",
    "softmax",
    "copy_",
    "add",
    "mul",
    "bmm",
    "cat",
    "index",
    "transpose",
)


class Launch:
    """One operator, its launch and its kernel, in nanoseconds."""

    def __init__(
        self, number: int, host: int, device: int, chance: random.Random
    ) -> None:
        self.number = number
        self.operator = OPERATORS[chance.randrange(len(OPERATORS))]
        self.kind = (
            "comm" if number % 97 == 0 else "copy" if number % 41 == 0 else "compute"
        )
        self.variant = chance.randrange(40)
        self.host, self.host_length = host, chance.randrange(8_000, 30_000)
        self.launched, self.launch_length = host + 3_000, chance.randrange(2_000, 5_000)
        self.start = max(device, self.launched + 4_000)
        self.length = chance.randrange(1_500, 40_000)
        self.stream = 20 if self.kind == "comm" else 7
        self.shape = f"[[{1 << self.variant % 6}, 128], [128, 512]]"


def launches(count: int) -> Iterator[Launch]:
    """Yield launches one behind the other, from a fixed seed."""
    chance, host, device = random.Random(0), ORIGIN, ORIGIN
    for number in range(1, count + 1):
        launch = Launch(number, host, device, chance)
        yield launch
        host += launch.host_length + chance.randrange(500, 12_000)
        device = (
            launch.start
            + launch.length
            + (0 if chance.random() < 0.6 else chance.randrange(1, 2_000))
        )


def kineto(count: int) -> Iterator[str]:
    """Yield the events of a Kineto trace, one text each."""
    for step, one in _with_steps(count):
        if step:
            yield (
                f'  {{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 50, "tid": 50,\n    '
                f'"ts": {_us(one.host)}, "dur": 9000.000,\n    "args": {{\n      "External id": {one.number}\n    }}\n  }}'
            )
        yield (
            f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::{one.operator}", "pid": 50, "tid": 50,\n    "ts": '
            f'{_us(one.host)}, "dur": {_us(one.host_length)},\n    "args": {{\n      "External id": {one.number},'
            f'"Record function id": 0, "Concrete Inputs": ["", "", "1"], "Input type": ["float", "float", "Scalar"], '
            f'"Input Strides": [[512, 1], [1, 128], []], "Input Dims": {one.shape}, "Ev Idx": {one.number - 1}\n    }}\n  }}'
        )
        call = "cudaMemcpyAsync" if one.kind == "copy" else "cudaLaunchKernel"
        yield (
            f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "{call}", "pid": 50, "tid": 50,\n    "ts": '
            f'{_us(one.launched)}, "dur": {_us(one.launch_length)},\n    "args": {{\n      "External id": {one.number}, '
            f'"cbid": 211, "correlation": {one.number}\n    }}\n  }}'
        )
        flow = f'"id": {one.number}, "cat": "ac2g", "name": "ac2g"'
        yield f'  {{\n    "ph": "s", {flow}, "pid": 50, "tid": 50, "ts": {_us(one.launched)}\n  }}'
        category = "gpu_memcpy" if one.kind == "copy" else "kernel"
        yield (
            f'  {{\n    "ph": "X", "cat": "{category}", "name": "{_kernel(one)}", "pid": 0, "tid": {one.stream},\n    "ts": '
            f'{_us(one.start)}, "dur": {_us(one.length)},\n    "args": {{\n      "External id": {one.number}, "queued": 0, '
            f'"device": 0, "context": 1, "stream": {one.stream}, "correlation": {one.number}, "registers per thread": 32, '
            f'"shared memory": 0, "blocks per SM": 0.474074, "grid": [64, 1, 1], "block": [128, 1, 1]\n    }}\n  }}'
        )
        flow = f'{flow}, "pid": 0, "tid": {one.stream}, "ts": {_us(one.start)}'
        yield f'  {{\n    "ph": "f", {flow}, "bp": "e"\n  }}'


def trace_view(count: int) -> Iterator[str]:
    """Yield the events of a trace_view.json, one text each."""
    for number, name in ((7, "Python"), (8, "CANN"), (9, "Ascend Hardware")):
        yield f'{{"name": "process_name", "pid": {number}, "tid": 0, "ph": "M", "args": {{"name": "{name}"}}}}'
    for step, one in _with_steps(count):
        if step:
            yield (
                f'{{"ph": "X", "name": "ProfilerStep#{step}", "pid": 7, "tid": 50, "ts": "{_us(one.host)}", "dur": 9000.0, '
                f'"cat": "cpu_op", "args": {{}}}}'
            )
        yield (
            f'{{"ph": "X", "name": "aten::{one.operator}", "pid": 7, "tid": 50, "ts": "{_us(one.host)}", "dur": '
            f'{_us(one.host_length)}, "cat": "cpu_op", "args": {{"Sequence number": {one.number}, "Fwd thread id": 0, '
            f'"Input Dims": "64,128;\\r\\n128,512;\\r\\n", "Input type": "float;\\r\\nfloat;\\r\\nScalar", '
            f'"Call stack": "model.py(42): forward;\\r\\nmodel.py(91): forward;\\r\\ntrain.py(17): step"}}}}'
        )
        identity = one.number << 32
        yield (
            f'{{"name": "Node@launch", "pid": 8, "tid": 50, "ts": "{_us(one.launched)}", "dur": {_us(one.launch_length)}, '
            f'"args": {{"Thread Id": 50, "Mode": "launch", "level": "node", "id": "{_kernel(one)}", "item_id": '
            f'"{_kernel(one)}", "connection_id": {one.number}}}, "ph": "X"}}'
        )
        flow = f'"name": "HostToDevice{identity}", "id": "{identity}", "cat": "HostToDevice"'
        yield f'{{{flow}, "ph": "s", "pid": 8, "tid": 50, "ts": "{_us(one.launched + 1000)}"}}'
        task = "SDMA_SQE" if one.kind == "copy" else "AI_CORE"
        yield (
            f'{{"name": "{_kernel(one)}", "pid": 9, "tid": {one.stream}, "ts": "{_us(one.start)}", "dur": {_us(one.length)}, '
            f'"args": {{"Model Id": 4294967295, "Task Type": "{task}", "Physic Stream Id": {one.stream}, "Task Id": '
            f'{one.number % 65536}, "Batch Id": 0, "Subtask Id": 4294967295, "connection_id": {one.number}}}, "ph": "X"}}'
        )
        yield f'{{{flow}, "ph": "f", "bp": "e", "pid": 9, "tid": {one.stream}, "ts": "{_us(one.start)}"}}'  # fmt: skip


def write(path: Path, *, layout: str, events: int) -> None:
    """Write a trace of about so many events."""
    count = events // EVENTS_OF_A_LAUNCH
    with path.open("w") as stream:
        if layout == "kineto":
            stream.write(
                '{\n  "schemaVersion": 1,\n  "deviceProperties": [],\n  "traceEvents": [\n'
            )
            _join(stream.write, kineto(count), ",\n")
            stream.write('\n  ],\n  "traceName": "generated"\n}\n')
        else:
            stream.write("[")
            _join(stream.write, trace_view(count), ", ")
            stream.write("]")


def _with_steps(count: int) -> Iterator[tuple[int, Launch]]:
    """Yield each launch with the number of the step that begins there, 0 inside of one."""
    for one in launches(count):
        yield (
            (
                one.number // LAUNCHES_IN_A_STEP + 1
                if one.number % LAUNCHES_IN_A_STEP == 1
                else 0
            ),
            one,
        )


def _kernel(one: Launch) -> str:
    if one.kind == "copy":
        return "Memcpy HtoD (Pinned -> Device)"
    if one.kind == "comm":
        return "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    return f"void at::native::{one.operator}_kernel<float, {one.variant}>(int, at::detail::Array<char*, 3>)"


def _us(nanoseconds: int) -> Decimal:
    return Decimal(nanoseconds).scaleb(-3)


def _join(put: Callable[[str], object], texts: Iterator[str], separator: str) -> None:
    for number, text in enumerate(texts):
        put(separator + text if number else text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--layout", choices=["kineto", "trace_view"], default="kineto")
    parser.add_argument("--events", type=int, default=300_000)
    options = parser.parse_args()
    write(options.path, layout=options.layout, events=options.events)
