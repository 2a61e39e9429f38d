"""Step 9: the cost and gain of compiling the call to a graph, and the causes of graph breaks."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, together
from perfgate.locale import Activity
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment, own_call
from perfgate.measuring.checklist.limits import MaybeEvidence, limit
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
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import Covered, IntColumn, Intervals, counts_by_name
from perfgate.trace.model.events import DEVICE_KINDS, EventTable
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.spans import KERNEL_LAUNCH, launch_starts, launched_or_began
from perfgate.trace.model.steps import step_marks, windows_of

_TRACED_CALLS = 5
_MOST_PLACES = 10
# One kernel (Node@launch of CANN, cudaLaunchKernel, hipLaunchKernel …) or a whole graph at once.
_LAUNCHES: Mapping[str, re.Pattern[str]] = {
    "graph": re.compile(r"(cuda|hip)GraphLaunch|aclmdlRIExecute|Model@|ModelExecute"),
    "kernel": KERNEL_LAUNCH,
}
_LEVEL_WITHOUT_MODELS = "Level0"
# Compilation during a recording: CANN compiles an operator for new shapes within aclopCompileAndExecute (sample
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


# Breaks and recompiles are exact, and take 2 s on a small model: their limit ends only what would never end, so that a busy
# machine has them too. Compiling is given up earlier.
_QUICK = _Effort(graphs=60.0, compile=14.0, compare=1.0)
_FULL = _Effort(graphs=60.0, compile=120.0, compare=5.0)
# A check takes graphs and compiles on a machine that may be busy: these end only what would never end.
_OF_A_CHECK = _Effort(graphs=60.0, compile=300.0, compare=0.3)


class GraphStep:
    """Take the graphs of every shape for breaks and recompiles; compile the first shape for the device and time it."""

    card = card(9)

    def measure(self, context: StepContext) -> StepOutcome:
        """Unavailable if torch has no compiler for the device, or can neither take nor run a graph."""
        if context.device.kind not in BACKENDS:
            return unavailable(Message("graph.no-compiler", {"kind": context.device.kind}))
        effort = _OF_A_CHECK if context.exact_only else _QUICK if context.quick else _FULL
        shape = context.workload.shapes[0]
        with quiet():
            for _ in range(WARM_UP_CALLS):
                own_call(context, shape)
            compiles_itself = has_compiled()
            take = partial(_take_graphs, context, effort.graphs, compiles_itself=compiles_itself)
            graphs = experiment(context, take, failing="graph.fails")
            timed = (
                FailedExperiment(Message("graph.not-compiled-for-check"))
                if context.exact_only
                else experiment(context, partial(_time_graph, context, shape, effort), failing="graph.fails")
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
        """Judge the graphs that every device of a recording ran, and the launches of its host."""
        spans = [HeadSpans(*context.graph_spans)] if context.graph_spans else list(dict.fromkeys(HEAD_SPANS.values()))
        level = context.recording.settings.get("level")
        outcome = context.outcome()
        for summary in context.summaries:
            rank = outcome.under(**profiled(summary))
            _add_signs_of_graphs(rank, summary, level)
            calls, parts = head_of_steps(summary.timeline.events, spans)
            if parts:
                _judge_head(rank, parts, float(np.median(calls.end - calls.start)), len(calls.start))
            _judge_compiling(rank, summary)
        return outcome if outcome.values else unavailable(Message("graph.graph-not-in-recording"))


STEP = GraphStep()


@dataclass(frozen=True)
class _Timed:
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
        """The number of calls that pay for compiling, None if the compiled call is not certainly faster."""
        saved = (self.versus.first_ns - self.versus.second_ns) / 1e9
        return self.cold_seconds / saved if self.versus.faster and saved > 0 else None


def compiled_for_check(context: StepContext, shape: str) -> AbstractContextManager[Compiled]:
    """The compiled call of a shape, which a check times on both sides in turns."""
    return compiled(context, shape, seconds=_OF_A_CHECK.compile)


def _take_graphs(context: StepContext, seconds: float, *, compiles_itself: bool) -> Compilations:
    """The compilations over calls of every shape."""
    context.progress(Activity("taking the graphs of every shape"))
    with apart(), compiling(seconds):
        twin = context.workload if compiles_itself else compiled_twin(context, GRAPHS_ONLY)
        return compilations(twin, context.workload.shapes, root=context.root)


def _time_graph(context: StepContext, shape: str, effort: _Effort) -> _Timed:
    """The times of the compiled call."""
    context.progress(Activity("compiling the call of shape {shape}", shape=shape))
    spans = HeadSpans(*context.graph_spans) if context.graph_spans else HEAD_SPANS[context.device.kind]
    with compiled(context, shape, seconds=effort.compile) as call:
        context.progress(Activity("timing the compiled call of shape {shape}", shape=shape))
        versus = call.compare(context, seconds=effort.compare)
        with tempfile.TemporaryDirectory(dir=context.artifacts, prefix=".graph-") as folder:
            trace = record_calls(context.device, call.fast, calls=_TRACED_CALLS, folder=Path(folder), name="trace")
        return _Timed(call, versus, call.cached_ns(), head_times(trace.events, trace.spans(), spans))


def _judge_graphs(outcome: StepOutcome, graphs: Compilations | FailedExperiment) -> None:
    """Count breaks and recompiles; add a finding for each place of a break, and for each recompiled place."""
    if isinstance(graphs, FailedExperiment):
        outcome.missing(("graph.breaks", "graph.recompiles"), graphs.reason)
        return
    places = set(chain.from_iterable(graphs.breaks.values()))
    # Sites with a line of the project come first.
    breaks = sorted(places, key=lambda site: (site.line is None, site.line or "", site.name))
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
        outcome.above("graph.recompiles", float(sum(reasons.values())), {"reason": words, "line": line})
    outcome.numbers({"graph.breaks": float(len(breaks)), "graph.recompiles": float(sum(recompiles.values()))})


def _judge_timed(outcome: StepOutcome, timed: _Timed | FailedExperiment, *, compiles_itself: bool) -> None:
    """Judge the gain of compiling; for a workload that compiles itself, the lack of one."""
    if compiles_itself:
        outcome.note("graph.compiled_already", "info")
    if isinstance(timed, FailedExperiment):
        metrics = ("graph.speedup", "graph.compile_cold", "graph.compile_cached", "graph.break_even", "graph.head")
        outcome.missing(metrics, timed.reason)
        return
    if timed.call.agrees:
        outcome.speedup("graph.speedup", timed.versus)
    else:
        outcome.missing("graph.speedup", timed.call.disagreement)
    cached = max(timed.cached_ns - timed.versus.second_ns, 0.0) / 1e9
    outcome.numbers({"graph.compile_cold": timed.cold_seconds, "graph.compile_cached": cached})
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
        outcome.note("graph.disagrees", "warning" if compiles_itself else "info", evidence)
    elif compiles_itself and not timed.versus.faster:
        outcome.note("graph.no_gain", "warning", evidence)
    elif not compiles_itself and timed.calls_to_break_even is not None:
        outcome.note("graph.gain", "info", {**evidence, "calls until it has paid": timed.calls_to_break_even})


def _add_signs_of_graphs(outcome: StepOutcome, summary: DeviceSummary, level: str | None) -> None:
    """Add the graph launches of a device and its host, as far as they were recorded."""
    events = summary.timeline.events.of_kind("runtime")
    launches: Counter[str] = Counter()
    for name, count in zip(events.names, counts_by_name(events.name, len(events.names)).tolist()):
        kind = next((kind for kind, calls in _LAUNCHES.items() if calls.search(name)), None)
        if kind is not None and count:
            launches[kind] += count
    for kind, count in sorted(launches.items()):
        outcome.under(kind=kind).number("graph.launches", count / summary.spans)
    # Kernels of a graph carry its number, if the profiler's table has one.
    kernels = KernelTable.of(summary.timeline.kernels or ()).alike()
    computed = [alike for alike in kernels if not alike.kernel.is_collective]
    if computed and level != _LEVEL_WITHOUT_MODELS:
        replayed = sum(number for kernel, number, _ in computed if kernel.model_id is not None)
        outcome.number("graph.replayed_share", replayed / sum(alike.number for alike in computed))


def _judge_head(outcome: StepOutcome, parts: Mapping[str, HeadPart], call_ns: float, calls: int) -> None:
    """Add every part of the head, and judge its exposed share of the call: each part has its own maintainers."""
    for name, part in parts.items():
        outcome.under(part=name).number("graph.head", part.ns / 1e9, count=calls)
        if part.exposed_ns is None:
            continue
        evidence = {"time": part.exposed_ns / 1e9, "operators": ", ".join(part.operators) or None}
        outcome.above(_HEAD_RULES[name], part.exposed_ns / call_ns, {**outcome.labels, **evidence})


def _judge_compiling(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Judge the number and time of compilations in a step.

    CANN's calls without a compilation count as zero; torch marks compilations only.
    """
    events = summary.timeline.events
    shortest_ns = limit("graph.op_compiled.shortest", outcome.limits) * 1e9
    for kind, rule, pattern in (
        ("operator", "graph.op_compiled", _OPERATOR_COMPILED),
        ("function", "graph.compiled_again", _FUNCTION_COMPILED),
    ):
        marks = events.select(events.is_named(pattern.fullmatch))
        # The lookup of a compiled operator is a shorter call of the same name.
        compiled_ns = marks.duration[marks.duration >= shortest_ns]
        if compiled_ns.size or (kind == "operator" and events.is_named(_CANN.match).any()):
            count = compiled_ns.size / summary.spans
            outcome.under(kind=kind).number("graph.compiled", count)
            outcome.above(rule, count, {"count": count, "time": int(compiled_ns.sum()) / 1e9 / summary.spans})


class HeadSpans(NamedTuple):
    """Parts of span names: the compiler's entry of a call, running the graph, and the start of its native code."""

    compiler: str
    graph: str
    native: str = ""


class HeadPart(NamedTuple):
    """A part of the head in nanoseconds of a typical call, and its exposed part, None if no device was recorded.

    ``operators`` are the names of its longest host operators.
    """

    ns: float
    exposed_ns: float | None
    operators: tuple[str, ...] = ()


# torchair wraps every call in record_function("npu_fx_compiler inference"), which some builds write with an underscore, and
# runs its graph in ExecuteGraph (torch_npu, dynamo/torchair/npu_fx_compiler.py), within TorchNpuGraphBase::Run if its C++
# side is marked; dynamo and inductor mark theirs since torch 2.1.
HEAD_SPANS: Mapping[str, HeadSpans] = {
    "npu": HeadSpans("npu_fx_compiler inference", "ExecuteGraph", "TorchNpuGraphBase::Run"),
    "cuda": HeadSpans("Torch-Compiled Region", "Call CompiledFxGraph"),
    "cpu": HeadSpans("Torch-Compiled Region", "Call CompiledFxGraph"),
}
_WHOLE, _SPLIT = ("framework", "compiler", "graph"), ("framework", "python", "native", "graph")
_HEAD_RULES: Mapping[str, str] = {part: f"graph.head_{part}" for part in (*_WHOLE, *_SPLIT)}
_MOST_OPERATORS = 3
# What torch.compile returns, as Python's function and module mark it, and the loading of data before it.
_MODULE = re.compile(r"OptimizedModule|Torch-Compiled Region")
_LOADING = re.compile(r"enumerate\(DataLoader\)|DataLoader.*__next__")


def head_times(events: EventTable, calls: Intervals, names: HeadSpans) -> dict[str, HeadPart]:
    """The parts of a typical call's head, all its compiled modules together; none unless every call has a whole one.

    The framework's part begins with the compiled module and ends at the compiler's entry, the compiler's at the start of the
    graph (split into ``python`` and ``native`` if every module marks its native code), the graph's at the first work. Work is a
    device event, or without a device the first operator inside the graph; inductor's own kernels on a CPU leave no mark in a
    trace. The graph's part ends before its span does: host time after the first kernel began is hidden behind the device.
    """
    device = events.of_kind(*DEVICE_KINDS)
    marks = _HeadMarks(events, device, names)
    heads = [marks.heads(start, end) for start, end in zip(calls.start.tolist(), calls.end.tolist())]
    if not heads or not all(heads):
        return {}
    owner = np.repeat(np.arange(len(heads)), [len(own) for own in heads])
    every = list(chain.from_iterable(heads))
    moments = np.array([(head.module, head.entry, head.run, head.begun) for head in every], np.int64)
    natives = [head.native for head in every]
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
        exposed = None if busy is None else _typical(owner, lengths - busy.within(windows))
        parts[part] = HeadPart(_typical(owner, lengths), exposed, _longest_operators(inner, windows))
    return parts


class _Head(NamedTuple):
    """The moments of one compiled module: its begin, the compiler's entry, native code, the graph, and the first work."""

    module: int
    entry: int
    native: int | None
    run: int
    begun: int


class _HeadMarks:
    """The begins of all compiled modules of a recording, and the launches of the work that follows them."""

    def __init__(self, events: EventTable, device: EventTable, names: HeadSpans) -> None:
        work = device if len(device) else _operators(events)
        # The host may finish a call before the device begins it, so work belongs to the call that launched it.
        launched = launched_or_began(work, launch_starts(work, events.of_kind("runtime")))
        order = np.lexsort((work.start, launched))
        self._launches, self._begins = launched[order], work.start[order]
        self._compiler, self._graph, self._native = (np.sort(_named(events, part).start) for part in names)
        # The region that torch marks is the compiler's own entry of some backends.
        self._modules = events.select(events.is_named(_MODULE.search) & ~events.is_named(_holds(names.compiler)))
        self._loading = events.select(events.is_named(_LOADING.search))

    def heads(self, start: int, end: int) -> list[_Head]:
        """Those of one call. An entry of the compiler without a graph of its own lies inside another, and is none."""
        first, last = np.searchsorted(self._compiler, (start, end)).tolist()
        entries = self._compiler[first:last].tolist()
        found: list[_Head] = []
        for entry, until in zip(entries, [*entries[1:], end]):
            run = _next_start(self._graph, entry, until)
            launch = None if run is None else _next_start(self._launches, run, until)
            if run is None or launch is None:
                continue
            begun = int(self._begins[np.searchsorted(self._launches, launch)])
            module = self._module(start if not found else entry, entry)
            found.append(_Head(module, entry, _next_start(self._native, entry, run), run, begun))
        # The next module's head begins while the device still works for this one.
        following = [head.module for head in found[1:]]
        return [
            *(head._replace(begun=max(head.run, min(head.begun, then))) for head, then in zip(found, following)),
            *found[-1:],
        ]

    def _module(self, start: int, entry: int) -> int:
        """When the compiled module around an entry began, else the given start, or the end of loading data after it."""
        modules = self._modules
        around = (modules.start >= start) & (modules.start <= entry) & (modules.end >= entry)
        if around.any():
            return int(modules.start[around].min())
        loaded = self._loading.end[(self._loading.end > start) & (self._loading.end <= entry)]
        return int(loaded.max(initial=start))


def _typical(owner: IntColumn, lengths: IntColumn) -> float:
    """The median over calls of the sum of their modules."""
    return float(np.median(np.bincount(owner, lengths)))


def head_of_steps(events: EventTable, known: Sequence[HeadSpans]) -> tuple[Intervals, dict[str, HeadPart]]:
    """The calls and the parts of their head, from the start of each step if steps are marked and each runs a graph.

    Otherwise a call lasts from one entry of the compiler to the next, without the framework's part; no calls if the
    recording has no known span.
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
    """The operators that begin in these windows, which do not overlap, most time first."""
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
    """A test for names that contain one of these parts; spaces equal underscores, and an empty part is in no name."""
    wanted = [part.replace("_", " ") for part in parts if part]
    return lambda name: any(part in name.replace("_", " ") for part in wanted)


def _operators(events: EventTable) -> EventTable:
    """The operators with a namespace, unlike the compiler's own marks."""
    return _named(events.of_kind("host_op"), "::")
