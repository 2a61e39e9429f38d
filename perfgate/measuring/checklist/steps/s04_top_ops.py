"""Step 4: which operators take the time, from a recorded trace; and what one call does, counted exactly."""

from __future__ import annotations

from perfgate.catalogue.lookup import card
from perfgate.document.run import CallAccount, CounterSet, Finding
from perfgate.measuring.checklist.step import StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._kernel_runs import KernelRuns, heaviest_lines, judge_long_runs, judge_missing
from perfgate.measuring.checklist.steps._operators import (
    ShapeOperators,
    judge_fallbacks,
    judge_operators,
    judge_unstable,
)
from perfgate.measuring.checklist.steps._traces import steady_calls
from perfgate.measuring.counting.account import AccountOf, account_for
from perfgate.measuring.counting.collect import CallTrace
from perfgate.measuring.counting.compiled import with_compilations
from perfgate.measuring.counting.counters import count_in_order, with_steady
from perfgate.measuring.counting.python_work import with_python_work
from perfgate.measuring.counting.roofline import measure_roof
from perfgate.trace.events import EventTable
from perfgate.trace.fallbacks import with_fallbacks
from perfgate.trace.kernels import with_kernel_lines, with_kernels, work_by_span
from perfgate.trace.operators import operator_totals


class TopOpsStep:
    """Trace some steady calls of every shape; the operators of the CPU, or the kernels of a device that shows them."""

    card = card(4)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable where no trace holds an operator. The counters are there in any case."""
        shapes: list[ShapeOperators] = []
        counters: list[CounterSet] = []
        accounts: list[CallAccount] = []
        runs: list[KernelRuns] = []
        long_runs: list[Finding] = []
        roof = measure_roof(context.device)
        for shape in context.workload.shapes:
            context.progress(f"tracing inputs of shape {shape}")
            trace = steady_calls(context, shape)
            shapes.append(_operators(context, shape, trace))
            context.progress(f"counting operators with inputs of shape {shape}")
            counted = count_in_order(context.workload, context.device, shape, root=context.root)
            whose = AccountOf(context.workload.name, shape, counted.order, context.root, roof)
            accounts.append(account_for(trace, whose))
            dispatched = with_kernel_lines(_counters(context, counted.counters, trace), accounts[-1].rows)
            counters.append(with_python_work(context.workload, dispatched, root=context.root))
            runs.append(KernelRuns(shape))
            runs[-1].add(_events(context, trace), calls=trace.calls)
            lines = heaviest_lines(accounts[-1].rows)
            long_runs += judge_long_runs(runs[-1], lines=lines, limits=context.limits)
        counters = with_compilations(context.workload, counters, root=context.root)
        findings = [finding for shape in shapes for finding in shape.findings] + long_runs
        findings += judge_missing(context.expected_kernels, {name for ran in runs for name in ran.names})
        findings += [finding for counted in counters for finding in judge_fallbacks(counted)]
        findings += [finding for counted in counters for finding in judge_unstable(counted)]
        empty = not any(shape.operators for shape in shapes)
        return StepOutcome(
            status="unavailable" if empty else status_of(findings),
            reason="the trace holds no operator: a call runs none that the profiler knows" if empty else None,
            values=[*(value for shape in shapes for value in shape.values), *(ran.value() for ran in runs)],
            findings=findings,
            kernels=[kept for ran in runs for kept in ran.kept()],
            operators=[row for shape in shapes for row in shape.operators],
            accounts=accounts,
            counters=[with_steady(counted) for counted in counters],
        )


STEP = TopOpsStep()


def _operators(context: StepContext, shape: str, trace: CallTrace) -> ShapeOperators:
    events = _events(context, trace)
    return judge_operators(
        operator_totals(events, calls=trace.calls),
        workload=context.workload.name,
        shape=shape,
        calls=trace.calls,
        counted=len(events),
        limits=context.limits,
    )


def _counters(context: StepContext, counted: CounterSet, trace: CallTrace) -> CounterSet:
    """Add what the device ran to what single calls dispatched; it is counted in the traced ones, where they show that."""
    if "kernel_timeline" in context.device.capabilities:
        counted = with_kernels(counted, work_by_span(trace.events, trace.spans()))
    # Asked last: the framework says so when it happens.
    fallbacks = context.device.fallbacks()
    return counted if fallbacks is None else with_fallbacks(counted, fallbacks)


def _events(context: StepContext, trace: CallTrace) -> EventTable:
    return trace.device_work() if "kernel_timeline" in context.device.capabilities else trace.host_ops()
