"""What a recording tells about fusion: fused kernels by name, elementwise ones right after one another, and CANN's own file.

CANN's graph engine writes about its fusion passes when it compiles a graph (``fusion_result.json``):
{"session_and_graph_id_0_0": {"graph_fusion": {PASS: {"effect_times": "1", "match_times": "1"}}, "ub_fusion": {...}}}, or a
list of such; counts are strings (fusion_statistic_writer.cc of the graph engine; no recorded sample was found).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perfgate.measuring.checklist.steps.s06_fusion.patterns import FEWEST_IN_CHAIN
from perfgate.trace.recording import Timeline
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
FUSION_RESULT = "fusion_result.json"
# The file is small: a few lines a pass. What is larger is something else.
_MOST_BYTES = 16 << 20


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
    """Of one device, over all its spans: fused kernels, and nanoseconds in sequences and in all kernels.

    ``heaviest`` is the sequence with the most time.
    """

    fused: int
    sequences: int
    sequences_ns: int
    total_ns: int
    heaviest: tuple[str, ...]


def is_fused(name: str) -> bool:
    """Whether a kernel or operator does the work of several operators, by its name."""
    return _FUSED.search(name) is not None


def is_elementwise(name: str) -> bool:
    """Whether a kernel computes element by element, by its type or name."""
    if _GPU_ELEMENTWISE.search(name):
        return _NO_COMPUTING.search(name) is None
    return _ASCEND_ELEMENTWISE.fullmatch(name) is not None


def kernel_fusion(summary: DeviceSummary) -> KernelFusion | None:
    """What the kernels of a device tell, None where none were recorded."""
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
        for kernel in timeline.kernels:
            if not kernel.is_collective:
                name, start = kernel.type or kernel.name, kernel.start_ns or 0
                shapes = kernel.input_shapes, kernel.output_shapes
                yield _Run(name, kernel.stream, start, kernel.duration_ns, *shapes)
        return
    events = timeline.events.of_kind("compute")
    columns = (events.group, events.track, events.start, events.duration)
    for group, track, start, duration in zip(*(column.tolist() for column in columns)):
        yield _Run(events.names[group], track, start, duration, (), ())


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
    """Whether a kernel may take another's result: on its stream, and of its shape where shapes are known."""
    if first.stream != second.stream:
        return False
    return not first.outputs or not second.inputs or bool(set(first.outputs) & set(second.inputs))


class PassCounts(NamedTuple):
    """How often each pass matched and took effect, over all graphs."""

    matched: Counter[str]
    took_effect: Counter[str]


def read_fusion_result(*folders: Path, since: float = 0.0) -> PassCounts | None:
    """The counts of the first folder that has a readable file with passes in it, None where none has.

    A file that was last written before ``since`` tells of another process.
    """
    for folder in folders:
        file = folder / FUSION_RESULT
        try:
            about = file.stat()
            if not file.is_file() or about.st_size > _MOST_BYTES or about.st_mtime < since:
                continue
            passes = list(_passes(json.loads(file.read_text())))
        except (OSError, ValueError, RecursionError):  # a broken file tells nothing
            continue
        if passes:
            counts = PassCounts(Counter(), Counter())
            for name, fields in passes:
                counts.matched[name] += _number(fields.get("match_times"))
                counts.took_effect[name] += _number(fields.get("effect_times"))
            return counts
    return None


def _passes(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and counts of every pass, however deep it lies."""
    if isinstance(document, list):
        for member in document:
            yield from _passes(member)
    elif isinstance(document, dict):
        for name, member in document.items():
            if isinstance(member, dict) and "effect_times" in member:
                yield name, member
            else:
                yield from _passes(member)


def _number(text: Any) -> int:
    try:
        return max(int(text), 0)
    except (TypeError, ValueError):
        return 0
