"""Step 6: operators that could be one kernel and are several, and what they cost; what compiling gains is step 9's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, limit, noticed
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._dataflow import Node, record_dataflow
from perfgate.measuring.checklist.steps._fused_kernels import is_fused, kernel_fusion
from perfgate.measuring.checklist.steps._fusion_patterns import Pattern, can_hold_patterns, find_patterns
from perfgate.measuring.checklist.steps._fusion_result import read_fusion_result
from perfgate.measuring.checklist.steps._node_times import NodeTimes, node_times
from perfgate.measuring.checklist.steps._traces import steady_calls
from perfgate.measuring.counting.collect import CallTrace
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.trace.summary import DeviceSummary, summarize

_SHOWN_OPS = 6
_LONGEST_NAME = 80

_NOTHING = "a call dispatches no product, softmax or elementwise operators, of which a pattern could be made"
_DIFFERS = "two calls of the shape do not dispatch the same operators"
_NO_JOIN = "the trace does not say which operator the time belongs to"
_NO_KERNELS = "the profiler shows no kernels of this device"
_HIDDEN = "the workload is compiled: watched operator by operator, a compiled region shows what it was made of"


@dataclass
class _Found:
    """Values and findings, of all shapes together."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, metric: str, value: float | None, labels: dict[str, str], missing: str = "") -> None:
        """Add a value, or why it is missing."""
        if value is None:
            self.values.append(Value(metric=metric, value=None, reason=missing, labels=labels))
        else:
            self.values.append(Value(metric=metric, value=value, labels=labels))


class FusionStep:
    """Look for patterns in the flow of data, and trace what they cost."""

    card = card(6)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; not applicable where a call has no operator that a pattern could be made of."""
        found, fusible = _Found(), False
        with quiet():
            for shape in context.workload.shapes:
                context.progress(f"looking for unfused operators with inputs of shape {shape}")
                fusible |= _measure_shape(context, shape, found)
            if not fusible:
                return StepOutcome(status="not_applicable", reason=_NOTHING)
        _judge_graph_fusions(found, (Path.cwd(),), {})
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; not applicable to a recording of a CPU, whose operators tell no data flow."""
        found = _Found()
        for summary in context.summaries:
            _judge_kernels(found, summary, context.limits)
        if not found.values:
            return StepOutcome(status="unavailable", reason="the recording holds no kernels of a device")
        folder = context.recording.path if context.recording.path.is_dir() else context.recording.path.parent
        _judge_graph_fusions(found, (folder, folder.parent), {"under": "profiler"})
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)


STEP = FusionStep()


def _measure_shape(context: StepContext, shape: str, found: _Found) -> bool:
    """Return whether the calls of the shape hold operators that patterns are made of."""
    labels = {"shape": shape}
    call = context.workload.caller(shape)
    find_steady_state(call, context.device, cap_seconds=0.2 if context.quick else 2.0)
    nodes, again = (record_dataflow(call, root=context.root) for _ in range(2))
    if not can_hold_patterns(nodes):
        return False
    patterns = find_patterns(nodes)
    hidden = _HIDDEN if has_compiled() else None if len(patterns) == len(find_patterns(again)) else _DIFFERS
    found.add("fusion.patterns", None if hidden else float(len(patterns)), labels, hidden or "")
    trace = steady_calls(context, shape)
    times = None if hidden else node_times(nodes, trace, on_device=_shows_kernels(context))
    share = None if hidden else _merged_share(patterns, times)
    found.add("fusion.share", share, labels, hidden or _NO_JOIN)
    if not hidden:
        found.findings += _judge_patterns(patterns, nodes, times, shape, context.limits)
    _judge_trace(context, trace, found, labels, operators=len(nodes), judged=times is not None)
    return True


def _shows_kernels(context: StepContext) -> bool:
    return "kernel_timeline" in context.device.capabilities


def _judge_trace(
    context: StepContext, trace: CallTrace, found: _Found, labels: dict[str, str], *, operators: int, judged: bool
) -> None:
    """Add what the names in a trace tell; its sequences of kernels are judged where the patterns could not be."""
    if _shows_kernels(context):
        found.add("fusion.kernels_per_op", len(trace.events.of_kind("compute")) / trace.calls / operators, labels)
        (summary,) = summarize([trace.timeline])
        _judge_kernels(found, summary, context.limits, labels, judge=not judged)
        return
    ops = trace.host_ops()
    fused = sum(is_fused(ops.names[name]) for name in ops.name.tolist())
    found.add("fusion.kernels_per_op", None, labels, _NO_KERNELS)
    found.add("fusion.fused_kernels", fused / trace.calls, labels)


def _merged_share(patterns: Sequence[Pattern], times: NodeTimes | None) -> float | None:
    """Return the share of the patterns whose time is known; None where that of some is asked for and of none is known."""
    known = [] if times is None else [cost for pattern in patterns if (cost := times.of(pattern.merged)) is not None]
    if times is None or (patterns and not known):
        return None
    return min(sum(known) / times.total, 1.0) if times.total else 0.0


def _judge_patterns(
    patterns: Sequence[Pattern],
    nodes: Sequence[Node],
    times: NodeTimes | None,
    shape: str,
    limits: Mapping[str, float],
) -> list[Finding]:
    """Return a finding for each place whose patterns cost more than the limit together: a layer repeats its pattern.

    Those whose cost nobody knows are named as such.
    """
    bound = limit("fusion.share.warning", limits)
    places: dict[tuple[str, str | None], list[Pattern]] = {}
    for pattern in patterns:
        places.setdefault((pattern.kind, _line(pattern, nodes)), []).append(pattern)
    findings, unknown = [], []
    for (kind, line), here in places.items():
        share = _merged_share(here, times)
        evidence: dict[str, Evidence] = {
            "shape": shape,
            "patterns": len(here),
            "ops": _named([nodes[at].plain for at in here[0].merged]),
            **({} if line is None else {"line": line}),
        }
        if times is None or share is None:
            unknown.append(noticed("fusion.unknown_cost", "info", {**evidence, "kind": kind}))
        elif share > bound:
            heaviest = max(here[0].merged, key=lambda at: times.nodes[at] or 0.0)
            evidence = {"fusion.share": share, "limit": bound, **evidence, "op": nodes[heaviest].name}
            findings.append(noticed(f"fusion.{kind}", "warning", evidence))
    return sorted(findings, key=lambda finding: -float(finding.evidence["fusion.share"])) + unknown


def _line(pattern: Pattern, nodes: Sequence[Node]) -> str | None:
    """Return the line that most operators of a pattern come from; of equally many the first."""
    lines = Counter(line for at in pattern.merged if (line := nodes[at].line) is not None)
    return lines.most_common(1)[0][0] if lines else None


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_OPS])
    return shown if len(names) <= _SHOWN_OPS else f"{shown} and {len(names) - _SHOWN_OPS} more"


def _counted(kernels: Sequence[str]) -> list[str]:
    """Return each name of a kernel once and short, with how often it is there."""
    times = Counter(_shortened(name) for name in kernels)
    return [name if count == 1 else f"{count} x {name}" for name, count in times.items()]


def _shortened(name: str) -> str:
    """Return a C++ kernel's name without its result and arguments."""
    plain = name.replace("(anonymous namespace)::", "").partition("(")[0]
    return plain.removeprefix("void ")[:_LONGEST_NAME]


def _judge_kernels(
    found: _Found,
    summary: DeviceSummary,
    limits: Mapping[str, float],
    labels: dict[str, str] | None = None,
    *,
    judge: bool = True,
) -> None:
    """Add what the kernels of a device tell by name and order."""
    kernels = kernel_fusion(summary)
    if kernels is None:
        return
    labels = labels or {"shape": summary.shape, "under": "profiler"}
    share = kernels.sequences_ns / kernels.total_ns if kernels.total_ns else 0.0
    found.add("fusion.fused_kernels", kernels.fused / summary.spans, labels)
    found.add("fusion.sequences", kernels.sequences / summary.spans, labels)
    found.add("fusion.sequence_share", share, labels)
    if judge:
        evidence: dict[str, Evidence] = {"shape": labels["shape"], "kernels": _named(_counted(kernels.heaviest))}
        found.findings += above("fusion.sequence_share", share, given=limits, evidence=evidence)


def _judge_graph_fusions(found: _Found, folders: Sequence[Path], labels: dict[str, str]) -> None:
    """Add what the graph engine wrote about its passes, where it left anything."""
    counts = read_fusion_result(*folders)
    if counts is None:
        return
    found.add("fusion.graph_fusions", float(sum(counts.took_effect.values())), labels)
    for name, matched in sorted(counts.matched.items()):
        if matched and not counts.took_effect[name]:
            found.findings.append(noticed("fusion.pass_without_effect", "info", {"name": name, "matched": matched}))
