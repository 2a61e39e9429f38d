"""Whether the first screen of a serving engine's recording answers the five questions:
operator, line, bound, overlap, change.

    python benchmarks/trace/serving.py --out build/serving

A small decoder serves requests by continuous batching on the CPU under torch.profiler,
with the annotations of an engine: a real recording of a host. A CPU has no timeline of
a device, so one is laid beside it: every operator with work of its own launches a
kernel, in the shape of Kineto's recordings on CUDA, and a wait for the device delays
all that follows on the host. Each recording has planted truths that
`perfgate trace REC --base OTHER` has to name. Prints what is missing, and ends with 1
if anything is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

WIDTH, HEADS, LAYERS, WORDS = 128, 4, 4, 512
BATCHES = 24
FETCHED = 8  # logits of each request, by a slow sampler
Annotate = Callable[[int, int, int], AbstractContextManager[Any]]
Activation = Callable[[torch.Tensor], torch.Tensor]


class Decoder(torch.nn.Module):
    """Layers of attention and a network, or of experts that dispatch and combine
    tokens.
    """

    def __init__(self, *, parallel: str, activation: Activation) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(
            Layer(parallel, activation) for _ in range(LAYERS)
        )
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(hidden[:, -1])
        return logits


class Layer(torch.nn.Module):
    def __init__(self, parallel: str, activation: Activation) -> None:
        super().__init__()
        self.parallel, self.activation = parallel, activation
        self.qkv, self.out = (
            torch.nn.Linear(WIDTH, 3 * WIDTH),
            torch.nn.Linear(WIDTH, WIDTH),
        )
        self.up, self.down = (
            torch.nn.Linear(WIDTH, 4 * WIDTH),
            torch.nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            self.qkv(hidden).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        hidden = hidden + self.reduced(self.out(mixed.transpose(1, 2).flatten(-2)))
        if self.parallel == "expert":
            hidden = dispatch(hidden)
        network: torch.Tensor = self.down(self.activation(self.up(hidden)))
        return hidden + (
            combine(network) if self.parallel == "expert" else self.reduced(network)
        )

    def reduced(self, hidden: torch.Tensor) -> torch.Tensor:
        return (
            tensor_model_parallel_all_reduce(hidden)
            if self.parallel == "tensor"
            else hidden
        )


def tensor_model_parallel_all_reduce(hidden: torch.Tensor) -> torch.Tensor:
    return hidden.clone()


def dispatch(hidden: torch.Tensor) -> torch.Tensor:
    return hidden.clone()


def combine(hidden: torch.Tensor) -> torch.Tensor:
    return hidden.clone()


def sample(logits: torch.Tensor, *, slowly: bool) -> list[int]:
    """The next token of each request; ``slowly`` fetches some of its logits one by one,
    and waits for the device each time.
    """
    best = logits.argmax(-1)
    fetched = [
        logits[place, word].item()
        for place in range(len(best))
        for word in range(FETCHED if slowly else 0)
    ]
    tokens: list[int] = best.tolist()
    return tokens if not slowly or fetched else []


class Case(NamedTuple):
    """A recording, how fast its device is beside the host, and what the first screen
    has to say about it.
    """

    name: str
    annotate: Annotate
    parallel: str
    device_speed: float
    says: tuple[str, ...]
    slow_sampling: bool = False
    overlaps: bool = False
    steps: bool = False
    graphs: bool = False


def vllm(prefill: int, decode: int, tokens: int) -> AbstractContextManager[Any]:
    return record_function(
        f"execute_context_{prefill}({tokens})_generation_{decode}({decode})"
    )


def vllm_before(prefill: int, decode: int, _: int) -> AbstractContextManager[Any]:
    return record_function(f"execute_new_{prefill}_cached_{decode}")


def sglang(prefill: int, decode: int, tokens: int) -> AbstractContextManager[Any]:
    return record_function(
        f"step[EXTEND bs={prefill} toks={tokens}]"
        if prefill
        else f"step[DECODE bs={decode}]"
    )


def atom(prefill: int, decode: int, tokens: int) -> AbstractContextManager[Any]:
    return record_function(
        f"prefill[bs={prefill} tok={tokens}]"
        if prefill
        else f"decode[bs={decode} tok={decode}]"
    )


def nothing(*_: int) -> AbstractContextManager[Any]:
    return nullcontext()


HOST, DEVICE, WAITED = (
    "host bound",
    "bound by computing",
    "idle after the host had waited for the device",
)
PHASES = ("prefill: 6 steps", "decode: 18 steps", "requests at once")
REDUCED = ("communication", "ncclDevKernel_AllReduce")
# A device this much faster than a hundredth of a real one idles, or is always busy, on
# any host.
FAST, SLOW = 8.0, 0.02
CASES = (
    Case("vllm-host", vllm, "none", FAST, (HOST, *PHASES, "forward")),
    Case(
        "vllm-device", vllm, "none", SLOW, (DEVICE, *PHASES, "aten::addmm", "forward")
    ),
    Case("vllm-sampler", vllm, "none", FAST, (WAITED, *PHASES), slow_sampling=True),
    Case(
        "vllm-tensor",
        vllm,
        "tensor",
        SLOW,
        (*REDUCED, "of it hidden by computing", *PHASES),
    ),
    Case("vllm-steps", vllm_before, "none", 1.0, PHASES, steps=True),
    Case("vllm-graphs", vllm, "none", SLOW, (DEVICE, *PHASES, "cublas"), graphs=True),
    Case("sglang-device", sglang, "none", SLOW, (DEVICE, *PHASES, "aten::addmm")),
    Case(
        "sglang-overlap",
        sglang,
        "tensor",
        SLOW,
        (*REDUCED, "hidden by computing", *PHASES),
        overlaps=True,
    ),
    Case(
        "deepseek-expert",
        sglang,
        "expert",
        SLOW,
        ("dispatch", "communication", *PHASES),
    ),
    Case("atom-device", atom, "none", SLOW, (DEVICE, *PHASES)),
    Case("plain-loop", nothing, "none", SLOW, (DEVICE, "steps of"), steps=True),
)


def decode_batch(model: Decoder, tokens: torch.Tensor, *, slowly: bool) -> list[int]:
    with record_function("gpu_model_runner: forward"):
        logits = model(tokens)
    with record_function("gpu_model_runner: sample"):
        return sample(logits, slowly=slowly)


def record(case: Case, path: Path, activation: Activation) -> None:
    """Serve some batches, every fourth of new requests, and lay a device beside the
    recording.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Decoder(parallel=case.parallel, activation=activation).eval()
    marks = schedule(wait=0, warmup=1, active=BATCHES, repeat=1) if case.steps else None
    exported = path.with_suffix(".host.json")
    with (
        torch.inference_mode(),
        profile(
            activities=[ProfilerActivity.CPU],
            with_stack=True,
            record_shapes=True,
            schedule=marks,
            on_trace_ready=lambda done: done.export_chrome_trace(str(exported)),
        ) as profiler,
    ):
        for number in range(-1 if case.steps else 0, BATCHES):
            prefill, decode = (2, 0) if number % 4 == 0 else (0, 8)
            tokens = torch.randint(WORDS, (prefill or decode, 64 if prefill else 1))
            with case.annotate(prefill, decode, tokens.numel()):
                decode_batch(model, tokens, slowly=case.slow_sampling)
            if case.steps:
                profiler.step()
    document = json.loads(exported.read_text())
    document["traceEvents"] = list(with_device(document["traceEvents"], case))
    path.write_text(json.dumps(document))
    exported.unlink()


# Operators that launch nothing: views, and those that only make memory.
VIEWS = ("view", "reshape", "transpose", "permute", "select", "slice", "as_strided", "unflatten", "flatten", "unsqueeze",
         "expand", "squeeze", "detach", "alias", "empty", "resolve", "lift", "_unsafe_view", "aten::t", "chunk",
         "narrow", "to", "empty_strided", "empty_like")  # fmt: skip
KERNELS = {
    "addmm": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas",
    "mm": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas",
    "_scaled_dot_product": "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 64, 4, false, false>>",
    "relu": "void at::native::vectorized_elementwise_kernel<4, at::native::ReluCUDAKernelImpl>",
    "gelu": "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl, std::array<char*, 2ul>>",
    "add": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>",
    "embedding": "void at::native::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>",
    "_local_scalar_dense": "",
    "argmax": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::ArgMaxOps<float>>>",
}
COLLECTIVES = {
    "tensor_model_parallel_all_reduce": (
        "c10d::allreduce_",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)",
    ),
    "dispatch": (
        "deep_ep::dispatch",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
    ),
    "combine": (
        "deep_ep::combine",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*)",
    ),
}


def with_device(events: list[dict[str, Any]], case: Case) -> Iterator[dict[str, Any]]:
    """The host's events, delayed where it waits for the device, and the work that its
    operators launched.
    """
    spans = [event for event in events if event.get("ph") == "X" and "dur" in event]
    functions = [event for event in spans if event.get("cat") == "python_function"]
    replays = decode_forwards(spans) if case.graphs else []
    device = Stream(case, replays)
    for number, operator in enumerate(launching(spans), start=1):
        begin = operator["ts"]
        around = {
            one["name"].rpartition(": ")[2]
            for one in functions
            if one["ts"] <= begin < one["ts"] + one["dur"]
        }
        device.run(
            operator,
            number,
            next((name for name in COLLECTIVES if name in around), None),
        )
    later = device.later
    for event in spans:
        end = later(event["ts"] + event["dur"])
        event["ts"] = later(event["ts"])
        event["dur"] = end - event["ts"]
    graphs = [(later(first), later(last)) for first, last in replays]
    for event in events:
        hosted = event.get("cat") in ("cpu_op", "python_function")
        if not (hosted and any(first < event["ts"] < last for first, last in graphs)):
            yield event
    yield from device.laid


def launching(spans: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The operators that have a kernel of their own: those that CUDA has one for, and
    innermost ones that are no view.
    """
    host = sorted(
        (event for event in spans if event.get("cat") == "cpu_op"),
        key=lambda one: (one["ts"], -one["dur"]),
    )
    behind = 0.0
    for operator, after in zip(host, [*host[1:], None]):
        word, end = (
            operator["name"].removeprefix("aten::"),
            operator["ts"] + operator["dur"],
        )
        is_innermost = after is None or after["ts"] >= end
        is_view = any(word.startswith(view.removeprefix("aten::")) for view in VIEWS)
        if operator["ts"] >= behind and (
            any(word.startswith(part) for part in KERNELS)
            or (is_innermost and not is_view)
        ):
            behind = end
            yield operator


def run_time(operator: dict[str, Any]) -> float:
    """Microseconds that do not depend on the host: two, and one for every two thousand
    elements of the inputs.
    """
    shapes = operator.get("args", {}).get("Input Dims") or []
    plain = [shape for shape in shapes if all(isinstance(size, int) for size in shape)]
    elements: int = sum(prod(shape) for shape in plain if shape)
    return round(2.0 + elements / 2000, 3)


class Stream:
    """The device: its work, and how long each wait for it has delayed the host so far."""

    def __init__(self, case: Case, replays: list[tuple[float, float]]) -> None:
        self.laid: list[dict[str, Any]] = []
        self._case, self._replays, self._replayed = case, replays, set[int]()
        self._delays, self._free, self._communicating = [(float("-inf"), 0.0)], 0.0, 0.0

    def later(self, time: float) -> float:
        """A time of the host, and what it waited until then."""
        return (
            time + self._delays[bisect_right(self._delays, (time, float("inf"))) - 1][1]
        )

    def run(
        self, operator: dict[str, Any], number: int, collective: str | None
    ) -> None:
        word, begin, length = (
            operator["name"].removeprefix("aten::"),
            operator["ts"],
            operator["dur"],
        )
        delayed, place = (
            self._delays[-1][1],
            {"pid": operator["pid"], "tid": operator["tid"]},
        )
        launch, is_fetch = begin + 0.4 * length + delayed, word == "_local_scalar_dense"
        calling = min(2.0, 0.5 * length)
        kernel = next(
            (name for part, name in KERNELS.items() if word.startswith(part)),
            f"void at::native::{word}_kernel",
        )
        if collective is not None:
            operator["name"], kernel = COLLECTIVES[collective]
        call, correlation = (
            "cudaMemcpyAsync" if is_fetch else "cudaLaunchKernel",
            number,
        )
        replay = next(
            (
                at
                for at, (first, last) in enumerate(self._replays)
                if first <= begin < last
            ),
            None,
        )
        if replay is not None:
            call, correlation, launch = (
                "cudaGraphLaunch",
                1_000_000 + replay,
                self._replays[replay][0] + delayed,
            )
        if replay not in self._replayed:
            self.laid.append(
                span(
                    "cuda_runtime",
                    call,
                    launch,
                    calling,
                    **place,
                    correlation=correlation,
                )
            )
        self._replayed |= set() if replay is None else {replay}
        category, name = (
            ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)")
            if is_fetch
            else ("kernel", kernel)
        )
        start, end = self._times(
            launch, run_time(operator) / self._case.device_speed, collective
        )
        stream = 7 if collective is None else 20
        self.laid.append(
            span(
                category,
                name,
                start,
                end - start,
                0,
                stream,
                correlation=correlation,
                stream=stream,
                device=0,
            )
        )
        if is_fetch:
            waited = max(end - launch - calling, 0.0) + 1.0  # for the host to notice
            self.laid.append(
                span(
                    "cuda_runtime",
                    "cudaStreamSynchronize",
                    launch + calling,
                    waited,
                    **place,
                )
            )
            self._delays.append((begin + 0.9 * length, delayed + waited))

    def _times(
        self, launch: float, runs: float, collective: str | None
    ) -> tuple[float, float]:
        """When the work begins and ends: behind that of its stream, a collective also
        behind what was computed before it.
        """
        if collective is None:
            start = max(self._free, launch + 4.0)
            self._free = start + runs
            return start, self._free
        start = max(
            self._communicating,
            launch + 4.0,
            0.0 if self._case.overlaps else self._free,
        )
        self._communicating = start + 3 * runs
        self._free = self._free if self._case.overlaps else self._communicating
        return start, self._communicating


def decode_forwards(spans: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """When the model ran in batches of decode alone, which an engine replays as one
    graph.
    """
    decodes = [one for one in spans if one["name"].startswith("execute_context_0(")]
    forwards = [one for one in spans if one["name"] == "gpu_model_runner: forward"]
    return [
        (one["ts"], one["ts"] + one["dur"])
        for one in forwards
        if any(
            batch["ts"] <= one["ts"] < batch["ts"] + batch["dur"] for batch in decodes
        )
    ]


def span(
    category: str,
    name: str,
    ts: float,
    dur: float,
    pid: int,
    tid: int,
    **arguments: int,
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
        "ts": round(ts, 3), "dur": round(dur, 3), "args": arguments,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, help="keep the recordings and the screens here"
    )
    parser.add_argument("--only", default="", help="cases whose names contain this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        lacking = [
            case.name
            for case in CASES
            if options.only in case.name and not answered(case, folder)
        ]
    sys.exit(1 if lacking else 0)


def answered(case: Case, folder: Path) -> bool:
    """Whether the screen says everything; the base of each recording has another
    activation.
    """
    head, base = (
        folder / f"{case.name}.pt.trace.json",
        folder / f"{case.name}-base.pt.trace.json",
    )
    record(case, head, torch.nn.functional.gelu)
    record(case, base, torch.nn.functional.relu)
    command = [
        sys.executable,
        "-m",
        "perfgate",
        "trace",
        "show",
        str(head),
        "--base",
        str(base),
        "--limit",
        "12",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )
    head.with_suffix(".txt").write_text(done.stdout + done.stderr)
    screen, _, changes = done.stdout.partition("changed since")
    missing = [words for words in (*case.says, "from ") if words not in screen]
    missing += [] if "gelu" in changes else ["gelu among the changes"]
    print(
        f"{case.name:18} {'all there' if not missing and not done.returncode else missing or done.stderr}"
    )
    return not missing and not done.returncode


if __name__ == "__main__":
    main()
