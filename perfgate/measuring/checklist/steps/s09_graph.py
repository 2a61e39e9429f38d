"""Step 9: what compiling the call to a graph takes and gains, and what breaks the graph."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, noticed
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._compilation import (
    BACKENDS,
    GRAPHS_ONLY,
    Compiled,
    NotCompiledError,
    apart,
    compiled,
    compiled_twin,
    compiling,
    missing_compiler,
)
from perfgate.measuring.checklist.steps._graph_signs import graph_signs
from perfgate.measuring.checklist.steps._head_overhead import HEAD_SPANS, head_times, spans_of
from perfgate.measuring.counting.collect import record_calls
from perfgate.measuring.counting.compiled import Compilations, compilations, has_compiled
from perfgate.measuring.counting.counters import WARM_UP_CALLS
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.versus import Versus
from perfgate.trace.tally import Site

_TRACED_CALLS = 5
_MOST_PLACES = 10
_NO_GAIN = "the compiled call is not faster beyond doubt, so no number of calls pays for compiling"
_NO_HEAD = "the trace does not show the compiler's entry, the graph and work after it in every call"
_NO_SIGNS = "the recording holds neither launches of kernels or graphs nor kernels with the number of a graph"


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
        """Measure; unavailable where torch compiles nothing for the device, or can neither take nor run a graph."""
        if context.device.kind not in BACKENDS:
            return StepOutcome(status="unavailable", reason=missing_compiler(context.device.kind))
        effort = _QUICK if context.quick else _FULL
        shape = context.workload.shapes[0]
        with quiet():
            call = context.workload.caller(shape)
            for _ in range(WARM_UP_CALLS):
                call()
            own = has_compiled()
            graphs = _take_graphs(context, effort, own=own)
            timed = _time_graph(context, shape, effort)
        if isinstance(graphs, str) and isinstance(timed, str):
            return StepOutcome(status="unavailable", reason="; ".join(dict.fromkeys([graphs, timed])))
        labels = {"shape": shape}
        values = [*_graph_values(graphs), *_timed_values(timed, labels)]
        findings = [*_judge_graphs(graphs, context.limits), *_judge_timed(timed, labels, own=own)]
        return StepOutcome(status=status_of(findings), values=values, findings=findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Say what every device of a recording ran from graphs, and what its host launched."""
        settings, given = context.recording.settings, spans_of(context.graph_spans)
        known = [given] if given else list(dict.fromkeys(HEAD_SPANS.values()))
        values = [value for summary in context.summaries for value in graph_signs(summary, settings, known)]
        if not values:
            return StepOutcome(status="unavailable", reason=_NO_SIGNS)
        return StepOutcome(status="ok", values=values)


STEP = GraphStep()


@dataclass(frozen=True)
class _Timed:
    """A compiled call: how far it is from the plain one, and what is known of its times; ``head`` by part, in nanoseconds."""

    found: Compiled
    versus: Versus
    cached_ns: int
    head: Mapping[str, float] | None

    @property
    def cold_seconds(self) -> float:
        """Return what compiling took, a steady call taken off."""
        return max(self.found.cold_ns - self.versus.second_ns, 0.0) / 1e9

    @property
    def saved_seconds(self) -> float | None:
        """Return what a compiled call saves, None where it is not faster beyond doubt."""
        saved = self.versus.first_ns - self.versus.second_ns
        return saved / 1e9 if self.versus.faster and saved > 0 else None


def _take_graphs(context: StepContext, effort: _Effort, *, own: bool) -> Compilations | str:
    """Return what is compiled over calls of every shape, or why nothing can be."""
    workload = context.workload
    context.progress("taking the graphs of every shape")
    try:
        with apart(), compiling(effort.graphs):
            twin = workload if own else compiled_twin(workload, GRAPHS_ONLY)
            return compilations(twin, workload.shapes, root=context.root)
    except NotCompiledError as error:
        return str(error)


def _time_graph(context: StepContext, shape: str, effort: _Effort) -> _Timed | str:
    """Return the times of the compiled call, or why there are none."""
    context.progress(f"compiling the call of shape {shape}")
    try:
        with compiled(context, shape, seconds=effort.compile) as found:
            context.progress(f"timing the compiled call of shape {shape}")
            versus = found.compare(context, seconds=effort.compare)
            head = _head(context, found)
            return _Timed(found, versus, found.cached_ns(), head)
    except NotCompiledError as error:
        return str(error)


def _head(context: StepContext, found: Compiled) -> Mapping[str, float] | None:
    with tempfile.TemporaryDirectory(dir=context.artifacts, prefix=".graph-") as folder:
        trace = record_calls(context.device, found.fast, calls=_TRACED_CALLS, folder=Path(folder), name="trace")
        times = head_times(
            trace.events, trace.spans(), spans_of(context.graph_spans) or HEAD_SPANS[context.device.kind]
        )
    return None if times is None else times._asdict()


def _graph_values(graphs: Compilations | str) -> list[Value]:
    if isinstance(graphs, str):
        return [Value(metric=name, value=None, reason=graphs) for name in ("graph.breaks", "graph.recompiles")]
    return [
        Value(metric="graph.breaks", value=float(len(_breaks(graphs)))),
        Value(metric="graph.recompiles", value=float(sum(_recompiles(graphs).values()))),
    ]


def _breaks(graphs: Compilations) -> list[Site]:
    """Return the places of all shapes, each once, those with a line of the project first."""
    places = {site for sites in graphs.breaks.values() for site in sites}
    return sorted(places, key=lambda site: (site.line is None, site.line or "", site.name))


def _recompiles(graphs: Compilations) -> Counter[Site]:
    counted: Counter[Site] = Counter()
    for sites in (*graphs.adapting.values(), *graphs.steady.values()):
        counted.update(sites)
    return counted


def _timed_values(timed: _Timed | str, labels: dict[str, str]) -> list[Value]:
    if isinstance(timed, str):
        names = ("graph.speedup", "graph.compile_cold", "graph.compile_cached", "graph.break_even", "graph.head")
        return [Value(metric=name, value=None, labels=labels, reason=timed) for name in names]
    cached = max(timed.cached_ns - timed.versus.second_ns, 0.0) / 1e9
    return [
        _speedup(timed, labels),
        Value(metric="graph.compile_cold", value=timed.cold_seconds, labels=labels),
        Value(metric="graph.compile_cached", value=cached, labels=labels),
        _break_even(timed, labels),
        *_head_values(timed, labels),
    ]


def _speedup(timed: _Timed, labels: dict[str, str]) -> Value:
    if not timed.found.agrees:
        return Value(metric="graph.speedup", value=None, labels=labels, reason=timed.found.disagreement)
    return timed.versus.value("graph.speedup", labels)


def _break_even(timed: _Timed, labels: dict[str, str]) -> Value:
    saved = timed.saved_seconds
    if saved is None:
        return Value(metric="graph.break_even", value=None, labels=labels, reason=_NO_GAIN)
    return Value(metric="graph.break_even", value=timed.cold_seconds / saved, labels=labels)


def _head_values(timed: _Timed, labels: dict[str, str]) -> list[Value]:
    if timed.head is None:
        return [Value(metric="graph.head", value=None, labels=labels, reason=_NO_HEAD)]
    return [
        Value(metric="graph.head", value=ns / 1e9, count=_TRACED_CALLS, labels={**labels, "part": part})
        for part, ns in timed.head.items()
    ]


def _judge_graphs(graphs: Compilations | str, limits: Mapping[str, float]) -> list[Finding]:
    """Return a finding for each place that breaks the graph, and for each that is compiled again and again."""
    if isinstance(graphs, str):
        return []
    breaks = [noticed("graph.break", "warning", _evidence(site.name, site.line)) for site in _breaks(graphs)]
    again: dict[str | None, Counter[str]] = {}
    for site, count in _recompiles(graphs).items():
        again.setdefault(site.line, Counter())[site.name] += count
    found = [*breaks[:_MOST_PLACES]]
    for line, reasons in again.items():
        (reason, _), *_ = reasons.most_common(1)
        evidence = _evidence(reason, line)
        found += above("graph.recompiles", float(sum(reasons.values())), given=limits, evidence=evidence)
    return found


def _evidence(reason: str, line: str | None) -> dict[str, Evidence]:
    return {"reason": reason, **({} if line is None else {"line": line})}


def _judge_timed(timed: _Timed | str, labels: dict[str, str], *, own: bool) -> list[Finding]:
    """Say what compiling gains; of a workload that compiles itself, that it gains nothing."""
    found = [noticed("graph.compiled_already", "info", dict(labels))] if own else []
    if isinstance(timed, str):
        return found
    evidence: dict[str, Evidence] = {
        **labels,
        "graph.speedup": timed.versus.speedup,
        "at least": timed.versus.low,
        "compile [s]": timed.cold_seconds,
    }
    if not timed.found.agrees:
        return [*found, noticed("graph.disagrees", "warning" if own else "info", evidence)]
    if own:
        return found if timed.versus.faster else [*found, noticed("graph.no_gain", "warning", evidence)]
    if timed.saved_seconds is None:
        return found
    evidence["calls until it has paid"] = timed.cold_seconds / timed.saved_seconds
    return [*found, noticed("graph.gain", "info", evidence)]
