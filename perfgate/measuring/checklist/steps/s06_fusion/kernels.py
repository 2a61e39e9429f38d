"""Signs of fusion in a recording: fused kernels by name, consecutive elementwise
kernels, and CANN's own file.

CANN's graph engine writes about its fusion passes when it compiles a graph
(``fusion_result.json``): {"session_and_graph_id_0_0": {"graph_fusion": {PASS:
{"effect_times": "1", "match_times": "1"}}, "ub_fusion": {...}}}, or a list of such;
counts are strings (fusion_statistic_writer.cc of the graph engine; no recorded sample
was found).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.measuring.checklist.steps.s06_fusion.patterns import FEWEST_IN_CHAIN
from perfgate.stats.arrays import Flags
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import Codes, IntColumn, group_rows
from perfgate.trace.model.events import NO_TEXT, constant
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import Shapes, Timeline

# Kernels that do the work of several operators: of CANN (FlashAttentionScore,
# FusedInferAttentionScore, AddRmsNorm, SwiGlu: samples msinsight-gpt3-cann7-2309 and
# msinsight-910B-qwen3, CANN operator list), of inductor (triton_poi_fused_…,
# cpp_fused_…), of attention libraries, and oneDNN's with fused epilogues
# (mkldnn::_linear_pointwise).
_FUSED = re.compile(
    r"(?<!non)fus(ed|ion)|flash|fmha|(Prompt|Incre|Infer)\w*Attention|AddRmsNorm|AddLayerNorm|RmsNorm|SwiGlu|GeGlu"
    r"|RotaryMul|RotaryPositionEmbedding|GroupedMatmul|MatmulAllReduce|autofuse|triton_(?!.*copy)"
    r"|mkldnn::_\w+_pointwise|multi_tensor_apply|^Foreach",
    re.IGNORECASE,
)
# Elementwise kernels by type on Ascend (Mul, RealDiv, ReluGrad), by template on a GPU;
# filling and copying do not count as computing.
_ASCEND_ELEMENTWISE = re.compile(
    r"(Add|Sub|Mul|Div|RealDiv|Pow|Axpy|Maximum|Minimum)(s|V2)?|(Sqrt|Rsqrt|Exp|Log|Neg|Abs|Square|Reciprocal|Erf|Sin|Cos"
    r"|Relu|Relu6|LeakyRelu|PRelu|Elu|Gelu|FastGelu|Silu|Swish|Sigmoid|Tanh|HardSwish|HardSigmoid|Cast|Select|MaskedFill"
    r"|ClipByValue|LogicalAnd|LogicalOr|LogicalNot|Equal|NotEqual|Greater|GreaterEqual|Less|LessEqual)(Grad)?(V2)?"
)
_GPU_ELEMENTWISE = re.compile(r"elementwise_kernel")
_NO_COMPUTING = re.compile(r"FillFunctor|copy", re.IGNORECASE)
FUSION_RESULT = "fusion_result.json"
# The file is small: a few lines a pass. A larger file is something else.
_MOST_BYTES = 16 << 20


class KernelFusion(NamedTuple):
    """Of one device, over all its spans: fused kernels, and nanoseconds in sequences
    and in all kernels.

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
    """The fusion of a device's kernels, None if none were recorded."""
    runs = _runs(summary.timeline)
    if not runs.order.size:
        return None
    fused = np.array(list(map(is_fused, runs.names)), dtype=bool)[runs.name]
    elementwise = np.array(list(map(is_elementwise, runs.names)), dtype=bool)[runs.name]
    begin, end = _sequences(runs, elementwise[runs.order])
    until = np.concatenate(([0], np.cumsum(runs.duration[runs.order])))
    lengths = until[end] - until[begin]
    heaviest = []
    if lengths.size:
        longest = int(np.argmax(lengths))
        heaviest = runs.name[runs.order[begin[longest] : end[longest]]].tolist()
    return KernelFusion(
        fused=int(fused[runs.order].sum()),
        sequences=int(lengths.size),
        sequences_ns=int(lengths.sum()),
        total_ns=int(until[-1]),
        heaviest=tuple(runs.names[code] for code in heaviest),
    )


class _Runs(NamedTuple):
    """Kernels: columns of one entry each, and the ``order`` of those that compute by
    their stream, then by their start.

    ``name`` indexes ``names``; ``inputs`` and ``outputs`` index ``shapes`` or are
    NO_TEXT.
    """

    order: npt.NDArray[np.intp]
    names: Sequence[str]
    shapes: Sequence[Shapes]
    name: Codes
    stream: Codes
    duration: IntColumn
    inputs: Codes
    outputs: Codes


def _runs(timeline: Timeline) -> _Runs:
    """The kernels of the profiler's table if there is one, else of the timeline,
    without collectives.
    """
    if timeline.kernels is None:
        events = timeline.events
        rows = np.flatnonzero(events.is_kind("compute"))
        start = events.start
        stream = events.track
        shape, shapes = constant("shape", NO_TEXT, len(events)), tuple[Shapes]()
        columns = events.group, stream, events.duration, shape, shape
        names = events.names
    else:
        kernels = KernelTable.of(timeline.kernels)
        rows, start = np.flatnonzero(~kernels.is_collective), kernels.start
        stream = kernels.numbers["stream"]
        names = kernels.texts
        shapes = kernels.shapes
        columns = (
            kernels.group,
            stream,
            kernels.duration,
            kernels.codes["inputs"],
            kernels.codes["outputs"],
        )
    order = rows[np.argsort(start[rows], kind="stable")]
    return _Runs(
        order[np.argsort(stream[order], kind="stable")], names, shapes, *columns
    )


def _sequences(
    runs: _Runs, elementwise: Flags
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The bounds, in the order, of runs of three or more elementwise kernels of one
    stream that may pass on their results.
    """
    stream = runs.stream[runs.order]
    follows = elementwise[1:] & elementwise[:-1] & (stream[1:] == stream[:-1])
    pairs = np.flatnonzero(follows)
    outputs = runs.outputs[runs.order[pairs]]
    inputs = runs.inputs[runs.order[pairs + 1]]
    first, row = group_rows(outputs, inputs)
    # One kernel may take the other's result if their shapes are equal, or unknown.
    may = []
    for output, taker in zip(outputs[first].tolist(), inputs[first].tolist()):
        is_unknown = NO_TEXT in (output, taker)
        may.append(
            is_unknown or not set(runs.shapes[output]).isdisjoint(runs.shapes[taker])
        )
    follows[pairs] = np.array(may, dtype=bool)[row]
    borders = np.concatenate(([0], np.flatnonzero(~follows) + 1, [elementwise.size]))
    long = np.diff(borders) >= FEWEST_IN_CHAIN
    return borders[:-1][long], borders[1:][long]


def read_fusion_result(
    *folders: Path, since: float = 0.0
) -> tuple[Counter[str], Counter[str]] | None:
    """How often each pass matched and took effect, by the first folder with a readable
    file of passes; None without one.

    A file last written before ``since`` belongs to another process.
    """
    for folder in folders:
        file = folder / FUSION_RESULT
        try:
            about = file.stat()
            if (
                not file.is_file()
                or about.st_size > _MOST_BYTES
                or about.st_mtime < since
            ):
                continue
            passes = list(_passes(json.loads(file.read_text())))
        except (OSError, ValueError, RecursionError):  # a broken file is ignored
            continue
        if passes:
            matched, took_effect = Counter[str](), Counter[str]()
            for fusion_pass in passes:
                matched[fusion_pass.name] += fusion_pass.matched
                took_effect[fusion_pass.name] += fusion_pass.took_effect
            return matched, took_effect
    return None


class _FusionPass(NamedTuple):
    name: str
    matched: int
    took_effect: int


def _passes(document: Any) -> Iterator[_FusionPass]:
    """Every pass, however deep it lies."""
    if isinstance(document, list):
        for member in document:
            yield from _passes(member)
    elif isinstance(document, dict):
        for name, member in document.items():
            if isinstance(member, dict) and "effect_times" in member:
                yield _FusionPass(
                    name,
                    _number(member.get("match_times")),
                    _number(member["effect_times"]),
                )
            else:
                yield from _passes(member)


def _number(text: Any) -> int:
    try:
        return max(int(text), 0)
    except (TypeError, ValueError):
        return 0
