"""Step 4: the operators that take the time, from a recorded trace; and the exact
counters of one call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.catalogue.names import OPERATOR_SHARE
from perfgate.document.budget import missing_kernels
from perfgate.document.message import Message
from perfgate.document.run import CounterSet, OperatorRow, Roof, ShapeKernels
from perfgate.measuring.checklist.operator_cases import measure_cases
from perfgate.measuring.checklist.recorded import or_absent
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
)
from perfgate.measuring.checklist.traces import kernels_are_hidden, steady_calls
from perfgate.measuring.counting.account import account_for, measure_roof
from perfgate.measuring.counting.collect import CallTrace
from perfgate.measuring.counting.compiled import with_compilations
from perfgate.measuring.counting.counters import (
    FALLBACKS,
    count_in_order,
    with_fallbacks,
    with_kernel_lines,
    with_kernels,
    with_steady,
)
from perfgate.measuring.counting.kept import KEPT_PYTHON, with_kept_bytes
from perfgate.measuring.counting.python_work import with_python_work
from perfgate.trace.analysis.operators import (
    OpClass,
    OperatorTotal,
    class_totals,
    op_class,
    operator_totals,
)
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import IntColumn, rows_by, self_times
from perfgate.trace.model.events import KIND_CODES, EventKind, EventTable
from perfgate.trace.model.spans import KERNEL_METRICS, work_by_span

# The classes of operators with a limit of their share of the busy time.
_JUDGED_CLASSES: tuple[OpClass, ...] = ("conv_matmul", "copy", "reshape", "softmax")
_TOP_OPS = 10
# Operators with a share among the step's leading numbers.
_NAMED_OPS = 5
# Rows kept per shape; ops.coverage is their share of the time.
_MOST_ROWS = 100
_SINGLE_RUNS: tuple[EventKind, ...] = ("host_op", "compute", "copy")
# More names than any model runs kernels; a recording may hold anything.
_MOST_NAMES = 5000
_NO_OPERATOR = Message("times.no-operator")
# The column Accelerator Core of kernels on the device's own CPU, and of those on its
# cores.
_AI_CPU = "AI_CPU"
_CORES = frozenset({_AI_CPU, "AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV"})
# Int4Gemm, w4a16_gemm, gptq_marlin_gemm, dequant_matmul; SparseFusedAttention,
# paged_attention_v1, BlockSparseAttention.
_QUANTIZED_PRODUCT = re.compile(
    r"(int[48]|w[48]a\d+|gptq|awq|marlin|quant).*(gemm|gemv|mat_?mul|linear|_mm)|(gemm|mat_?mul|_mm).*(int[48]|w[48]a\d+|quant)",
    re.IGNORECASE,
)
_BLOCK_ATTENTION = re.compile(
    r"(paged|sparse|block).*(attention|attn)|(attention|attn).*(paged|sparse|block)",
    re.IGNORECASE,
)
# Step 13 reads the size of these from the table of kernels.
_SIZE_IS_RECORDED = re.compile(
    r"^(WeightQuantBatchMat|GroupedMat|Paged\w*Attention|FusedInferAttention|IncreFlashAttention)"
)


class TopOpsStep:
    """Trace some steady calls of every shape; the operators of the CPU, or the kernels
    of a device that shows them.
    """

    card = card(4)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable if no trace holds an operator.

        The counters are there in any case.
        """
        outcome = context.outcome()
        measure_cases(context, outcome)
        names = set[str]()
        roof = None if context.extent.brief else measure_roof(context.device)
        for shape in context.workload.shapes:
            context.doing("tracing inputs of shape {shape}", shape=shape)
            of_shape, trace = outcome.under(shape=shape), steady_calls(context, shape)
            events = trace.device_work() if context.shows_kernels else trace.host_ops()
            totals = operator_totals(events, calls=trace.calls)
            _judge_operators(
                of_shape,
                totals,
                context.workload.name,
                shape,
                calls=trace.calls,
                counted=len(events),
            )
            if not context.extent.brief:  # counts are exact, so one turn has them all
                context.doing(
                    "counting operators with inputs of shape {shape}", shape=shape
                )
                _count(outcome, context, shape, trace, roof)
            runs = _KernelRuns(shape)
            runs.add(events, calls=trace.calls)
            runs.judge(of_shape)
            names |= runs.names
        _judge_missing(outcome, context.settings.expected_kernels, names)
        if not context.extent.brief:
            _judge_counters(context, outcome)
        if not outcome.operators:
            reason = "times.no-known-operator"
            if kernels_are_hidden(context):
                reason = "times.kernels-hidden"
            outcome.absent = "unavailable"
            outcome.reason = Message(reason)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the operators of every rank like a measured shape."""
        outcome, names = context.outcome(), set[str]()
        for summary in context.summaries:
            rank = outcome.under(shape=summary.shape)
            counters = _recorded_counters(summary, context.workload)
            if counters.values:
                outcome.counters.append(counters)
            if not summary.totals:
                rank.missing(
                    ("ops.coverage", "ops.kernel_time"),
                    Message("times.no-operators-recorded"),
                )
                continue
            _judge_operators(
                rank,
                summary.totals,
                context.workload,
                summary.shape,
                calls=summary.spans,
                counted=summary.counted,
            )
            _judge_ai_cpu(rank, summary)
            _judge_unstable(outcome, counters)
            runs = _KernelRuns(summary.shape)
            for part in summary.work:
                runs.add(part.inside(), calls=summary.spans)
            runs.judge(rank)
            names |= runs.names
        if names:
            _judge_missing(outcome, context.settings.expected_kernels, names)
        return or_absent(outcome)


STEP = TopOpsStep()


def _count(
    outcome: StepOutcome,
    context: StepContext,
    shape: str,
    trace: CallTrace,
    roof: Roof | None,
) -> None:
    """Add the exact counters of a shape, and the account of its call line by line."""
    counters, order = count_in_order(context.workload, shape)
    account = account_for(
        trace, context.workload.name, shape, order=order, root=context.root, roof=roof
    )
    if context.shows_kernels:
        absent = KERNEL_METRICS if trace.hides_kernels else ()
        counters = with_kernels(
            counters, work_by_span(trace.events, trace.spans()), absent=absent
        )
    # Last, because the framework reports a fallback when it happens.
    if (fallbacks := context.device.fallbacks()) is not None:
        counters = with_fallbacks(counters, fallbacks)
    dispatched = with_kernel_lines(counters, account.rows)
    worked = with_python_work(context.workload, dispatched)
    outcome.accounts.append(account)
    outcome.counters.append(with_kept_bytes(context.workload, worked))


def _judge_counters(context: StepContext, outcome: StepOutcome) -> None:
    counters = with_compilations(context.workload, outcome.counters)
    for counter_set in counters:
        # Every operator without a kernel for the device is a finding, with its line.
        for site in counter_set.sites:
            if site.metric == FALLBACKS:
                outcome.note(
                    "ops.fallback",
                    "warning",
                    {
                        "op": site.name,
                        "calls": site.count,
                        "shape": counter_set.shape,
                        "line": site.line,
                    },
                )
    for counter_set in counters:
        _judge_unstable(outcome, counter_set)
    for counter_set in counters:
        if KEPT_PYTHON in counter_set.uncounted:
            outcome.note(
                "counters.kept_uncounted", "info", {"shape": counter_set.shape}
            )
    outcome.counters[:] = [with_steady(counter_set) for counter_set in counters]


def _judge_operators(
    outcome: StepOutcome,
    totals: Sequence[OperatorTotal],
    workload: str,
    shape: str,
    *,
    calls: int,
    counted: int,
) -> None:
    """Judge the operators of some calls of a workload on a shape, which are made of
    ``counted`` events.
    """
    busy_ns = sum(total.typical_ns for total in totals)
    if not busy_ns:
        outcome.missing("ops.coverage", _NO_OPERATOR)
        return
    covered_ns = 0.0
    for total in totals[:_MOST_ROWS]:
        covered_ns += total.typical_ns
        row = OperatorRow(
            workload=workload,
            shape=shape,
            op=total.name,
            kind=total.kind,
            self_time=total.typical_ns / 1e9,
            count=total.count / calls,
            share=total.typical_ns / busy_ns,
        )
        outcome.operators.append(row)
    coverage = covered_ns / busy_ns
    outcome.number("ops.coverage", coverage, count=counted)
    shares = _add_class_shares(outcome, totals)
    for total in totals[:_NAMED_OPS]:
        outcome.under(op=total.name).number(OPERATOR_SHARE, total.typical_ns / busy_ns)
    for total in totals[:_TOP_OPS]:
        outcome.under(op=total.name).number("ops.time", total.typical_ns / 1e9)
    outcome.below("ops.coverage", coverage)
    # A CPU has no kernels.
    computed = [total for total in totals if total.kind == "compute"]
    if computed_ns := sum(total.typical_ns for total in computed):
        name, share = computed[0].name, computed[0].typical_ns / computed_ns
        outcome.under(op=name).number("ops.heaviest", share)
        outcome.above("ops.heaviest", share, {"op": name, "share": share})
    for total in totals[:_TOP_OPS]:
        rule = _loads_in_pieces(total.name)
        if rule is not None:
            outcome.above(rule, total.typical_ns / busy_ns, {"op": total.name})
    for group in _JUDGED_CLASSES:
        # Totals are sorted, so the first of the class is its heaviest.
        heaviest = next(
            (total.name for total in totals if op_class(total.name) == group), None
        )
        if heaviest is not None:
            outcome.above(f"ops.share.{group}", shares[group], {"op": heaviest})


def _add_class_shares(
    outcome: StepOutcome, totals: Sequence[OperatorTotal]
) -> dict[OpClass, float]:
    """Add and return the share of each class of operators, without collectives, which
    mostly wait.
    """
    in_classes = [total for total in totals if total.kind not in ("comm", "fused")]
    all_ns = sum(total.typical_ns for total in in_classes) or 1
    shares = {}
    for op, ns in class_totals(in_classes).items():
        shares[op] = ns / all_ns
        outcome.under(**{"class": op}).number("ops.share", shares[op])
    return shares


def _loads_in_pieces(op: str) -> str | None:
    """The rule for an operator that, by its name, loads groups of weights or blocks of
    a cache of unknown size.
    """
    if _SIZE_IS_RECORDED.search(op):
        return None
    if _QUANTIZED_PRODUCT.search(op):
        return "ops.quantized_product"
    if _BLOCK_ATTENTION.search(op):
        return "ops.block_attention"
    return None


def _judge_ai_cpu(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Judge the kernels on the device's own CPU; skipped if the table of kernels names
    no unit.
    """
    table = summary.kernel_table
    cores = np.array([text.upper() for text in table.texts])
    if not len(table) or not set(cores.tolist()) & _CORES:
        return
    on_cpu = table.select(
        np.isin(table.codes["core"], np.flatnonzero(cores == _AI_CPU))
    )
    calls = len(on_cpu) / summary.spans
    outcome.number("ops.ai_cpu", calls)
    if not len(on_cpu):
        return
    heaviest = max(on_cpu.alike(named=False), key=lambda alike: alike.total_ns).kernel
    types = [
        *dict.fromkeys(heaviest.inputs.dtypes),
        "->",
        *dict.fromkeys(heaviest.outputs.dtypes),
    ]
    outcome.above(
        "ops.ai_cpu",
        int(on_cpu.duration.max()) / 1e9,
        {
            "op": heaviest.type or heaviest.name,
            "calls": calls,
            "share": int(on_cpu.duration.sum()) / (int(table.duration.sum()) or 1),
            "types": " ".join(types),
        },
    )


def _recorded_counters(summary: DeviceSummary, workload: str) -> CounterSet:
    """Count the kernels of one step, or the framework operators on a CPU."""
    repeats = 0 if summary.unit == "whole recording" else summary.spans
    empty = CounterSet(
        workload=workload, shape=summary.shape, repeats=repeats, values={}, ops=[]
    )
    if not summary.works or (
        summary.absent == frozenset(KERNEL_METRICS) and not summary.on_host
    ):
        return empty
    return with_steady(with_kernels(empty, list(summary.works), absent=summary.absent))


def _judge_unstable(outcome: StepOutcome, counters: CounterSet) -> None:
    """Name the counters that differ between the counted calls."""
    if counters.unstable:
        outcome.note(
            "counters.unstable",
            "info",
            {"metrics": ", ".join(counters.unstable), "shape": counters.shape},
        )


@dataclass
class _KernelRuns:
    """The kernels of one shape: all names, and the seconds of the longest single run of
    each operator.
    """

    shape: str
    names: set[str] = field(default_factory=set)
    longest: dict[str, float] = field(default_factory=dict)

    def add(self, events: EventTable, *, calls: int) -> None:
        """Add the events of some calls.

        The longest run of a typical call, without the time in nested operators and in
        collectives, which mostly wait.
        """
        codes = np.unique(np.concatenate((events.name, events.group)))
        self.names.update(events.names[code] for code in codes.tolist())
        runs = np.isin(events.kind, [KIND_CODES[kind] for kind in _SINGLE_RUNS])
        own = self_times(events.start, events.duration, events.track)[runs]
        work = events.select(runs)
        for rows in rows_by(work.group):
            op = work.names[work.group[rows[0]]]
            order = rows[np.argsort(work.start[rows], kind="stable")]
            self.longest[op] = max(
                _longest(own[order], calls) / 1e9, self.longest.get(op, 0.0)
            )

    def judge(self, outcome: StepOutcome) -> None:
        """Add the longest single run of all and the names for the run document, and
        judge the run of each operator.
        """
        # The line of the heaviest row of each operator, which is its first.
        lines: dict[str, str] = {}
        for account in outcome.accounts:
            for row in account.rows:
                if account.shape == self.shape and row.line is not None:
                    lines.setdefault(row.op, row.line)
        for op, seconds in self.longest.items():
            outcome.above("ops.kernel_time", seconds, {"op": op, "line": lines.get(op)})
        if self.longest:
            outcome.number("ops.kernel_time", max(self.longest.values()))
        else:
            outcome.missing("ops.kernel_time", _NO_OPERATOR)
        if names := sorted(self.names):
            kernels = ShapeKernels(
                shape=self.shape,
                names=names[:_MOST_NAMES],
                left_out=max(0, len(names) - _MOST_NAMES),
                longest=max(self.longest, key=self.longest.__getitem__, default=None),
            )
            outcome.kernels.append(kernels)


def _longest(times: IntColumn, calls: int) -> float:
    """The longest run of a typical call: each run is the median over the calls.

    If the calls have different numbers of runs, the longest of all.
    """
    if times.size % calls == 0:
        return float(np.median(times.reshape(calls, -1), axis=0).max())
    return float(times.max())


def _judge_missing(
    outcome: StepOutcome, patterns: Iterable[str], names: Collection[str]
) -> None:
    """Add a finding for each pattern that matches no name, with the nearest names."""
    for pattern, nearest in missing_kernels(patterns, names).items():
        outcome.note(
            "ops.missing_kernel", "severe", {"kernel": pattern, "nearest": nearest}
        )
