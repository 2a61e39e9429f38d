"""How well the kernels of a recording use a device, per operator.

The cores and the pipes; the share of the device's peak (MFU) that products and
convolutions reach; and the pieces in which kernels load blocked data: the cache of a
paged attention, the weights of a quantized product.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from perfgate.document.message import Message
from perfgate.measuring.checklist.recorded import setting_number
from perfgate.measuring.checklist.step import StepOutcome
from perfgate.trace.model.flops import (
    ARITHMETICS,
    CONVOLUTION,
    PRODUCT,
    Arithmetic,
    arithmetic,
    flops,
)
from perfgate.trace.model.kernel_table import Alike, KernelTable
from perfgate.trace.model.recording import Kernel

Unit = Literal["cube", "vector"]
Bound = Literal["compute", "memory", "neither"]
# The number of cores of each unit of a device, as far as it is known.
Cores = Mapping[Unit, int]

# Values of the column Accelerator Core, by the unit that runs a kernel's blocks.
# AI_CPU, DSA_SQE (random numbers) and collectives run on neither.
_UNITS: Mapping[str, Unit] = {
    "AI_CORE": "cube",
    "MIX_AIC": "cube",
    "AI_VECTOR_CORE": "vector",
    "MIX_AIV": "vector",
}
# Columns of AiCMetrics.PipeUtilization, shares of all cycles: aic_mac_ratio on a cube
# core, aiv_vec_ratio on a vector core, without a prefix on chips with only one kind
# (310P, 910A). mte2 loads, mte3 and fixpipe store.
_PREFIXES = ("aic_", "aiv_", "")
_COMPUTING = ("mac_ratio", "vec_ratio")
_MOVING = ("mte2_ratio", "mte3_ratio", "fixpipe_ratio")
_PIPE_COLUMNS = tuple(
    prefix + pipe
    for pipe, prefix in itertools.product((*_COMPUTING, *_MOVING), _PREFIXES)
)
_UTILIZATION, _CYCLES = "cube_utilization(%)", "aic_total_cycles"
# 20 and 40, 24 and 48 on the chips with a column cube_utilization in their tables
# (samples, 910B).
_VECTOR_CORES_A_CUBE_CORE = 2


class CoreUse(NamedTuple):
    """All kernels of one type on one unit; shares are weighted by the time of the
    kernels.

    ``occupancy`` is the share of the unit's cores that a kernel's blocks fill.
    ``attained`` is the busiest pipe's share of all cycles; ``bound`` is the kind of
    that pipe, or neither if no pipe is busy for the attainable share of the cycles.
    None was not collected.
    """

    op: str
    unit: Unit
    time_share: float
    occupancy: float | None
    attained: float | None
    bound: Bound | None


def known_cores(
    settings: Mapping[str, str], kernels: Sequence[Kernel], frequency: float | None
) -> Cores:
    """The cores of each unit in a recording's settings or a device's properties, else
    those that its counters imply.

    The number of blocks of a kernel does not imply it: a kernel may use a single core.
    ``frequency`` of the cores is in hertz, None if unknown.
    """
    cube = setting_number(settings, "aic_cores", "cube cores")
    vector = setting_number(settings, "aiv_cores", "vector cores")
    clock = cube_clock(KernelTable.of(kernels))
    if cube is None and vector is None and frequency and clock is not None:
        # On the recorded samples of 910B, every kernel's numbers give the same 20 or
        # 24.
        cube = round(clock / frequency)
        vector = _VECTOR_CORES_A_CUBE_CORE * cube
    cores: dict[Unit, int] = {}
    if cube:
        cores["cube"] = cube
    if vector:
        cores["vector"] = vector
    return cores


def cube_clock(kernels: KernelTable) -> float | None:
    """Cycles of all cube cores in a second: msprof's cube_utilization is cycles /
    (frequency * cores * duration).
    """
    counters = kernels.counters.columns(_UTILIZATION, _CYCLES)
    if len(counters) < len((_UTILIZATION, _CYCLES)):
        return None
    percent, cycles = counters[_UTILIZATION], counters[_CYCLES]
    is_counted = (percent > 0) & (cycles > 0) & (kernels.duration > 0)
    clocks = cycles[is_counted] / (
        percent[is_counted] / 100 * kernels.duration[is_counted] / 1e9
    )
    if clocks.size:
        return float(np.median(clocks))
    return None


def core_uses(
    kernels: Sequence[Kernel], cores: Cores, *, attainable: float
) -> list[CoreUse]:
    """The types of kernels that run on cores, most time first; ``attainable`` is when a
    pipe counts as busy.
    """
    table = KernelTable.of(kernels)
    total = 0
    by_type: dict[tuple[str, Unit], list[int]] = {}
    for number, (kernel, _, total_ns) in enumerate(table.alike()):
        unit = _UNITS.get((kernel.core or "").upper())
        if unit is not None:
            by_type.setdefault((kernel.type or kernel.name, unit), []).append(number)
        if not kernel.is_collective:
            total += total_ns
    uses = []
    for (op, unit), numbers in by_type.items():
        rows = table.select(np.isin(table.alike_number, numbers))
        attained, bound = _busiest_pipe(rows, attainable)
        share = int(rows.duration.sum()) / (total or 1)
        uses.append(
            CoreUse(op, unit, share, _occupancy(rows, cores.get(unit)), attained, bound)
        )
    return sorted(uses, key=lambda use: (-use.time_share, use.op))


def _occupancy(rows: KernelTable, cores: int | None) -> float | None:
    blocks = rows.numbers["blocks"]
    has_blocks = (blocks > 0) & (rows.duration > 0)
    if not cores or not has_blocks.any():
        return None
    return float(
        np.average(
            np.minimum(blocks[has_blocks], cores) / cores,
            weights=rows.duration[has_blocks],
        )
    )


def _busiest_pipe(
    rows: KernelTable, attainable: float
) -> tuple[float | None, Bound | None]:
    attained: float | None = None
    bound: Bound | None = None
    columns = rows.counters.columns(*_PIPE_COLUMNS)
    for name in _PIPE_COLUMNS:  # computing pipes first: they win a tie
        if name not in columns:
            continue
        is_timed = ~np.isnan(columns[name]) & (rows.duration > 0)
        if not is_timed.any():
            continue
        share = float(
            np.average(columns[name][is_timed], weights=rows.duration[is_timed])
        )
        if attained is None or share > attained:
            attained = share
            bound = "compute" if name.endswith(_COMPUTING) else "memory"
    if attained is not None and attained < attainable:
        bound = "neither"
    return attained, bound


# Operations of one cube core in a cycle: a block of 16 x 16 x 16 is multiplied and
# added, in eight bits one of 16 x 32 x 16 (msprof-analyze 26.2,
# operator_mfu/chip_peak_flops.py). It names none for 32 bits.
_A_CYCLE: Mapping[Arithmetic, int] = {
    "float16": 2 * 16 * 16 * 16,
    "int8": 2 * 16 * 32 * 16,
}


@dataclass
class ProductUse:
    """All kernels of one type in one arithmetic: their time, and the time and FLOPs of
    kernels with known work.
    """

    op: str
    arithmetic: Arithmetic | None
    total_ns: int = 0
    known_ns: int = 0
    flops: int = 0
    known: int = 0

    def mfu(self, peaks: Mapping[Arithmetic, float]) -> float | Message:
        """The share of the peak, or why it is not known."""
        if self.arithmetic is None or not self.known_ns:
            return Message("operators.flops-unknown")
        if self.arithmetic not in peaks:
            return Message("operators.peak-unknown", {"arithmetic": self.arithmetic})
        return self.flops / (self.known_ns / 1e9) / peaks[self.arithmetic]


def product_uses(table: KernelTable) -> list[ProductUse]:
    """The products and convolutions of a table, most time first."""
    uses: dict[tuple[str, Arithmetic | None], ProductUse] = {}
    for kernel, number, total_ns in table.of_types(PRODUCT, CONVOLUTION).alike():
        key = kernel.type or kernel.name, arithmetic(kernel)
        use = uses.setdefault(key, ProductUse(*key))
        use.total_ns += total_ns
        work = flops(kernel)
        if work is not None:
            use.known_ns += total_ns
            use.flops += work * number
            use.known += number
    return sorted(uses.values(), key=lambda use: (-use.total_ns, use.op))


def known_peaks(cycles: float | None, outcome: StepOutcome) -> dict[Arithmetic, float]:
    """FLOP/s of the device: the project's own setting, else the peak of all cube cores,
    which make ``cycles`` a second.
    """
    peaks: dict[Arithmetic, float] = {}
    for kind in ARITHMETICS:
        own = outcome.limit(f"tiling.peak.{kind}")
        if own > 0:
            peaks[kind] = own
        elif cycles and kind in _A_CYCLE:
            peaks[kind] = cycles * _A_CYCLE[kind]
    return peaks


# Of ATB (PagedAttentionMaskNdKernel) and of aclnn, which is paged only with a block
# table.
_ATB = re.compile(r"Paged\w*Attention\w*")
_ACLNN = re.compile(r"(FusedInferAttentionScore|IncreFlashAttention)(V\d)?")
_WEIGHT_QUANTIZED = re.compile(r"WeightQuantBatchMat[Mm]ul(V\d)?")
_GROUPED = re.compile(r"GroupedMat[Mm]ul(V\d)?")
_KEYS = 1
# The position of a block's tokens in the shape of the keys. ATB: [num_blocks,
# block_size, heads, size], in NZ [num_blocks, heads * size / 16, block_size, 16];
# aclnn: (blocknum, blocksize, H), (blocknum, KV_N, blocksize, D), (blocknum, KV_N, D /
# 16, blocksize, 16) (Huawei's API references of PagedAttention and
# npu_fused_infer_attention_score).
_ATB_TOKENS = 1
_ATB_TOKENS_NZ = 2
_ACLNN_TOKENS = {3: 1, 4: 2, 5: 3}
# antiquant_scale among the inputs of npu_weight_quant_batchmatmul and
# npu_grouped_matmul (torch_npu's API reference; the latter's as in sample
# msprof-910B-20cores-2608).
_SCALES, _SCALES_OF_GROUPS = 2, 5
_Member = TypeVar("_Member")
_BYTES = {"FLOAT16": 2, "BF16": 2, "BFLOAT16": 2, "FLOAT": 4, "INT8": 1}


class LoadedPieces(NamedTuple):
    """The pieces that one operator loads: ``size`` is the number of elements of one in
    its heaviest kernels.
    """

    op: str
    total_ns: int
    size: int
    kernel: Kernel

    @property
    def block_bytes(self) -> int | None:
        """The bytes of the keys in one block of a paged cache, all heads together."""
        width = _BYTES.get(_at(self.kernel.inputs.dtypes, _KEYS) or "")
        return width and width * prod(self.kernel.inputs.shapes[_KEYS][1:])

    @property
    def blocks(self) -> int | None:
        """How many blocks a run may load: the entries of its block table."""
        table = _block_table(self.kernel)
        return None if table is None else prod(table)


def cache_blocks(table: KernelTable) -> list[LoadedPieces]:
    """The paged attentions with the tokens of a block of their cache, most time first."""
    return _by_operator(table, _tokens_of_block, _ATB, _ACLNN)


def quantized_groups(table: KernelTable) -> list[LoadedPieces]:
    """Products with a scale for every group of weights in a column, most time first."""
    return _by_operator(table, _values_of_group, _WEIGHT_QUANTIZED, _GROUPED)


def _by_operator(
    table: KernelTable,
    size_of: Callable[[Kernel], int | None],
    *patterns: re.Pattern[str],
) -> list[LoadedPieces]:
    times: Counter[str] = Counter()
    heaviest: dict[str, tuple[int, Alike]] = {}
    for alike in table.of_types(*patterns).alike(named=False):
        size = size_of(alike.kernel)
        if size is None:
            continue
        op = alike.kernel.type or alike.kernel.name
        times[op] += alike.total_ns
        if op not in heaviest or alike.total_ns > heaviest[op][1].total_ns:
            heaviest[op] = size, alike
    pieces = [
        LoadedPieces(op, times[op], size, alike.kernel)
        for op, (size, alike) in heaviest.items()
    ]
    return sorted(pieces, key=lambda row: (-row.total_ns, row.op))


def _tokens_of_block(kernel: Kernel) -> int | None:
    keys = _at(kernel.inputs.shapes, _KEYS)
    if keys is None or _block_table(kernel) is None:
        return None
    if not _ATB.fullmatch(kernel.type or kernel.name):
        return keys[_ACLNN_TOKENS[len(keys)]] if len(keys) in _ACLNN_TOKENS else None
    is_blocked = (_at(kernel.inputs.formats, _KEYS) or "").startswith("FRACTAL")
    return _at(keys, _ATB_TOKENS_NZ if is_blocked else _ATB_TOKENS)


def _block_table(kernel: Kernel) -> tuple[int, ...] | None:
    """The shape of the only matrix of 32 bit numbers behind keys and values."""
    tensors = zip(kernel.inputs.shapes[_KEYS + 2 :], kernel.inputs.dtypes[_KEYS + 2 :])
    return next(
        (shape for shape, dtype in tensors if dtype == "INT32" and len(shape) == 2),
        None,
    )


def _values_of_group(kernel: Kernel) -> int | None:
    """The inner size divided by the number of groups with a scale; None for one scale
    per column.
    """
    first, result = _at(kernel.inputs.shapes, 0), _at(kernel.outputs.shapes, 0)
    if not first or not result:
        return None
    groups = 1
    if _GROUPED.fullmatch(kernel.type or kernel.name):
        scales = _at(kernel.inputs.shapes, _SCALES_OF_GROUPS) or ()
        if len(scales) == 3:
            groups = scales[1]
    else:
        scales = _at(kernel.inputs.shapes, _SCALES) or ()
        # The size that differs from the output's: transposed weights have transposed
        # scales.
        different = [size for size in scales if size != result[-1]]
        if len(scales) == 2 and len(different) == 1:
            groups = different[0]
    return ceil(first[-1] / groups) if groups > 1 else None


def _at(members: tuple[_Member, ...], position: int) -> _Member | None:
    return members[position] if position < len(members) else None
