"""Step 4: which operators take the time, from a recorded trace; and what one call does, counted exactly."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.budget import missing_kernels
from perfgate.document.message import Message
from perfgate.document.run import CallRow, CounterSet, Finding, OperatorRow, Roof, ShapeKernels, Value
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, above, below, finding
from perfgate.measuring.checklist.operator_cases import measure_cases
from perfgate.measuring.checklist.recorded import or_absent
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome
from perfgate.measuring.checklist.traces import steady_calls
from perfgate.measuring.checklist.values import missing, several
from perfgate.measuring.counting.account import AccountOf, account_for, measure_roof
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
from perfgate.trace.analysis import IntColumn, rows_by, self_times
from perfgate.trace.events import KIND_CODES, EventKind, EventTable
from perfgate.trace.operators import OpClass, OperatorTotal, class_totals, op_class, operator_totals
from perfgate.trace.spans import KERNEL_METRICS, work_by_span
from perfgate.trace.summary import DeviceSummary

# The classes of operators whose share of the busy time has a limit.
_JUDGED_CLASSES: tuple[OpClass, ...] = ("conv_matmul", "copy", "reshape", "softmax")
_TOP_OPS = 10
# Rows kept per shape. What stands in no row is not explained, and ops.coverage says so.
_MOST_ROWS = 100
_SINGLE_RUNS: tuple[EventKind, ...] = ("host_op", "compute", "copy")
# More names than any model runs kernels; a recording may hold anything.
_MOST_NAMES = 5000
_NO_OPERATOR = Message("times.no-operator")
# The column Accelerator Core of a kernel that the device's own CPU ran, and of those that its cores did.
_AI_CPU = "AI_CPU"
_CORES = frozenset({_AI_CPU, "AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV"})
# Int4Gemm, w4a16_gemm, gptq_marlin_gemm, dequant_matmul; SparseFusedAttention, paged_attention_v1, BlockSparseAttention.
_QUANTIZED_PRODUCT = re.compile(
    r"(int[48]|w[48]a\d+|gptq|awq|marlin|quant).*(gemm|gemv|mat_?mul|linear|_mm)|(gemm|mat_?mul|_mm).*(int[48]|w[48]a\d+|quant)",
    re.IGNORECASE,
)
_BLOCK_ATTENTION = re.compile(
    r"(paged|sparse|block).*(attention|attn)|(attention|attn).*(paged|sparse|block)", re.IGNORECASE
)
# Of these step 13 reads the size from the table of kernels.
_SIZE_IS_RECORDED = re.compile(
    r"^(WeightQuantBatchMat|GroupedMat|Paged\w*Attention|FusedInferAttention|IncreFlashAttention)"
)


class TopOpsStep:
    """Trace some steady calls of every shape; the operators of the CPU, or the kernels of a device that shows them."""

    card = card(4)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable where no trace holds an operator. The counters are there in any case."""
        outcome = measure_cases(context)
        long_runs: list[Finding] = []
        names: set[str] = set()
        roof = None if context.brief else measure_roof(context.device)
        for shape in context.workload.shapes:
            context.progress(f"tracing inputs of shape {shape}")
            trace = steady_calls(context, shape)
            events = trace.device_work() if context.shows_kernels else trace.host_ops()
            totals = operator_totals(events, calls=trace.calls)
            calls = _Calls(context.workload.name, shape, trace.calls, counted=len(events))
            outcome.add(_judge_operators(totals, calls, context.limits))
            if not context.brief:  # counts are exact, so one turn has them all
                context.progress(f"counting operators with inputs of shape {shape}")
                outcome.add(_count(context, shape, trace, roof))
            runs = _KernelRuns(shape)
            runs.add(events, calls=trace.calls)
            rows = [row for account in outcome.accounts if account.shape == shape for row in account.rows]
            long_runs += runs.judge(context.limits, lines=_heaviest_lines(rows))
            outcome.values += runs.values()
            outcome.kernels += runs.shape_kernels()
            names |= runs.names
        outcome.findings += [*long_runs, *_judge_missing(context.expected_kernels, names)]
        if not context.brief:
            _judge_counters(context, outcome)
        if not outcome.operators:
            outcome.absent, outcome.reason = "unavailable", Message("times.no-known-operator")
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the operators of every rank as those of a measured shape."""
        outcome = StepOutcome()
        names: set[str] = set()
        for summary in context.summaries:
            counters = _recorded_counters(summary, context.workload)
            outcome.counters += [counters] if counters.values else []
            if not summary.totals:
                labels = {"shape": summary.shape}
                outcome.values += missing(
                    ("ops.coverage", "ops.kernel_time"), Message("times.no-operators-recorded"), labels
                )
                continue
            calls = _Calls(context.workload, summary.shape, summary.spans, summary.counted)
            outcome.add(_judge_operators(summary.totals, calls, context.limits))
            outcome.add(_judge_ai_cpu(summary, context.limits))
            outcome.findings += _judge_unstable(counters)
            runs = _KernelRuns(summary.shape)
            for part in summary.work:
                runs.add(part.inside(), calls=summary.spans)
            names |= runs.names
            outcome.values += runs.values()
            outcome.kernels += runs.shape_kernels()
            outcome.findings += runs.judge(context.limits, lines={})
        if names:
            outcome.findings += _judge_missing(context.expected_kernels, names)
        return or_absent(outcome)


STEP = TopOpsStep()


def _count(context: StepContext, shape: str, trace: CallTrace, roof: Roof | None) -> StepOutcome:
    """The exact counters of a shape, and the account of its call line by line."""
    counts = count_in_order(context.workload, context.device, shape, root=context.root)
    account = account_for(trace, AccountOf(context.workload.name, shape, counts.order, context.root, roof))
    dispatched = with_kernel_lines(_with_device_counts(context, counts.counters, trace), account.rows)
    worked = with_python_work(context.workload, dispatched, root=context.root)
    return StepOutcome(accounts=[account], counters=[with_kept_bytes(context.workload, worked, root=context.root)])


def _judge_counters(context: StepContext, outcome: StepOutcome) -> None:
    counters = with_compilations(context.workload, outcome.counters, root=context.root)
    outcome.findings += [noted for counter_set in counters for noted in _judge_fallbacks(counter_set)]
    outcome.findings += [noted for counter_set in counters for noted in _judge_unstable(counter_set)]
    outcome.findings += [
        finding("counters.kept_uncounted", "info", {"shape": counter_set.shape})
        for counter_set in counters
        if KEPT_PYTHON in counter_set.uncounted
    ]
    outcome.counters = [with_steady(counter_set) for counter_set in counters]


@dataclass(frozen=True)
class _Calls:
    """So many traced calls of a workload on a shape; ``counted`` events stand behind their operators."""

    workload: str
    shape: str
    calls: int
    counted: int


def _judge_operators(totals: Sequence[OperatorTotal], traced: _Calls, limits: Limits) -> StepOutcome:
    busy_ns = sum(total.typical_ns for total in totals)
    labels = {"shape": traced.shape}
    if not busy_ns:
        return StepOutcome(missing("ops.coverage", _NO_OPERATOR, labels))
    rows = [
        OperatorRow(
            workload=traced.workload,
            shape=traced.shape,
            op=total.name,
            kind=total.kind,
            self_time=total.typical_ns / 1e9,
            count=total.count / traced.calls,
            share=total.typical_ns / busy_ns,
        )
        for total in totals[:_MOST_ROWS]
    ]
    coverage = sum(total.typical_ns for total in totals[:_MOST_ROWS]) / busy_ns
    shares = _class_shares(totals)
    values = [Value(metric="ops.coverage", value=coverage, count=traced.counted, labels=labels)]
    values += [Value(metric="ops.share", value=share, labels={**labels, "class": op}) for op, share in shares.items()]
    values += [
        Value(metric="ops.time", value=row.self_time, labels={**labels, "op": row.op}) for row in rows[:_TOP_OPS]
    ]
    findings = below("ops.coverage", coverage, limits, labels)
    if (kernel := _heaviest_kernel(totals)) is not None:
        op, share = kernel
        values.append(Value(metric="ops.heaviest", value=share, labels={**labels, "op": op}))
        findings += above("ops.heaviest", share, limits, {**labels, "op": op, "share": share})
    for total in totals[:_TOP_OPS]:
        if (rule := _loads_in_pieces(total.name)) is not None:
            share = total.typical_ns / busy_ns
            findings += above(rule, share, limits, {**labels, "op": total.name})
    for group in _JUDGED_CLASSES:
        # Totals are sorted, so the first of the class is its heaviest.
        heaviest = next((total.name for total in totals if op_class(total.name) == group), None)
        if heaviest is not None:
            findings += above(f"ops.share.{group}", shares[group], limits, {**labels, "op": heaviest})
    return StepOutcome(values, findings, operators=rows)


def _loads_in_pieces(op: str) -> str | None:
    """The rule for an operator whose name says that it loads groups of weights or blocks of a cache, but not their size."""
    if _SIZE_IS_RECORDED.search(op):
        return None
    if _QUANTIZED_PRODUCT.search(op):
        return "ops.quantized_product"
    return "ops.block_attention" if _BLOCK_ATTENTION.search(op) else None


def _heaviest_kernel(totals: Sequence[OperatorTotal]) -> tuple[str, float] | None:
    """The type of kernel with most of what the device computes, and its share; of a CPU's operators none."""
    computed = [total for total in totals if total.kind == "compute"]
    computed_ns = sum(total.typical_ns for total in computed)
    return (computed[0].name, computed[0].typical_ns / computed_ns) if computed_ns else None


def _judge_ai_cpu(summary: DeviceSummary, limits: Limits) -> StepOutcome:
    """How much the device's own CPU runs instead of its cores; nothing where the table of kernels names no unit."""
    table = summary.kernel_table
    cores = [text.upper() for text in table.texts]
    if not len(table) or not set(cores) & _CORES:
        return StepOutcome()
    on_cpu = table.select(np.isin(table.codes["core"], [code for code, core in enumerate(cores) if core == _AI_CPU]))
    labels = {"shape": summary.shape}
    numbers = {
        "ops.ai_cpu_share": int(on_cpu.duration.sum()) / (int(table.duration.sum()) or 1),
        "ops.ai_cpu": len(on_cpu) / summary.spans,
    }
    outcome = StepOutcome(several(numbers, labels))
    if len(on_cpu):
        heaviest = max(on_cpu.alike(named=False), key=lambda alike: alike.total_ns).kernel
        evidence: MaybeEvidence = {
            **labels,
            "op": heaviest.type or heaviest.name,
            "calls": numbers["ops.ai_cpu"],
            "share": numbers["ops.ai_cpu_share"],
            "types": " ".join((*dict.fromkeys(heaviest.input_dtypes), "->", *dict.fromkeys(heaviest.output_dtypes))),
        }
        outcome.findings = above("ops.ai_cpu", int(on_cpu.duration.max()) / 1e9, limits, evidence)
    return outcome


def _class_shares(totals: Sequence[OperatorTotal]) -> dict[OpClass, float]:
    """The share of each class in what the device computes: in a collective it mostly waits for others."""
    computed = [total for total in totals if total.kind not in ("comm", "fused")]
    computed_ns = sum(total.typical_ns for total in computed)
    return {group: ns / computed_ns if computed_ns else 0.0 for group, ns in class_totals(computed).items()}


def _with_device_counts(context: StepContext, counters: CounterSet, trace: CallTrace) -> CounterSet:
    """Add what the device ran to what single calls dispatched; it is counted in the traced ones, where they show that."""
    if context.shows_kernels:
        counters = with_kernels(counters, work_by_span(trace.events, trace.spans()))
    # Last, because the framework reports a fallback when it happens.
    fallbacks = context.device.fallbacks()
    return counters if fallbacks is None else with_fallbacks(counters, fallbacks)


def _recorded_counters(summary: DeviceSummary, workload: str) -> CounterSet:
    """Count what one step runs; of a CPU its framework operators."""
    repeats = 0 if summary.unit == "whole recording" else summary.spans
    empty = CounterSet(workload=workload, shape=summary.shape, repeats=repeats, values={}, ops=[])
    if not summary.works or (summary.absent == frozenset(KERNEL_METRICS) and not summary.on_host):
        return empty
    return with_steady(with_kernels(empty, list(summary.works), absent=summary.absent))


def _judge_fallbacks(counters: CounterSet) -> list[Finding]:
    """A finding for each operator that the device has no kernel for, with its line."""
    return [
        finding(
            "ops.fallback",
            "warning",
            {"op": site.name, "calls": site.count, "shape": counters.shape, "line": site.line},
        )
        for site in counters.sites
        if site.metric == FALLBACKS
    ]


def _judge_unstable(counters: CounterSet) -> list[Finding]:
    """Name the counters that differ between the calls that were counted."""
    if not counters.unstable:
        return []
    evidence = {"metrics": ", ".join(counters.unstable), "shape": counters.shape}
    return [finding("counters.unstable", "info", evidence)]


@dataclass
class _KernelRuns:
    """What ran in the calls of one shape: every name, and of each operator the seconds of its longest single run."""

    shape: str
    names: set[str] = field(default_factory=set)
    longest: dict[str, float] = field(default_factory=dict)

    def add(self, events: EventTable, *, calls: int) -> None:
        """Add the events of so many calls.

        The longest run is that of a typical call. Time spent in other operators and in collectives, where a kernel mostly
        waits, does not count.
        """
        self.names |= {events.names[code] for code in np.unique(np.concatenate((events.name, events.group))).tolist()}
        runs = np.isin(events.kind, [KIND_CODES[kind] for kind in _SINGLE_RUNS])
        own, work = self_times(events.start, events.duration, events.track)[runs], events.select(runs)
        for rows in rows_by(work.group):
            op = work.names[work.group[rows[0]]]
            order = rows[np.argsort(work.start[rows], kind="stable")]
            self.longest[op] = max(_longest(own[order], calls) / 1e9, self.longest.get(op, 0.0))

    def values(self) -> list[Value]:
        """The seconds of the longest single run of all."""
        labels = {"shape": self.shape}
        if not self.longest:
            return missing("ops.kernel_time", _NO_OPERATOR, labels)
        return [Value(metric="ops.kernel_time", value=max(self.longest.values()), labels=labels)]

    def shape_kernels(self) -> list[ShapeKernels]:
        """What the run document keeps; nothing where nothing ran."""
        if not self.names:
            return []
        names = sorted(self.names)
        return [
            ShapeKernels(
                shape=self.shape,
                names=names[:_MOST_NAMES],
                left_out=max(0, len(names) - _MOST_NAMES),
                longest=max(self.longest, key=self.longest.__getitem__, default=None),
            )
        ]

    def judge(self, limits: Limits, *, lines: Mapping[str, str]) -> list[Finding]:
        """A finding for each operator of which one run takes longer than the limit; ``lines`` are where it is called."""
        findings: list[Finding] = []
        for op, seconds in self.longest.items():
            evidence = {"op": op, "shape": self.shape, "line": lines.get(op)}
            findings += above("ops.kernel_time", seconds, limits, evidence)
        return findings


def _longest(times: IntColumn, calls: int) -> float:
    """The longest run of a typical call: each is the median of those at its place in the calls.

    Where the calls have different numbers of runs it is the longest of all.
    """
    typical = np.median(times.reshape(calls, -1), axis=0) if times.size % calls == 0 else times
    return float(typical.max())


def _judge_missing(patterns: Iterable[str], names: Collection[str]) -> list[Finding]:
    """A finding for each pattern that no name fits, with the names that come nearest to it."""
    return [
        finding("ops.missing_kernel", "severe", {"kernel": absent.pattern, "nearest": absent.nearest})
        for absent in missing_kernels(patterns, names)
    ]


def _heaviest_lines(rows: Iterable[CallRow]) -> dict[str, str]:
    """For each operator the line of its heaviest row; the rows come heaviest first."""
    lines: dict[str, str] = {}
    for row in rows:
        if row.line is not None:
            lines.setdefault(row.op, row.line)
    return lines
