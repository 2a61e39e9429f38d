"""Step 9: the cost and gain of compiling the call to a graph, and the causes of graph
breaks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, together
from perfgate.measuring.checklist.experiment import (
    FailedExperiment,
    experiment,
    own_call,
)
from perfgate.measuring.checklist.graph_head import (
    HEAD_SPANS,
    HeadPart,
    HeadSpans,
    head_of_steps,
    head_times,
    spans_of_recording,
)
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    unavailable,
)
from perfgate.measuring.checklist.steps.s09_graph.compilation import (
    GRAPHS_ONLY,
    Compiled,
    apart,
    compiled,
    compiled_twin,
    compiling,
)
from perfgate.measuring.counting.collect import trace_calls
from perfgate.measuring.counting.compiled import (
    COMPILED_AGAIN,
    NEW_INPUT,
    Compilations,
    compilations,
    has_compiled,
)
from perfgate.measuring.counting.counters import WARM_UP_CALLS
from perfgate.measuring.counting.tally import Site
from perfgate.measuring.devices.torch_backends import TORCH_BACKENDS
from perfgate.measuring.timing.calls import Versus
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import counts_by_name
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.spans import KERNEL_LAUNCH

_TRACED_CALLS = 5
_MOST_PLACES = 10
# One kernel (Node@launch of CANN, cudaLaunchKernel, hipLaunchKernel …) or a whole graph
# at once.
_LAUNCHES: Mapping[str, re.Pattern[str]] = {
    "graph": re.compile(r"(cuda|hip)GraphLaunch|aclmdlRIExecute|Model@|ModelExecute"),
    "kernel": KERNEL_LAUNCH,
}
_LEVEL_WITHOUT_MODELS = "Level0"
# Compilation during a recording: CANN compiles an operator for new shapes within
# aclopCompileAndExecute (sample msinsight-910B-alexnet-2501); torch a function:
# _compile.compile_inner (dynamo_timed) in the trace of torch 2.13.
_CANN = re.compile(r"AscendCL@")
_OPERATOR_COMPILED = re.compile(r"AscendCL@opCompile")
_FUNCTION_COMPILED = re.compile(r"_compile\.\S*compile_inner \(dynamo_timed\)")


class _Effort(NamedTuple):
    """The most seconds for compiling, and the seconds of the comparison."""

    compile: float
    compare: float


_QUICK = _Effort(compile=14.0, compare=1.0)
_FULL = _Effort(compile=120.0, compare=5.0)
# Breaks and recompiles are exact, and take 2 s on a small model. This ends only what
# would never end, so that a busy machine has them too; so does the limit for compiling
# in a check. It ends before the step's own time in a check, and so gives the reason.
_GRAPHS_SECONDS = 30.0
_SECONDS_OF_A_CHECK = 300.0


class GraphStep:
    """Take the graphs of every shape for breaks and recompiles; compile the first shape
    for the device and time it.
    """

    card = card(9)

    def measure(self, context: StepContext) -> StepOutcome:
        """Unavailable if torch has no compiler for the device, or can neither take nor
        run a graph.
        """
        if TORCH_BACKENDS.get(context.device.kind) is None:
            return unavailable(
                Message("graph.no-compiler", {"kind": context.device.kind})
            )
        shape = context.workload.shapes[0]
        with quiet():
            for _ in range(WARM_UP_CALLS):
                own_call(context, shape)
            compiles_itself = has_compiled()
            take = partial(_take_graphs, context, compiles_itself=compiles_itself)
            graphs = experiment(context, take, failing="graph.fails")
            timed: _Timed | FailedExperiment = FailedExperiment(
                Message("graph.not-compiled-for-check")
            )
            if not context.extent.exact_only:
                timed = experiment(
                    context, partial(_time_graph, context, shape), failing="graph.fails"
                )
        if isinstance(graphs, FailedExperiment) and isinstance(timed, FailedExperiment):
            return unavailable(together([graphs.reason, timed.reason]))
        outcome = context.outcome()
        of_shape = outcome.under(shape=shape)
        _judge_graphs(outcome, graphs)
        _judge_timed(of_shape, timed, compiles_itself=compiles_itself)
        for failed in (graphs, timed):
            if isinstance(failed, FailedExperiment) and failed.raised:
                of_shape.note("graph.fails", "info", {"why": failed.reason})
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the graphs that every device of a recording ran, and the launches of
        its host.
        """
        spans = spans_of_recording(context.settings.graph_spans)
        level = context.recording.settings.get("level")
        outcome = context.outcome()
        for summary in context.summaries:
            rank = outcome.under(**profiled(summary))
            _add_signs_of_graphs(rank, summary, level)
            calls, parts = head_of_steps(summary.timeline.events, spans)
            if parts:
                _judge_head(
                    rank,
                    parts,
                    float(np.median(calls.end - calls.start)),
                    len(calls.start),
                )
            _judge_compiling(rank, summary)
        return outcome.or_else(unavailable(Message("graph.graph-not-in-recording")))


STEP = GraphStep()


class _Timed(NamedTuple):
    """A compiled call, its difference from the plain one, and its times."""

    call: Compiled
    versus: Versus
    cached_ns: int
    head: Mapping[str, HeadPart]

    @property
    def cold_seconds(self) -> float:
        """The time of compiling, without the call itself."""
        return max(self.call.cold_ns - self.versus.second_ns, 0.0) / 1e9

    @property
    def calls_to_break_even(self) -> float | None:
        """The number of calls that pay for compiling, None if the compiled call is not
        certainly faster.
        """
        saved = (self.versus.first_ns - self.versus.second_ns) / 1e9
        if self.versus.faster and saved > 0:
            return self.cold_seconds / saved
        return None


def compiled_for_check(
    context: StepContext, shape: str
) -> AbstractContextManager[Compiled]:
    """The compiled call of a shape, which a check times on both sides in turns."""
    return compiled(context, shape, seconds=_SECONDS_OF_A_CHECK)


def _take_graphs(context: StepContext, *, compiles_itself: bool) -> Compilations:
    """The compilations over calls of every shape."""
    context.doing("taking the graphs of every shape")
    with apart(), compiling(_GRAPHS_SECONDS):
        twin = (
            context.workload if compiles_itself else compiled_twin(context, GRAPHS_ONLY)
        )
        return compilations(twin, context.workload.shapes)


def _time_graph(context: StepContext, shape: str) -> _Timed:
    """The times of the compiled call."""
    effort = _QUICK if context.extent.quick else _FULL
    context.doing("compiling the call of shape {shape}", shape=shape)
    spans = HEAD_SPANS[context.device.kind]
    if context.settings.graph_spans:
        spans = HeadSpans(*context.settings.graph_spans)
    with compiled(context, shape, seconds=effort.compile) as call:
        context.doing("timing the compiled call of shape {shape}", shape=shape)
        versus = call.compare(context, seconds=effort.compare)
        trace = trace_calls(
            context.device, call.fast, calls=_TRACED_CALLS, within=context.artifacts
        )
        return _Timed(
            call,
            versus,
            call.cached_ns(),
            head_times(trace.events, trace.spans(), spans),
        )


def _judge_graphs(
    outcome: StepOutcome, graphs: Compilations | FailedExperiment
) -> None:
    """Count breaks and recompiles; add a finding for each place of a break, and for
    each recompiled place.
    """
    if isinstance(graphs, FailedExperiment):
        outcome.missing(("graph.breaks", "graph.recompiles"), graphs.reason)
        return
    places = set(chain.from_iterable(graphs.breaks.values()))
    # Sites with a line of the project come first.
    breaks = sorted(
        places, key=lambda site: (site.line is None, site.line or "", site.name)
    )
    recompiles: Counter[Site] = Counter()
    for sites in (*graphs.adapting.values(), *graphs.steady.values()):
        recompiles.update(sites)
    reasons_by_line: dict[str | None, Counter[str]] = {}
    for site, count in recompiles.items():
        reasons_by_line.setdefault(site.line, Counter())[site.name] += count
    for site in breaks[:_MOST_PLACES]:
        outcome.note("graph.break", "warning", {"reason": site.name, "line": site.line})
    for line, reasons in reasons_by_line.items():
        (reason, _), *_ = reasons.most_common(1)
        words = Message(reason) if reason in (NEW_INPUT, COMPILED_AGAIN) else reason
        outcome.above(
            "graph.recompiles",
            float(sum(reasons.values())),
            {"reason": words, "line": line},
        )
    outcome.numbers(
        {
            "graph.breaks": float(len(breaks)),
            "graph.recompiles": float(sum(recompiles.values())),
        }
    )


def _judge_timed(
    outcome: StepOutcome, timed: _Timed | FailedExperiment, *, compiles_itself: bool
) -> None:
    """Judge the gain of compiling; for a workload that compiles itself, the lack of
    one.
    """
    if compiles_itself:
        outcome.note("graph.compiled_already", "info")
    if isinstance(timed, FailedExperiment):
        metrics = (
            "graph.speedup",
            "graph.compile_cold",
            "graph.compile_cached",
            "graph.break_even",
            "graph.head",
        )
        outcome.missing(metrics, timed.reason)
        return
    if timed.call.agrees:
        outcome.speedup("graph.speedup", timed.versus)
    else:
        outcome.missing("graph.speedup", timed.call.disagreement)
    cached = max(timed.cached_ns - timed.versus.second_ns, 0.0) / 1e9
    outcome.numbers(
        {"graph.compile_cold": timed.cold_seconds, "graph.compile_cached": cached}
    )
    if timed.calls_to_break_even is None:
        outcome.missing("graph.break_even", Message("graph.not-faster"))
    else:
        outcome.number("graph.break_even", timed.calls_to_break_even)
    if timed.head:
        _judge_head(outcome, timed.head, timed.versus.second_ns, _TRACED_CALLS)
    else:
        outcome.missing("graph.head", Message("graph.graph-not-in-trace"))
    _judge_gain(outcome, timed, compiles_itself=compiles_itself)


def _judge_gain(outcome: StepOutcome, timed: _Timed, *, compiles_itself: bool) -> None:
    evidence: MaybeEvidence = {
        "graph.speedup": timed.versus.speedup,
        "at least": timed.versus.low,
        "compile [s]": timed.cold_seconds,
    }
    if not timed.call.agrees:
        outcome.note(
            "graph.disagrees", "warning" if compiles_itself else "info", evidence
        )
    elif compiles_itself and not timed.versus.faster:
        outcome.note("graph.no_gain", "warning", evidence)
    elif not compiles_itself and timed.calls_to_break_even is not None:
        outcome.note(
            "graph.gain",
            "info",
            {**evidence, "calls until it has paid": timed.calls_to_break_even},
        )


def _add_signs_of_graphs(
    outcome: StepOutcome, summary: DeviceSummary, level: str | None
) -> None:
    """Add the graph launches of a device and its host, as far as they were recorded."""
    events = summary.timeline.events.of_kind("runtime")
    launches: Counter[str] = Counter()
    for name, count in zip(
        events.names, counts_by_name(events.name, len(events.names)).tolist()
    ):
        for kind, calls in _LAUNCHES.items():
            if count and calls.search(name):
                launches[kind] += count
                break
    for kind, count in sorted(launches.items()):
        outcome.under(kind=kind).number("graph.launches", count / summary.spans)
    # Kernels of a graph carry its number, if the profiler's table has one.
    computed = replayed = 0
    for kernel, number, _ in KernelTable.of(summary.timeline.kernels or ()).alike():
        if not kernel.is_collective:
            computed += number
            if kernel.launch.model_id is not None:
                replayed += number
    if computed and level != _LEVEL_WITHOUT_MODELS:
        outcome.number("graph.replayed_share", replayed / computed)


def _judge_head(
    outcome: StepOutcome, parts: Mapping[str, HeadPart], call_ns: float, calls: int
) -> None:
    """Add every part of the head, and judge its exposed share of the call: each part
    has its own maintainers.
    """
    for name, part in parts.items():
        outcome.under(part=name).number("graph.head", part.ns / 1e9, count=calls)
        if part.exposed_ns is None:
            continue
        evidence = {
            "time": part.exposed_ns / 1e9,
            "operators": ", ".join(part.operators) or None,
        }
        outcome.above(
            f"graph.head_{name}",
            part.exposed_ns / call_ns,
            {**outcome.labels, **evidence},
        )


def _judge_compiling(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Judge the number and time of compilations in a step.

    CANN's calls without a compilation count as zero; torch marks compilations only.
    """
    events = summary.timeline.events
    shortest_ns = outcome.limit("graph.op_compiled.shortest") * 1e9
    for kind, rule, pattern in (
        ("operator", "graph.op_compiled", _OPERATOR_COMPILED),
        ("function", "graph.compiled_again", _FUNCTION_COMPILED),
    ):
        marks = events.select(events.is_named(pattern.fullmatch))
        # The lookup of a compiled operator is a shorter call of the same name.
        compiled_ns = marks.duration[marks.duration >= shortest_ns]
        if compiled_ns.size or (
            kind == "operator" and events.is_named(_CANN.match).any()
        ):
            count = compiled_ns.size / summary.spans
            outcome.under(kind=kind).number("graph.compiled", count)
            outcome.above(
                rule,
                count,
                {"count": count, "time": int(compiled_ns.sum()) / 1e9 / summary.spans},
            )
