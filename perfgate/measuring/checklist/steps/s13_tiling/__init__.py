"""Step 13: whether kernels use all cores, and whether a model's sizes are multiples of
the hardware's blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, together
from perfgate.measuring.checklist.experiment import (
    ExperimentError,
    FailedExperiment,
    agreement,
    experiment,
)
from perfgate.measuring.checklist.recorded import profiled, setting_number
from perfgate.measuring.checklist.shape_space import measure_shape_space
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
)
from perfgate.measuring.checklist.steps.s13_tiling.kernel_use import (
    CoreUse,
    cache_blocks,
    core_uses,
    cube_clock,
    known_cores,
    known_peaks,
    product_uses,
    quantized_groups,
)
from perfgate.measuring.checklist.steps.s13_tiling.products import (
    ProductReplay,
    ReplayedProduct,
    record_products,
)
from perfgate.measuring.checklist.traces import steady_summary
from perfgate.measuring.timing.calls import Versus, compare, timed_call
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.flops import Arithmetic
from perfgate.trace.model.kernel_table import KernelTable

_TOP_OPS = 10
_MEGAHERTZ = 1e6
# Gains of less than a hundredth of the call are not reported.
_NOTICEABLE = 0.01
# Padding with zeros only changes the order of summation; bfloat16 has eight bits of
# mantissa.
_TOLERANCE = 0.05
_NO_BLOCKS = Message("operators.no-core-counts-recorded")


class TilingStep:
    """The use of cores from a trace, if its profiler records it; and the model's own
    products, run again padded.
    """

    card = card(13)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; not applicable without both products and recorded
        cores.
        """
        shape = context.workload.shapes[0]
        with quiet():
            context.doing(
                "sizes of matrix products with inputs of shape {shape}", shape=shape
            )
            outcome = context.outcome()
            of_shape = outcome.under(shape=shape)
            _try_sizes(of_shape, context, shape)
            reasons = [Message("operators.no-sizes")]
            if context.shows_kernels:
                context.doing("use of cores with inputs of shape {shape}", shape=shape)
                reasons += _judge_cores(
                    of_shape,
                    steady_summary(context, shape),
                    context.device.properties(),
                )
            if context.settings.shape_space:
                measure_shape_space(context, of_shape)
        return outcome.or_else(not_applicable(together(reasons)))

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the use of cores on every rank; unavailable if the recording does not
        have it.
        """
        outcome, reasons = context.outcome(), list[Message]()
        for summary in context.summaries:
            reasons += _judge_cores(
                outcome.under(**profiled(summary)), summary, context.recording.settings
            )
        if not reasons and not outcome.values:
            reasons = [_NO_BLOCKS]
        return outcome.or_unavailable(*reasons)


STEP = TilingStep()


def _judge_cores(
    outcome: StepOutcome, summary: DeviceSummary, settings: Mapping[str, str]
) -> list[Message]:
    """Judge the heaviest operators in the table of kernels; return reasons for missing
    values.
    """
    kernels = summary.kernels()
    if not kernels:
        return [Message("operators.no-core-numbers")]
    reasons = []
    frequency = summary.timeline.core_frequency
    highest = frequency[1] if frequency else None
    cores = known_cores(settings, kernels, highest)
    uses = core_uses(
        kernels, cores, attainable=outcome.limit("tiling.attained.warning")
    )[:_TOP_OPS]
    for use in uses:
        _judge_use(outcome, use)
    if not cores and (kernels.numbers["blocks"] > 0).any():
        outcome.missing("tiling.occupancy", Message("operators.core-count-unknown"))
    elif all(use.occupancy is None for use in uses):
        reasons.append(_NO_BLOCKS)
    if outcome.values and all(use.attained is None for use in uses):
        outcome.missing("tiling.attained", Message("operators.no-pipe-shares"))
    clock = highest
    rated = setting_number(settings, "aic_frequency_mhz")
    if rated:
        clock = rated * _MEGAHERTZ
    cycles_per_second = cube_clock(kernels)
    if "cube" in cores and clock:
        cycles_per_second = cores["cube"] * clock
    _judge_products(
        outcome, summary.kernel_table, known_peaks(cycles_per_second, outcome), uses
    )
    _judge_pieces(outcome, summary.kernel_table)
    return reasons


def _judge_use(outcome: StepOutcome, use: CoreUse) -> None:
    of_op = outcome.under(op=use.op, unit=use.unit)
    evidence: MaybeEvidence = {
        "op": use.op,
        "unit": use.unit,
        "time_share": use.time_share,
    }
    heavy = use.time_share >= outcome.limit("tiling.heavy")
    if use.attained is not None and use.bound is not None:
        of_op.under(bound=use.bound).number("tiling.attained", use.attained)
        if heavy:
            of_op.below("tiling.attained", use.attained, evidence)
    if use.occupancy is not None:
        of_op.number("tiling.occupancy", use.occupancy)
        if heavy:
            of_op.below("tiling.occupancy", use.occupancy, evidence)


def _judge_products(
    outcome: StepOutcome,
    table: KernelTable,
    peaks: Mapping[Arithmetic, float],
    uses: Sequence[CoreUse],
) -> None:
    """The share of the peak that products and convolutions reach; it can be too low
    unless memory bounds them.
    """
    heavy = outcome.limit("tiling.heavy")
    products = product_uses(table)[:_TOP_OPS]
    bounds = {use.op: use.bound for use in uses}
    total_ns = int(table.duration.sum()) or 1
    for product in products:
        share, mfu = product.total_ns / total_ns, product.mfu(peaks)
        of_product = outcome.under(op=product.op)
        if product.arithmetic is not None and product.known_ns:
            of_product = of_product.under(arithmetic=product.arithmetic)
        if isinstance(mfu, Message):
            if share >= heavy:
                of_product.missing("tiling.mfu", mfu)
            continue
        of_product.number("tiling.mfu", mfu, count=product.known)
        if share >= heavy and bounds.get(product.op) in ("compute", "neither"):
            outcome.below(
                "tiling.mfu", mfu, {"op": product.op, "mfu": mfu, "time_share": share}
            )
    # Attention, grouped products and others on the cube cores.
    without_flops = {
        use.op for use in uses if use.unit == "cube" and use.time_share >= heavy
    }
    for product in products:
        without_flops.discard(product.op)
    for op in sorted(without_flops):
        outcome.under(op=op).missing("tiling.mfu", Message("operators.flops-unknown"))


def _judge_pieces(outcome: StepOutcome, table: KernelTable) -> None:
    """Judge the size of the pieces that attention on a paged cache and products of
    quantized weights load.
    """
    total_ns = int(table.duration.sum()) or 1
    for metric, rows in (
        ("tiling.kv_block", cache_blocks(table)),
        ("tiling.quant_group", quantized_groups(table)),
    ):
        for pieces in rows[:_TOP_OPS]:
            outcome.under(op=pieces.op).number(metric, pieces.size)
            share = pieces.total_ns / total_ns
            if share >= outcome.limit("tiling.heavy"):
                evidence: MaybeEvidence = {
                    "op": pieces.op,
                    "size": pieces.size,
                    "time_share": share,
                }
                if metric == "tiling.kv_block":
                    loaded = {"block [B]": pieces.block_bytes, "blocks": pieces.blocks}
                    evidence = {**evidence, **loaded}
                outcome.below(metric, pieces.size, evidence)


def _try_sizes(outcome: StepOutcome, context: StepContext, shape: str) -> None:
    """Run the largest products of unaligned sizes again, unchanged and padded."""
    most = 3 if context.extent.quick else 8
    inputs = context.workload.pool(shape)[0]
    state = context.warm_up(shape, quick=0.3, full=2.0)
    products = record_products(
        lambda: context.workload.invoke(inputs), root=context.root
    )
    context.device.synchronize()
    if not products:
        return
    multiple = max(1, round(context.limit("tiling.multiple")))
    unfit: list[tuple[ReplayedProduct, dict[str, int]]] = []
    flops = aligned_flops = 0
    for product in products:
        flops += product.flops * product.count
        padding = product.padding(multiple)
        if padding:
            unfit.append((product, padding))
        else:
            aligned_flops += product.flops * product.count
    outcome.number("tiling.aligned_share", aligned_flops / flops if flops else 1.0)
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
    sizes = {
        "op": product.op,
        "sizes": product.shapes({}),
        "padded": product.shapes(padding),
    }
    of_product = outcome.under(**sizes)
    padded = partial(_compare, context, product, padding)
    versus = experiment(context, padded, failing="operators.padding-fails")
    if isinstance(versus, FailedExperiment):
        reason = versus.reason
        if versus.out_of_memory:
            reason = Message("operators.no-memory-for-operands")
        of_product.missing("tiling.padding_gain", reason)
        return
    of_product.speedup("tiling.padding_gain", versus)
    saved_ns = (versus.first_ns - versus.second_ns) * product.count
    if saved_ns > _NOTICEABLE * call_ns:
        numbers: MaybeEvidence = {
            "count": product.count,
            "saves": saved_ns / 1e9,
            "gain": versus.speedup,
        }
        of_product.above(
            "tiling.padding_gain",
            versus.low,
            {**sizes, **numbers, "line": product.line},
        )


def _compare(
    context: StepContext, product: ReplayedProduct, padding: Mapping[str, int]
) -> Versus:
    """The speedup of the padded product.

    Raises ExperimentError if its result differs or it takes too long.
    """
    seconds, longest_ns = (
        (0.5, 50_000_000) if context.extent.quick else (2.0, 500_000_000)
    )
    with context.device.inference_mode():
        replay = ProductReplay(product, padding, context.device.handle())
        plain, padded = replay.outputs()
        if not agreement(plain, padded).within(_TOLERANCE):
            raise ExperimentError(Message("operators.padding-differs"))
        once_ns = timed_call(replay.plain, context.device)
        if once_ns > longest_ns:
            raise ExperimentError(
                Message("operators.too-long", {"seconds": once_ns / 1e9})
            )
        return compare(
            replay.plain,
            replay.padded,
            context.device,
            seconds=seconds,
            seed=context.seed,
        )
