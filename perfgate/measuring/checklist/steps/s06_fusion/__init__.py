"""Step 6: operators that could be one kernel and are several, and what they cost; what compiling gains is step 9's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, above, finding, limit
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, not_applicable, unavailable
from perfgate.measuring.checklist.steps.s06_fusion.kernels import is_fused, kernel_fusion, read_fusion_result
from perfgate.measuring.checklist.steps.s06_fusion.node_times import NodeTimes, node_times
from perfgate.measuring.checklist.steps.s06_fusion.patterns import (
    Node,
    Pattern,
    can_hold_patterns,
    find_patterns,
    record_dataflow,
)
from perfgate.measuring.checklist.traces import steady_calls
from perfgate.measuring.checklist.values import missing, several
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.measuring.timing.calls import find_steady_state
from perfgate.system.garbage import quiet
from perfgate.trace.summary import DeviceSummary, summarize

_SHOWN_OPS = 6
_LONGEST_NAME = 80


class FusionStep:
    """Look for patterns in the flow of data, and trace what they cost."""

    card = card(6)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; not applicable where a call has no operator that a pattern could be made of."""
        outcome = StepOutcome()
        with quiet():
            for shape in context.workload.shapes:
                context.progress(f"looking for unfused operators with inputs of shape {shape}")
                outcome.add(_measure_shape(context, shape))
        if not outcome.values:
            return not_applicable(Message("operators.nothing-to-fuse"))
        outcome.add(_judge_graph_fusions((Path.cwd(),), {}, since=context.began))
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; not those of a CPU, whose operators tell no data flow."""
        outcome = StepOutcome()
        for summary in context.summaries:
            outcome.add(_judge_kernels(summary, profiled(summary), context.limits))
        if not outcome.values:
            return unavailable(Message("operators.no-kernels-recorded"))
        folder = context.recording.path if context.recording.path.is_dir() else context.recording.path.parent
        outcome.add(_judge_graph_fusions((folder, folder.parent), {"under": "profiler"}))
        return outcome


STEP = FusionStep()


def _measure_shape(context: StepContext, shape: str) -> StepOutcome:
    """Nothing where the calls of the shape hold no operators that patterns are made of."""
    labels = {"shape": shape}
    call = context.workload.caller(shape)
    find_steady_state(call, context.device, cap_seconds=0.2 if context.quick else 2.0)
    nodes, again = (record_dataflow(call, root=context.root) for _ in range(2))
    if not can_hold_patterns(nodes):
        return StepOutcome()
    patterns = find_patterns(nodes)
    fusible = [pattern for pattern in patterns if pattern.broken_by is None]
    trace = steady_calls(context, shape)
    hidden: Message | None = None
    if has_compiled():
        hidden = Message("operators.compiled")
    elif len(fusible) != sum(pattern.broken_by is None for pattern in find_patterns(again)):
        hidden = Message("operators.calls-differ")
    outcome, times = StepOutcome(), None
    if hidden is not None:
        outcome.values += missing(("fusion.patterns", "fusion.share"), hidden, labels)
    else:
        times = node_times(nodes, trace, on_device=context.shows_kernels)
        share = merged_share(fusible, times)
        outcome.values.append(Value(metric="fusion.patterns", value=float(len(fusible)), labels=labels))
        share_reason = Message("operators.time-not-attributed") if share is None else None
        outcome.values.append(Value(metric="fusion.share", value=share, reason=share_reason, labels=labels))
        outcome.findings += judge_patterns(patterns, nodes, times, shape, context.limits)
    if context.shows_kernels:
        kernels_per_op = len(trace.events.of_kind("compute")) / trace.calls / len(nodes)
        outcome.values.append(Value(metric="fusion.kernels_per_op", value=kernels_per_op, labels=labels))
        (summary,) = summarize([trace.timeline])
        kernels = _judge_kernels(summary, labels, context.limits)
        outcome.values += kernels.values
        # Sequences of kernels are judged by their names where the patterns could not be.
        outcome.findings += kernels.findings if times is None else []
    else:
        ops = trace.host_ops()
        fused = sum(is_fused(ops.names[name]) for name in ops.name.tolist())
        outcome.values += missing("fusion.kernels_per_op", Message("operators.no-device-kernels"), labels)
        outcome.values.append(Value(metric="fusion.fused_kernels", value=fused / trace.calls, labels=labels))
    return outcome


def merged_share(patterns: Sequence[Pattern], times: NodeTimes | None) -> float | None:
    """The share of the patterns whose time is known; None where there are some and the time of none is known."""
    if times is None:
        return None
    costs = [cost for pattern in patterns if (cost := times.of(pattern.merged)) is not None]
    if patterns and not costs:
        return None
    return min(sum(costs) / times.total, 1.0) if times.total else 0.0


def judge_patterns(
    patterns: Sequence[Pattern], nodes: Sequence[Node], times: NodeTimes | None, shape: str, limits: Limits
) -> list[Finding]:
    """A finding for each place whose patterns cost more than the limit together: a layer repeats its pattern.

    Those whose cost nobody knows are named as such.
    """
    bound = limit("fusion.share.warning", limits)
    places: dict[tuple[str, str | None, str | None], list[Pattern]] = {}
    for pattern in patterns:
        # The line that most operators of a pattern come from; of equally many the first.
        lines = Counter(line for at in pattern.merged if (line := nodes[at].line) is not None)
        line = lines.most_common(1)[0][0] if lines else None
        places.setdefault((pattern.kind, pattern.broken_by, line), []).append(pattern)
    findings, unknown = [], []
    for (kind, broken_by, line), members in places.items():
        share = merged_share(members, times)
        merged = members[0].merged
        evidence: MaybeEvidence = {
            "shape": shape,
            "patterns": len(members),
            "ops": _listed([nodes[at].plain for at in merged]),
            "line": line,
            "by": broken_by,
        }
        if times is None or share is None:
            rule = "fusion.unknown_cost" if broken_by is None else "fusion.broken"
            unknown.append(finding(rule, "info", {**evidence, "kind": kind}))
        elif share > bound:
            heaviest = max(merged, key=lambda at: times.nodes[at] or 0.0)
            evidence = {"fusion.share": share, "limit": bound, **evidence, "op": nodes[heaviest].name}
            findings.append((share, finding(f"fusion.{kind}", "warning", evidence)))
    return [judged for _, judged in sorted(findings, key=lambda entry: -entry[0])] + unknown


def _judge_kernels(summary: DeviceSummary, labels: dict[str, str], limits: Limits) -> StepOutcome:
    """What the kernels of a device tell by name and order."""
    kernels = kernel_fusion(summary)
    if kernels is None:
        return StepOutcome()
    share = kernels.sequences_ns / kernels.total_ns if kernels.total_ns else 0.0
    numbers = {
        "fusion.fused_kernels": kernels.fused / summary.spans,
        "fusion.sequences": kernels.sequences / summary.spans,
        "fusion.sequence_share": share,
    }
    names = Counter(_shortened(name) for name in kernels.heaviest)
    repeated = [
        name if count == 1 else Message("operators.repeated", {"count": count, "name": name})
        for name, count in names.items()
    ]
    evidence = {"shape": labels["shape"], "kernels": _listed(repeated)}
    return StepOutcome(several(numbers, labels), above("fusion.sequence_share", share, limits, evidence))


def _listed(names: Sequence[str | Message]) -> Evidence:
    first, more = names[:_SHOWN_OPS], len(names) - _SHOWN_OPS
    return Message("operators.names-and-more", {"names": first, "count": more}) if more > 0 else first


def _shortened(name: str) -> str:
    """A C++ kernel's name without its result and arguments."""
    plain = name.replace("(anonymous namespace)::", "").partition("(")[0]
    return plain.removeprefix("void ")[:_LONGEST_NAME]


def _judge_graph_fusions(folders: Sequence[Path], labels: dict[str, str], *, since: float = 0.0) -> StepOutcome:
    """What the graph engine wrote about its passes, where it left anything."""
    counts = read_fusion_result(*folders, since=since)
    if counts is None:
        return StepOutcome()
    fusions = float(sum(counts.took_effect.values()))
    return StepOutcome(
        [Value(metric="fusion.graph_fusions", value=fusions, labels=labels)],
        [
            finding("fusion.pass_without_effect", "info", {"name": name, "matched": matched})
            for name, matched in sorted(counts.matched.items())
            if matched and not counts.took_effect[name]
        ],
    )
