"""The pieces in which kernels load blocked data: the cache of a paged attention, the weights of a quantized product."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import TypeVar

from perfgate.trace.model.kernel_table import Alike, KernelTable
from perfgate.trace.model.recording import Kernel

# Of ATB (PagedAttentionMaskNdKernel) and of aclnn, which is paged only with a block table.
_ATB = re.compile(r"Paged\w*Attention\w*")
_ACLNN = re.compile(r"(FusedInferAttentionScore|IncreFlashAttention)(V\d)?")
_WEIGHT_QUANTIZED = re.compile(r"WeightQuantBatchMat[Mm]ul(V\d)?")
_GROUPED = re.compile(r"GroupedMat[Mm]ul(V\d)?")
_KEYS = 1
# The position of a block's tokens in the shape of the keys. ATB: [num_blocks, block_size, heads, size], in NZ [num_blocks,
# heads * size / 16, block_size, 16]; aclnn: (blocknum, blocksize, H), (blocknum, KV_N, blocksize, D), (blocknum, KV_N, D /
# 16, blocksize, 16) (Huawei's API references of PagedAttention and npu_fused_infer_attention_score).
_ATB_TOKENS, _ATB_TOKENS_NZ, _ACLNN_TOKENS = 1, 2, {3: 1, 4: 2, 5: 3}
# antiquant_scale among the inputs of npu_weight_quant_batchmatmul and npu_grouped_matmul (torch_npu's API reference; the
# latter's as in sample msprof-910B-20cores-2608).
_SCALES, _SCALES_OF_GROUPS = 2, 5
_Member = TypeVar("_Member")
_BYTES = {"FLOAT16": 2, "BF16": 2, "BFLOAT16": 2, "FLOAT": 4, "INT8": 1}


@dataclass(frozen=True)
class LoadedPieces:
    """The pieces that one operator loads: ``size`` is the number of elements of one in its heaviest kernels."""

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
    """The inner size divided by the number of groups with a scale; None for one scale per column."""
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
        # The size that differs from the output's: transposed weights have transposed scales.
        different = [size for size in scales if size != result[-1]]
        if len(scales) == 2 and len(different) == 1:
            groups = different[0]
    return ceil(first[-1] / groups) if groups > 1 else None


def _at(members: tuple[_Member, ...], position: int) -> _Member | None:
    return members[position] if position < len(members) else None
