"""What the kernels of a recording tell about fusion: fused ones by name, elementwise ones that run right after one another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perfgate.measuring.checklist.steps._fusion_patterns import FEWEST_IN_CHAIN
from perfgate.trace.recording import Kernel, Timeline
from perfgate.trace.summary import DeviceSummary

# Kernels that do the work of several operators: of CANN (FlashAttentionScore, FusedInferAttentionScore, AddRmsNorm, SwiGlu:
# samples msinsight-gpt3-cann7-2309 and msinsight-910B-qwen3, CANN operator list), of inductor (triton_poi_fused_…,
# cpp_fused_…), of attention libraries, and oneDNN's with what follows them (mkldnn::_linear_pointwise). cuDNN's
# winograd_nonfused is none.
_FUSED = re.compile(
    r"(?<!non)fus(ed|ion)|flash|fmha|(Prompt|Incre|Infer)\w*Attention|AddRmsNorm|AddLayerNorm|RmsNorm|SwiGlu|GeGlu"
    r"|RotaryMul|RotaryPositionEmbedding|GroupedMatmul|MatmulAllReduce|autofuse|triton_(?!.*copy)"
    r"|mkldnn::_\w+_pointwise|multi_tensor_apply|^Foreach",
    re.IGNORECASE,
)
# Elementwise kernels by type on Ascend (Mul, RealDiv, ReluGrad), by template on a GPU; filling and copying are no computing.
_ASCEND_ELEMENTWISE = re.compile(
    r"(Add|Sub|Mul|Div|RealDiv|Pow|Axpy|Maximum|Minimum)(s|V2)?|(Sqrt|Rsqrt|Exp|Log|Neg|Abs|Square|Reciprocal|Erf|Sin|Cos"
    r"|Relu|Relu6|LeakyRelu|PRelu|Elu|Gelu|FastGelu|Silu|Swish|Sigmoid|Tanh|HardSwish|HardSigmoid|Cast|Select|MaskedFill"
    r"|ClipByValue|LogicalAnd|LogicalOr|LogicalNot|Equal|NotEqual|Greater|GreaterEqual|Less|LessEqual)(Grad)?(V2)?"
)
_GPU_ELEMENTWISE = re.compile(r"elementwise_kernel")
_NO_COMPUTING = re.compile(r"FillFunctor|copy", re.IGNORECASE)


class _Run(NamedTuple):
    """One kernel that ran, on its stream."""

    name: str
    stream: object
    start: int
    duration: int
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class KernelFusion:
    """What was found on one device, over all its spans: fused kernels, and nanoseconds in sequences and in all kernels.

    ``heaviest`` is the sequence with the most time.
    """

    fused: int
    sequences: int
    sequences_ns: int
    total_ns: int
    heaviest: tuple[str, ...]


def is_fused(name: str) -> bool:
    """Return whether a kernel or operator does the work of several operators, by its name."""
    return _FUSED.search(name) is not None


def is_elementwise(name: str) -> bool:
    """Return whether a kernel computes element by element, by its type or name."""
    if _GPU_ELEMENTWISE.search(name):
        return _NO_COMPUTING.search(name) is None
    return _ASCEND_ELEMENTWISE.fullmatch(name) is not None


def kernel_fusion(summary: DeviceSummary) -> KernelFusion | None:
    """Return what the kernels of a device tell, None where none were recorded."""
    runs = sorted(_runs(summary.timeline), key=lambda run: (str(run.stream), run.start))
    if not runs:
        return None
    sequences = list(_sequences(runs))
    lengths = [sum(run.duration for run in sequence) for sequence in sequences]
    heaviest = sequences[int(np.argmax(lengths))] if sequences else []
    return KernelFusion(
        fused=sum(is_fused(run.name) for run in runs),
        sequences=len(sequences),
        sequences_ns=sum(lengths),
        total_ns=sum(run.duration for run in runs),
        heaviest=tuple(run.name for run in heaviest),
    )


def _runs(timeline: Timeline) -> Iterator[_Run]:
    """Yield the kernels of the profiler's table, else those of the timeline; collectives are none."""
    if timeline.kernels is not None:
        yield from (_tabled(kernel) for kernel in timeline.kernels if not kernel.is_collective)
        return
    events = timeline.events.of_kind("compute")
    columns = (events.group, events.track, events.start, events.duration)
    for group, track, start, duration in zip(*(column.tolist() for column in columns)):
        yield _Run(events.names[group], track, start, duration, (), ())


def _tabled(kernel: Kernel) -> _Run:
    return _Run(
        name=kernel.type or kernel.name,
        stream=kernel.stream,
        start=kernel.start_ns or 0,
        duration=kernel.duration_ns,
        inputs=kernel.input_shapes,
        outputs=kernel.output_shapes,
    )


def _sequences(runs: Sequence[_Run]) -> Iterator[list[_Run]]:
    """Yield the runs of elementwise kernels on one stream that may hand on their results, at least three long."""
    current: list[_Run] = []
    for run in runs:
        if current and not (is_elementwise(run.name) and _may_follow(current[-1], run)):
            if len(current) >= FEWEST_IN_CHAIN:
                yield current
            current = []
        if is_elementwise(run.name):
            current.append(run)
    if len(current) >= FEWEST_IN_CHAIN:
        yield current


def _may_follow(first: _Run, second: _Run) -> bool:
    """Return whether a kernel may take another's result: on its stream, and of its shape where shapes are known."""
    if first.stream != second.stream:
        return False
    return not first.outputs or not second.inputs or bool(set(first.outputs) & set(second.inputs))
