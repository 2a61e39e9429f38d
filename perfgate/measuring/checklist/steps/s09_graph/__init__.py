"""Step 9: what compiling the call to a graph takes and gains, and what breaks the graph."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, together
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment, own_call
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, above, finding, limit
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, unavailable
from perfgate.measuring.checklist.steps.s09_graph.compilation import (
    BACKENDS,
    GRAPHS_ONLY,
    Compiled,
    apart,
    compiled,
    compiled_twin,
    compiling,
)
from perfgate.measuring.checklist.values import missing
from perfgate.measuring.counting.collect import record_calls
from perfgate.measuring.counting.compiled import (
    COMPILED_AGAIN,
    NEW_INPUT,
    Compilations,
    compilations,
    has_compiled,
)
from perfgate.measuring.counting.counters import WARM_UP_CALLS
from perfgate.measuring.counting.tally import Site
from perfgate.measuring.timing.versus import Versus
from perfgate.system.garbage import quiet
from perfgate.trace.analysis import Covered, IntColumn, Intervals, counts_by_name
from perfgate.trace.events import DEVICE_KINDS, EventTable
from perfgate.trace.kernel_table import KernelTable
from perfgate.trace.spans import KERNEL_LAUNCH, launch_starts, launched_or_began
from perfgate.trace.steps import step_marks, windows_of
from perfgate.trace.summary import DeviceSummary

_TRACED_CALLS = 5
_MOST_PLACES = 10
# One kernel (Node@launch of CANN, cudaLaunchKernel, hipLaunchKernel …) or a whole graph at once.
_LAUNCHES: Mapping[str, re.Pattern[str]] = {
    "graph": re.compile(r"(cuda|hip)GraphLaunch|aclmdlRIExecute|Model@|ModelExecute"),
    "kernel": KERNEL_LAUNCH,
}
_LEVEL_WITHOUT_MODELS = "Level0"
# What compiles while a recording runs: CANN an operator for new shapes, within aclopCompileAndExecute (sample
# msinsight-910B-alexnet-2501); torch a function: _compile.compile_inner (dynamo_timed) in the trace of torch 2.13.
_CANN = re.compile(r"AscendCL@")
_OPERATOR_COMPILED = re.compile(r"AscendCL@opCompile")
_FUNCTION_COMPILED = re.compile(r"_compile\.\S*compile_inner \(dynamo_timed\)")


@dataclass(frozen=True)
class _Effort:
    """The most seconds for taking graphs and for compiling, and the seconds of the comparison."""

    graphs: float
    compile: float
    compare: float


# Quick is 20 s at most on a small model: what is left is a copy of the model, a trace and the caches.
_QUICK = _Effort(graphs=4.0, compile=14.0, compare=1.0)
_FULL = _Effort(graphs=60.0, compile=120.0, compare=5.0)


class GraphStep:
    """Take the graphs of every shape for breaks and recompiles; compile the first shape for the device and time it."""

    card = card(9)

    def measure(self, context: StepContext) -> StepOutcome:
        """Unavailable where torch compiles nothing for the device, or can neither take nor run a graph."""
        if context.device.kind not in BACKENDS:
            return unavailable(Message("graph.no-compiler", {"kind": context.device.kind}))
        effort = _QUICK if context.quick else _FULL
        shape = context.workload.shapes[0]
        with quiet():
            for _ in range(WARM_UP_CALLS):
                own_call(context, shape)
            compiles_itself = has_compiled()
            take = partial(_take_graphs, context, effort.graphs, compiles_itself=compiles_itself)
            graphs = experiment(context, take, failing="graph.fails")
            timed = experiment(context, partial(_time_graph, context, shape, effort), failing="graph.fails")
        if isinstance(graphs, FailedExperiment) and isinstance(timed, FailedExperiment):
            return unavailable(together([graphs.reason, timed.reason]))
        outcome = _judge_graphs(graphs, context.limits)
        outcome.add(_judge_timed(timed, {"shape": shape}, context.limits, compiles_itself=compiles_itself))
        outcome.findings += [
            finding("graph.fails", "info", {"shape": shape, "why": failed.reason})
            for failed in (graphs, timed)
            if isinstance(failed, FailedExperiment) and failed.raised
        ]
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Say what every device of a recording ran from graphs, and what its host launched."""
        spans = [HeadSpans(*context.graph_spans)] if context.graph_spans else list(dict.fromkeys(HEAD_SPANS.values()))
        level = context.recording.settings.get("level")
        outcome = StepOutcome()
        for summary in context.summaries:
            outcome.values += _signs_of_graphs(summary, level)
            outcome.add(_judge_recorded_head(summary, spans, context.limits))
            outcome.add(_judge_compiling(summary, context.limits))
        return outcome if outcome.values else unavailable(Message("graph.graph-not-in-recording"))


STEP = GraphStep()


@dataclass(frozen=True)
class _Timed:
    """A compiled call, how far it is from the plain one, and what is known of its times."""

    call: Compiled
    versus: Versus
    cached_ns: int
    head: Mapping[str, HeadPart]

    @property
    def cold_seconds(self) -> float:
        """What compiling took, a steady call taken off."""
        return max(self.call.cold_ns - self.versus.second_ns, 0.0) / 1e9

    @property
    def calls_to_break_even(self) -> float | None:
        """How many calls pay for compiling, None where the compiled call is not faster beyond doubt."""
        saved = (self.versus.first_ns - self.versus.second_ns) / 1e9
        return self.cold_seconds / saved if self.versus.faster and saved > 0 else None


def _take_graphs(context: StepContext, seconds: float, *, compiles_itself: bool) -> Compilations:
    """What is compiled over calls of every shape."""
    context.progress("taking the graphs of every shape")
    with apart(), compiling(seconds):
        twin = context.workload if compiles_itself else compiled_twin(context, GRAPHS_ONLY)
        return compilations(twin, context.workload.shapes, root=context.root)


def _time_graph(context: StepContext, shape: str, effort: _Effort) -> _Timed:
    """The times of the compiled call."""
    context.progress(f"compiling the call of shape {shape}")
    spans = HeadSpans(*context.graph_spans) if context.graph_spans else HEAD_SPANS[context.device.kind]
    with compiled(context, shape, seconds=effort.compile) as call:
        context.progress(f"timing the compiled call of shape {shape}")
        versus = call.compare(context, seconds=effort.compare)
        with tempfile.TemporaryDirectory(dir=context.artifacts, prefix=".graph-") as folder:
            trace = record_calls(context.device, call.fast, calls=_TRACED_CALLS, folder=Path(folder), name="trace")
        return _Timed(call, versus, call.cached_ns(), head_times(trace.events, trace.spans(), spans))


def _judge_graphs(graphs: Compilations | FailedExperiment, limits: Limits) -> StepOutcome:
    """Count breaks and recompiles; a finding for each place that breaks the graph, and for each that is compiled anew."""
    if isinstance(graphs, FailedExperiment):
        return StepOutcome(missing(("graph.breaks", "graph.recompiles"), graphs.reason))
    places = {site for sites in graphs.breaks.values() for site in sites}
    # Those with a line of the project first.
    breaks = sorted(places, key=lambda site: (site.line is None, site.line or "", site.name))
    recompiles: Counter[Site] = Counter()
    for sites in (*graphs.adapting.values(), *graphs.steady.values()):
        recompiles.update(sites)
    reasons_by_line: dict[str | None, Counter[str]] = {}
    for site, count in recompiles.items():
        reasons_by_line.setdefault(site.line, Counter())[site.name] += count
    findings = [
        finding("graph.break", "warning", {"reason": site.name, "line": site.line}) for site in breaks[:_MOST_PLACES]
    ]
    for line, reasons in reasons_by_line.items():
        (reason, _), *_ = reasons.most_common(1)
        times = float(sum(reasons.values()))
        words = Message(reason) if reason in (NEW_INPUT, COMPILED_AGAIN) else reason
        findings += above("graph.recompiles", times, limits, {"reason": words, "line": line})
    return StepOutcome(
        [
            Value(metric="graph.breaks", value=float(len(breaks))),
            Value(metric="graph.recompiles", value=float(sum(recompiles.values()))),
        ],
        findings,
    )


def _judge_timed(
    timed: _Timed | FailedExperiment, labels: dict[str, str], limits: Limits, *, compiles_itself: bool
) -> StepOutcome:
    """Say what compiling gains; of a workload that compiles itself, that it gains nothing."""
    outcome = StepOutcome()
    if compiles_itself:
        outcome.findings.append(finding("graph.compiled_already", "info", labels))
    if isinstance(timed, FailedExperiment):
        metrics = ("graph.speedup", "graph.compile_cold", "graph.compile_cached", "graph.break_even", "graph.head")
        outcome.values += missing(metrics, timed.reason, labels)
        return outcome
    if timed.call.agrees:
        outcome.values.append(timed.versus.value("graph.speedup", labels))
    else:
        outcome.values += missing("graph.speedup", timed.call.disagreement, labels)
    cached = max(timed.cached_ns - timed.versus.second_ns, 0.0) / 1e9
    break_even = timed.calls_to_break_even
    outcome.values += [
        Value(metric="graph.compile_cold", value=timed.cold_seconds, labels=labels),
        Value(metric="graph.compile_cached", value=cached, labels=labels),
        Value(
            metric="graph.break_even",
            value=break_even,
            labels=labels,
            reason=Message("graph.not-faster") if break_even is None else None,
        ),
    ]
    if timed.head:
        outcome.add(_judge_head(timed.head, timed.versus.second_ns, _TRACED_CALLS, labels, limits))
    else:
        outcome.values += missing("graph.head", Message("graph.graph-not-in-trace"), labels)
    outcome.findings += _judge_gain(timed, labels, compiles_itself=compiles_itself)
    return outcome


def _judge_gain(timed: _Timed, labels: dict[str, str], *, compiles_itself: bool) -> list[Finding]:
    evidence: MaybeEvidence = {
        **labels,
        "graph.speedup": timed.versus.speedup,
        "at least": timed.versus.low,
        "compile [s]": timed.cold_seconds,
    }
    if not timed.call.agrees:
        return [finding("graph.disagrees", "warning" if compiles_itself else "info", evidence)]
    if compiles_itself:
        return [] if timed.versus.faster else [finding("graph.no_gain", "warning", evidence)]
    if timed.calls_to_break_even is None:
        return []
    return [finding("graph.gain", "info", {**evidence, "calls until it has paid": timed.calls_to_break_even})]


def _signs_of_graphs(summary: DeviceSummary, level: str | None) -> list[Value]:
    """What one device and its host show of graphs; nothing for what was not recorded."""
    labels = profiled(summary)
    events = summary.timeline.events.of_kind("runtime")
    kinds = [next((kind for kind, calls in _LAUNCHES.items() if calls.search(name)), None) for name in events.names]
    launches: Counter[str] = Counter()
    for kind, count in zip(kinds, counts_by_name(events.name, len(kinds)).tolist()):
        if kind is not None and count:
            launches[kind] += count
    values = [
        Value(metric="graph.launches", value=count / summary.spans, labels={**labels, "kind": kind})
        for kind, count in sorted(launches.items())
    ]
    # Kernels that a graph ran carry its number, where the profiler's table has one.
    kernels = KernelTable.of(summary.timeline.kernels or ()).alike()
    computed = [alike for alike in kernels if not alike.kernel.is_collective]
    if computed and level != _LEVEL_WITHOUT_MODELS:
        replayed = sum(number for kernel, number, _ in computed if kernel.model_id is not None)
        share = replayed / sum(alike.number for alike in computed)
        values.append(Value(metric="graph.replayed_share", value=share, labels=labels))
    return values


def _judge_recorded_head(summary: DeviceSummary, names: Sequence[HeadSpans], limits: Limits) -> StepOutcome:
    calls, parts = head_of_steps(summary.timeline.events, names)
    if not parts:
        return StepOutcome()
    return _judge_head(parts, float(np.median(calls.end - calls.start)), len(calls.start), profiled(summary), limits)


def _judge_head(
    parts: Mapping[str, HeadPart], call_ns: float, calls: int, labels: dict[str, str], limits: Limits
) -> StepOutcome:
    """Every part of the head, and of which the device waits for much of the call: each part has its own maintainers."""
    outcome = StepOutcome()
    for name, part in parts.items():
        value = Value(metric="graph.head", value=part.ns / 1e9, count=calls, labels={**labels, "part": name})
        outcome.values.append(value)
        if part.exposed_ns is None:
            continue
        evidence: MaybeEvidence = {
            **labels,
            "time": part.exposed_ns / 1e9,
            "operators": ", ".join(part.operators) or None,
        }
        outcome.findings += above(_HEAD_RULES[name], part.exposed_ns / call_ns, limits, evidence)
    return outcome


def _judge_compiling(summary: DeviceSummary, limits: Limits) -> StepOutcome:
    """How often the host compiled in a step, and how long.

    No operator was compiled where CANN's calls were recorded without such a call; torch marks only what it compiles.
    """
    outcome, labels, events = StepOutcome(), profiled(summary), summary.timeline.events
    shortest_ns = limit("graph.op_compiled.shortest", limits) * 1e9
    for kind, rule, pattern in (
        ("operator", "graph.op_compiled", _OPERATOR_COMPILED),
        ("function", "graph.compiled_again", _FUNCTION_COMPILED),
    ):
        marks = events.select(events.is_named(pattern.fullmatch))
        # Finding what is compiled already is a call of the same name.
        compiled_ns = marks.duration[marks.duration >= shortest_ns]
        if compiled_ns.size or (kind == "operator" and events.is_named(_CANN.match).any()):
            count = compiled_ns.size / summary.spans
            outcome.values.append(Value(metric="graph.compiled", value=count, labels={**labels, "kind": kind}))
            evidence: MaybeEvidence = {
                "shape": summary.shape,
                "count": count,
                "time": int(compiled_ns.sum()) / 1e9 / summary.spans,
            }
            outcome.findings += above(rule, count, limits, evidence)
    return outcome


class HeadSpans(NamedTuple):
    """Parts of the names of spans: the compiler's entry of a call, running the graph, and where its native code begins."""

    compiler: str
    graph: str
    native: str = ""


class HeadPart(NamedTuple):
    """A part of the head in nanoseconds of a typical call, and how many of them no device works: None where none was recorded.

    ``operators`` are the names of the host's operators that take most of it.
    """

    ns: float
    exposed_ns: float | None
    operators: tuple[str, ...] = ()


# torchair wraps every call in record_function("npu_fx_compiler inference"), which some builds write with an underscore, and
# runs its graph in ExecuteGraph (torch_npu, dynamo/torchair/npu_fx_compiler.py), within TorchNpuGraphBase::Run of its C++
# side where that is marked; dynamo and inductor mark theirs since torch 2.1.
HEAD_SPANS: Mapping[str, HeadSpans] = {
    "npu": HeadSpans("npu_fx_compiler inference", "ExecuteGraph", "TorchNpuGraphBase::Run"),
    "cuda": HeadSpans("Torch-Compiled Region", "Call CompiledFxGraph"),
    "cpu": HeadSpans("Torch-Compiled Region", "Call CompiledFxGraph"),
}
_WHOLE, _SPLIT = ("framework", "compiler", "graph"), ("framework", "python", "native", "graph")
_HEAD_RULES: Mapping[str, str] = {part: f"graph.head_{part}" for part in (*_WHOLE, *_SPLIT)}
_MOST_OPERATORS = 3


def head_times(events: EventTable, calls: Intervals, names: HeadSpans) -> dict[str, HeadPart]:
    """The parts of a typical call's head; none where a call does not hold both spans and work after them.

    The framework's part lasts until the compiler's entry, the compiler's until the graph is run (in two, ``python`` and
    ``native``, where every call marks its native code), the graph's until the first work. Work is what runs on the device, or
    where the trace shows no device the first operator inside the graph; inductor's own kernels on a CPU leave no mark in a
    trace. The graph's part does not last until the entry's span ends: what the host does after the first kernel began is
    hidden behind the device.
    """
    device = events.of_kind(*DEVICE_KINDS)
    work = device if len(device) else _operators(events)
    # The host may be done with a call before the device begins it, so work is of the call that launched it.
    launched = launched_or_began(work, launch_starts(work, events.of_kind("runtime")))
    order = np.lexsort((work.start, launched))
    launches, begins = launched[order], work.start[order]
    compiler, graph, native = (np.sort(_named(events, part).start) for part in names)
    bounds, natives = [], []
    for start, end in zip(calls.start.tolist(), calls.end.tolist()):
        entry = _next_start(compiler, start, end)
        run = None if entry is None else _next_start(graph, entry, end)
        launch = None if run is None else _next_start(launches, run, end)
        if entry is None or run is None or launch is None:
            return {}
        bounds.append([start, entry, run, int(begins[np.searchsorted(launches, launch)])])
        natives.append(_next_start(native, entry, run))
    if not bounds:
        return {}
    moments = np.array(bounds, np.int64)
    is_split = None not in natives
    if is_split:
        moments = np.insert(moments, 2, np.array(natives, np.int64), axis=1)
    busy = Covered(device.intervals) if len(device) else None
    inner = _operators(events)
    inner = inner.select(~inner.is_named(_holds(*names)))
    parts = {}
    for at, part in enumerate(_SPLIT if is_split else _WHOLE):
        windows = Intervals(moments[:, at], moments[:, at + 1])
        lengths = windows.end - windows.start
        exposed = None if busy is None else float(np.median(lengths - busy.within(windows)))
        parts[part] = HeadPart(float(np.median(lengths)), exposed, _longest_operators(inner, windows))
    return parts


def head_of_steps(events: EventTable, known: Sequence[HeadSpans]) -> tuple[Intervals, dict[str, HeadPart]]:
    """The calls and the parts of their head: from the begin of a step on, where steps are marked and each runs a graph.

    Else a call lasts from one entry of the compiler to the next, and has no part of the framework; none where no known span
    is in the recording.
    """
    marks = step_marks(events)
    for names in known:
        entries = np.sort(_named(events, names.compiler).start)
        if not entries.size:
            continue
        if marks and (times := head_times(events, steps := windows_of(marks), names)):
            return steps, times
        calls = Intervals(entries, np.append(entries[1:], (events.start + events.duration).max()))
        if times := head_times(events, calls, names):
            del times["framework"]
            return calls, times
    return Intervals(np.array([], np.int64), np.array([], np.int64)), {}


def _longest_operators(operators: EventTable, windows: Intervals) -> tuple[str, ...]:
    """The operators that begin in these windows, which do not overlap, those of most time first."""
    at = np.searchsorted(windows.start, operators.start, side="right") - 1
    inside = operators.select((at >= 0) & (operators.start < windows.end[at]))
    times = np.bincount(inside.name, inside.duration, len(inside.names))
    return tuple(inside.names[code] for code in np.argsort(-times, kind="stable")[:_MOST_OPERATORS] if times[code])


def _next_start(starts: IntColumn, begin: int, end: int) -> int | None:
    at = int(np.searchsorted(starts, begin))
    return int(starts[at]) if at < starts.size and starts[at] < end else None


def _named(events: EventTable, part: str) -> EventTable:
    return events.select(events.is_named(_holds(part)))


def _holds(*parts: str) -> Callable[[str], bool]:
    """Whether a name has one of these parts, a space and an underscore being alike; an empty part is in none."""
    wanted = [part.replace("_", " ") for part in parts if part]
    return lambda name: any(part in name.replace("_", " ") for part in wanted)


def _operators(events: EventTable) -> EventTable:
    """The operators of a namespace; the compiler's own marks count as operators too, and have none."""
    return _named(events.of_kind("host_op"), "::")
