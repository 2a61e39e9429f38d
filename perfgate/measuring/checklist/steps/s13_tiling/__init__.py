"""Step 13: whether kernels use all cores, and whether a model's sizes are multiples of the hardware's blocks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, together
from perfgate.locale import Activity
from perfgate.measuring.checklist.agreement import agreement
from perfgate.measuring.checklist.experiment import ExperimentError, FailedExperiment, experiment
from perfgate.measuring.checklist.limits import MaybeEvidence, limit
from perfgate.measuring.checklist.recorded import or_unavailable, profiled
from perfgate.measuring.checklist.shape_space import measure_shape_space
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, not_applicable
from perfgate.measuring.checklist.steps.s13_tiling.blocks import cache_blocks, quantized_groups
from perfgate.measuring.checklist.steps.s13_tiling.mfu import known_peaks, product_uses
from perfgate.measuring.checklist.steps.s13_tiling.products import ProductReplay, ReplayedProduct, record_products
from perfgate.measuring.checklist.traces import steady_summary
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.timing.versus import Versus, compare
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import FloatColumn
from perfgate.trace.model.flops import Arithmetic
from perfgate.trace.model.kernel_table import Alike, KernelTable
from perfgate.trace.model.recording import Kernel

_TOP_OPS = 10
_MEGAHERTZ = 1e6
# Gains of less than a hundredth of the call are not reported.
_NOTICEABLE = 0.01
# Padding with zeros changes nothing but the order of summation; bfloat16 has eight bits of mantissa.
_TOLERANCE = 0.05
_NO_BLOCKS = Message("operators.no-core-counts-recorded")
Unit = Literal["cube", "vector"]
Bound = Literal["compute", "memory", "neither"]
# The number of cores of each unit of a device, without unknown ones.
Cores = Mapping[Unit, int]

# Values of the column Accelerator Core, by the unit that runs a kernel's blocks. AI_CPU, DSA_SQE (random numbers) and
# collectives run on neither.
_UNITS: Mapping[str, Unit] = {"AI_CORE": "cube", "MIX_AIC": "cube", "AI_VECTOR_CORE": "vector", "MIX_AIV": "vector"}
# Columns of AiCMetrics.PipeUtilization, shares of all cycles: aic_mac_ratio on a cube core, aiv_vec_ratio on a vector core,
# without a prefix on chips with only one kind (310P, 910A). mte2 loads, mte3 and fixpipe store.
_PREFIXES = ("aic_", "aiv_", "")
_COMPUTING = ("mac_ratio", "vec_ratio")
_MOVING = ("mte2_ratio", "mte3_ratio", "fixpipe_ratio")
_PIPE_COLUMNS = tuple(prefix + pipe for prefix, pipe in itertools.product(_PREFIXES, (*_COMPUTING, *_MOVING)))
_UTILIZATION, _CYCLES = "cube_utilization(%)", "aic_total_cycles"

# 20 and 40, 24 and 48 on the chips with a column cube_utilization in their tables (samples, 910B).
_VECTOR_CORES_A_CUBE_CORE = 2


class TilingStep:
    """The use of cores from a trace, if its profiler records it; and the model's own products, run again padded."""

    card = card(13)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; not applicable without both products and recorded cores."""
        shape = context.workload.shapes[0]
        with quiet():
            context.progress(Activity("sizes of matrix products with inputs of shape {shape}", shape=shape))
            outcome = context.outcome()
            of_shape = outcome.under(shape=shape)
            _try_sizes(of_shape, context, shape)
            reasons = [] if outcome.values else [Message("operators.no-sizes")]
            if context.shows_kernels:
                context.progress(Activity("use of cores with inputs of shape {shape}", shape=shape))
                summary, properties = steady_summary(context, shape), context.device.properties()
                reasons += _judge_cores(of_shape, summary, properties)
            if context.shape_space:
                measure_shape_space(context, outcome.under(shape=shape))
        return outcome if outcome.values else not_applicable(together(reasons))

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the use of cores on every rank; unavailable if the recording does not have it."""
        outcome, reasons = context.outcome(), list[Message]()
        for summary in context.summaries:
            reasons += _judge_cores(outcome.under(**profiled(summary)), summary, context.recording.settings)
        if not reasons and not outcome.values:
            reasons = [_NO_BLOCKS]
        return or_unavailable(outcome, *reasons)


STEP = TilingStep()


def _judge_cores(outcome: StepOutcome, summary: DeviceSummary, settings: Mapping[str, str]) -> list[Message]:
    """Judge the heaviest operators in the table of kernels; return reasons for missing values."""
    kernels = summary.kernels()
    if not kernels:
        return [Message("operators.no-core-numbers")]
    reasons, limits = [], outcome.limits
    highest = summary.timeline.core_frequency[1] if summary.timeline.core_frequency else None
    cores = known_cores(settings, kernels, highest)
    uses = core_uses(kernels, cores, attainable=limit("tiling.attained.warning", limits))[:_TOP_OPS]
    for use in uses:
        _judge_use(outcome, use)
    if not cores and (kernels.numbers["blocks"] > 0).any():
        outcome.missing("tiling.occupancy", Message("operators.core-count-unknown"))
    elif all(use.occupancy is None for use in uses):
        reasons.append(_NO_BLOCKS)
    if outcome.values and all(use.attained is None for use in uses):
        outcome.missing("tiling.attained", Message("operators.no-pipe-shares"))
    rated = _number(settings, "aic_frequency_mhz")
    clock = rated * _MEGAHERTZ if rated else highest
    cycles_per_second = cores["cube"] * clock if "cube" in cores and clock else None
    peaks = known_peaks(kernels, cycles_per_second, limits)
    _judge_products(outcome, summary.kernel_table, peaks, uses)
    _judge_pieces(outcome, summary.kernel_table)
    return reasons


def _judge_use(outcome: StepOutcome, use: CoreUse) -> None:
    of_op = outcome.under(op=use.op, unit=use.unit)
    evidence: MaybeEvidence = {"op": use.op, "unit": use.unit, "time_share": use.time_share}
    heavy = use.time_share >= limit("tiling.heavy", outcome.limits)
    if use.attained is not None and use.bound is not None:
        of_op.under(bound=use.bound).number("tiling.attained", use.attained)
        if heavy:
            of_op.below("tiling.attained", use.attained, evidence)
    if use.occupancy is not None:
        of_op.number("tiling.occupancy", use.occupancy)
        if heavy:
            of_op.below("tiling.occupancy", use.occupancy, evidence)


def _judge_products(
    outcome: StepOutcome, table: KernelTable, peaks: Mapping[Arithmetic, float], uses: Sequence[CoreUse]
) -> None:
    """The share of the peak that products and convolutions reach; it can be too low unless memory bounds them."""
    heavy, products = limit("tiling.heavy", outcome.limits), product_uses(table)[:_TOP_OPS]
    bounds = {use.op: use.bound for use in uses}
    total_ns = int(table.duration.sum()) or 1
    for product in products:
        value, share = product.value(peaks, outcome.labels), product.total_ns / total_ns
        if value.value is not None or share >= heavy:
            outcome.values.append(value)
        if value.value is not None and share >= heavy and bounds.get(product.op) in ("compute", "neither"):
            evidence: MaybeEvidence = {"op": product.op, "mfu": value.value, "time_share": share}
            outcome.below("tiling.mfu", value.value, evidence)
    # Attention, grouped products and others on the cube cores.
    others = {use.op for use in uses if use.unit == "cube" and use.time_share >= heavy}
    for op in sorted(others.difference(product.op for product in products)):
        outcome.under(op=op).missing("tiling.mfu", Message("operators.flops-unknown"))


def _judge_pieces(outcome: StepOutcome, table: KernelTable) -> None:
    """Judge the size of the pieces that attention on a paged cache and products of quantized weights load."""
    total_ns = int(table.duration.sum()) or 1
    for metric, rows in (("tiling.kv_block", cache_blocks(table)), ("tiling.quant_group", quantized_groups(table))):
        for row in rows[:_TOP_OPS]:
            share = row.total_ns / total_ns
            outcome.under(op=row.op).number(metric, row.size)
            if share < limit("tiling.heavy", outcome.limits):
                continue
            evidence: MaybeEvidence = {"op": row.op, "size": row.size, "time_share": share}
            if metric == "tiling.kv_block":
                evidence = {**evidence, "block [B]": row.block_bytes, "blocks": row.blocks}
            outcome.below(metric, row.size, evidence)


def _try_sizes(outcome: StepOutcome, context: StepContext, shape: str) -> None:
    """Run the largest products of unaligned sizes again, unchanged and padded."""
    most = 3 if context.quick else 8
    inputs = context.workload.pool(shape)[0]
    state = context.warm_up(shape, quick=0.3, full=2.0)
    products = record_products(lambda: context.workload.invoke(inputs), root=context.root)
    context.device.synchronize()
    if not products:
        return
    multiple = max(1, round(limit("tiling.multiple", context.limits)))
    unfit = [(product, padding) for product in products if (padding := product.padding(multiple))]
    # The share of operations in products that padding would not change.
    total = sum(product.flops * product.count for product in products)
    changed = sum(product.flops * product.count for product, _ in unfit)
    outcome.number("tiling.aligned_share", (total - changed) / total if total else 1.0)
    for product, padding in unfit[:most]:
        _try_padding(outcome, context, product, padding, call_ns=state.call_ns)
    if not unfit:
        outcome.missing("tiling.padding_gain", Message("operators.already-aligned"))


def _try_padding(
    outcome: StepOutcome,
    context: StepContext,
    product: ReplayedProduct,
    padding: Mapping[str, int],
    *,
    call_ns: float,
) -> None:
    sizes = {"op": product.op, "sizes": product.shapes({}), "padded": product.shapes(padding)}
    of_product = outcome.under(**sizes)
    padded = partial(_compare, context, product, padding)
    versus = experiment(context, padded, failing="operators.padding-fails")
    if isinstance(versus, FailedExperiment):
        reason = Message("operators.no-memory-for-operands") if versus.out_of_memory else versus.reason
        of_product.missing("tiling.padding_gain", reason)
        return
    of_product.speedup("tiling.padding_gain", versus)
    saved_ns = (versus.first_ns - versus.second_ns) * product.count
    if saved_ns > _NOTICEABLE * call_ns:
        numbers: MaybeEvidence = {"count": product.count, "saves": saved_ns / 1e9, "gain": versus.speedup}
        of_product.above("tiling.padding_gain", versus.low, {**sizes, **numbers, "line": product.line})


def _compare(context: StepContext, product: ReplayedProduct, padding: Mapping[str, int]) -> Versus:
    """The speedup of the padded product. Raises ExperimentError if its result differs or it takes too long."""
    seconds, longest_ns = (0.5, 50_000_000) if context.quick else (2.0, 500_000_000)
    with context.device.inference_mode():
        replay = ProductReplay(product, padding, context.device.handle())
        plain, padded = replay.outputs()
        if not agreement(plain, padded).within(_TOLERANCE):
            raise ExperimentError(Message("operators.padding-differs"))
        once_ns = timed_call(replay.plain, context.device)
        if once_ns > longest_ns:
            raise ExperimentError(Message("operators.too-long", {"seconds": once_ns / 1e9}))
        return compare(replay.plain, replay.padded, context.device, seconds=seconds, seed=context.seed)


@dataclass(frozen=True)
class CoreUse:
    """All kernels of one type on one unit; shares are weighted by the time of the kernels.

    ``occupancy`` is the share of the unit's cores that a kernel's blocks fill. ``attained`` is the busiest pipe's share of all
    cycles; ``bound`` is the kind of that pipe, or neither if no pipe is busy for the attainable share of the cycles. None was
    not collected.
    """

    op: str
    unit: Unit
    time_share: float
    occupancy: float | None
    attained: float | None
    bound: Bound | None


def known_cores(settings: Mapping[str, str], kernels: Sequence[Kernel], frequency: float | None) -> Cores:
    """The cores of each unit in a recording's settings or a device's properties, else those that its counters imply.

    The number of blocks of a kernel does not imply it: a kernel may use a single core. ``frequency`` is that of the cores
    in hertz, None if unknown.
    """
    cube, vector = _number(settings, "aic_cores", "cube cores"), _number(settings, "aiv_cores", "vector cores")
    if cube is None and vector is None and frequency:
        cube = _implied_cube_cores(kernels, frequency)
        vector = None if cube is None else _VECTOR_CORES_A_CUBE_CORE * cube
    cores: dict[Unit, int | None] = {"cube": cube, "vector": vector}
    return {unit: count for unit, count in cores.items() if count is not None}


def _implied_cube_cores(kernels: Sequence[Kernel], frequency: float) -> int | None:
    """The number of cube cores by msprof's cube_utilization = cycles / (frequency * cores * duration).

    On the recorded samples of 910B, every kernel's numbers give the same 20 or 24.
    """
    table = KernelTable.of(kernels)
    counters = table.counters.columns(_UTILIZATION, _CYCLES)
    if len(counters) < len((_UTILIZATION, _CYCLES)):
        return None
    utilization, cycles = counters[_UTILIZATION], counters[_CYCLES]
    known = (utilization > 0) & (cycles > 0) & (table.duration > 0)
    implied = cycles[known] / (frequency * utilization[known] / 100 * table.duration[known] / 1e9)
    return round(float(np.median(implied))) or None if implied.size else None


def core_uses(kernels: Sequence[Kernel], cores: Cores, *, attainable: float) -> list[CoreUse]:
    """The types of kernels that run on cores, most time first; ``attainable`` is when a pipe counts as busy."""
    table = KernelTable.of(kernels)
    alike = table.alike()
    total = sum(total_ns for kernel, _, total_ns in alike if not kernel.is_collective) or 1
    by_type: dict[tuple[str, Unit], list[int]] = {}
    for number, (kernel, _, _) in enumerate(alike):
        unit = _UNITS.get((kernel.core or "").upper())
        if unit is not None:
            by_type.setdefault((kernel.type or kernel.name, unit), []).append(number)
    columns = table.counters.columns(*_PIPE_COLUMNS)
    pipes = {name: _times_and_busy(table, columns[name], len(alike)) for name in columns}
    uses = []
    for (op, unit), rows in by_type.items():
        shares = {}
        for name, times in pipes.items():
            time, busy = times[:, rows].sum(axis=1).tolist()
            if time:
                shares[name] = busy / time
        uses.append(_use(op, unit, [alike[number] for number in rows], shares, cores.get(unit), total, attainable))
    return sorted(uses, key=lambda use: (-use.time_share, use.op))


def _times_and_busy(table: KernelTable, share: FloatColumn, alike: int) -> FloatColumn:
    """Per group of identical kernels, the nanoseconds with a known share and those in which the pipe was busy."""
    known = ~np.isnan(share)
    busy = table.duration * np.where(known, share, 0.0)
    return np.stack(
        [np.bincount(table.alike_number, times, minlength=alike) for times in (table.duration * known, busy)]
    )


def _use(
    op: str,
    unit: Unit,
    rows: Sequence[Alike],
    shares: Mapping[str, float],
    cores: int | None,
    total: int,
    attainable: float,
) -> CoreUse:
    occupancy = None
    if cores:
        blocks = [(total_ns, kernel.blocks) for kernel, _, total_ns in rows if kernel.blocks]
        occupancy = _weighted([(time, min(count, cores) / cores) for time, count in blocks])
    attained, bound = _busiest_pipe(shares, attainable)
    return CoreUse(
        op=op,
        unit=unit,
        time_share=sum(row.total_ns for row in rows) / total,
        occupancy=occupancy,
        attained=attained,
        bound=bound,
    )


def _busiest_pipe(shares: Mapping[str, float], attainable: float) -> tuple[float | None, Bound | None]:
    attained: float | None = None
    bound: Bound | None = None
    for name, share in sorted(shares.items(), key=lambda entry: not entry[0].endswith(_COMPUTING)):
        if attained is None or share > attained:
            attained = share
            bound = "compute" if name.endswith(_COMPUTING) else "memory"
    if attained is not None and attained < attainable:
        bound = "neither"
    return attained, bound


def _weighted(pairs: Sequence[tuple[int, float]]) -> float | None:
    """The mean of the shares, weighted by time."""
    time = sum(time for time, _ in pairs)
    return sum(time * share for time, share in pairs) / time if time else None


def _number(settings: Mapping[str, str], *names: str) -> int | None:
    # Ranks that differ are written as several numbers.
    text = next((settings[name] for name in names if name in settings), "")
    return int(text) if text.isdecimal() and int(text) else None
