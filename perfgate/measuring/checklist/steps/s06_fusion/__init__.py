"""Step 6: operators that could be one kernel and are several, and their cost; the gain
of compiling is step 9's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Evidence
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
    unavailable,
)
from perfgate.measuring.checklist.steps.s06_fusion.kernels import (
    KernelFusion,
    is_fused,
    kernel_fusion,
    read_fusion_result,
)
from perfgate.measuring.checklist.steps.s06_fusion.node_times import (
    NodeTimes,
    node_times,
)
from perfgate.measuring.checklist.steps.s06_fusion.patterns import (
    Node,
    Pattern,
    can_hold_patterns,
    find_patterns,
    record_dataflow,
)
from perfgate.measuring.checklist.traces import steady_calls
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import summarize

_SHOWN_OPS = 6
_LONGEST_NAME = 80


class FusionStep:
    """Look for patterns in the data flow, and trace their cost."""

    card = card(6)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; not applicable if a call has no operator that a pattern
        could be made of.
        """
        outcome = context.outcome()
        with quiet():
            for shape in context.workload.shapes:
                context.doing(
                    "looking for unfused operators with inputs of shape {shape}",
                    shape=shape,
                )
                _measure_shape(outcome.under(shape=shape), context, shape)
        if not outcome.values:
            return not_applicable(Message("operators.nothing-to-fuse"))
        _judge_graph_fusions(outcome, (Path.cwd(),), since=context.process.began)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; a CPU's operators show no data flow."""
        outcome = context.outcome()
        for summary in context.summaries:
            if (kernels := kernel_fusion(summary)) is not None:
                _judge_kernels(
                    outcome.under(**profiled(summary)), kernels, summary.spans
                )
        if not outcome.values:
            return unavailable(Message("operators.no-kernels-recorded"))
        folder = context.recording.path
        if not folder.is_dir():
            folder = folder.parent
        _judge_graph_fusions(outcome.under(under="profiler"), (folder, folder.parent))
        return outcome


STEP = FusionStep()


def _measure_shape(outcome: StepOutcome, context: StepContext, shape: str) -> None:
    """Skips a shape whose calls have no operators that patterns are made of."""
    call = context.workload.caller(shape)
    context.warm_up(shape, quick=0.2, full=2.0)
    nodes = record_dataflow(call, root=context.root)
    again = record_dataflow(call, root=context.root)
    if not can_hold_patterns(nodes):
        return
    patterns = find_patterns(nodes)
    fusible = _fusible(patterns)
    trace = steady_calls(context, shape)
    hidden: Message | None = None
    if has_compiled():
        hidden = Message("operators.compiled")
    elif len(fusible) != len(_fusible(find_patterns(again))):
        hidden = Message("operators.calls-differ")
    if hidden is not None:
        outcome.missing(("fusion.patterns", "fusion.share"), hidden)
    else:
        times = node_times(nodes, trace, on_device=context.shows_kernels)
        share = merged_share(fusible, times)
        outcome.number("fusion.patterns", float(len(fusible)))
        if share is None:
            outcome.missing("fusion.share", Message("operators.time-not-attributed"))
        else:
            outcome.number("fusion.share", share)
        judge_patterns(outcome, patterns, nodes, times)
    if context.shows_kernels:
        (summary,) = summarize([trace.timeline])
        if (kernels := kernel_fusion(summary)) is not None:
            # Patterns that were timed are judged instead of the sequences of kernels
            # that they are.
            judge = hidden is not None or times is None
            _judge_kernels(outcome, kernels, summary.spans, judge=judge)
    else:
        ops = trace.host_ops()
        fused = sum(is_fused(ops.names[name]) for name in ops.name.tolist())
        outcome.number("fusion.fused_kernels", fused / trace.calls)


def _fusible(patterns: Sequence[Pattern]) -> list[Pattern]:
    return [pattern for pattern in patterns if pattern.broken_by is None]


def merged_share(patterns: Sequence[Pattern], times: NodeTimes | None) -> float | None:
    """The share of the patterns of known time; None if there are patterns and no time
    is known.
    """
    if times is None:
        return None
    costs = [times.of(pattern.merged) for pattern in patterns]
    known_costs = [cost for cost in costs if cost is not None]
    if patterns and not known_costs:
        return None
    return min(sum(known_costs) / (times.total or 1.0), 1.0)


def judge_patterns(
    outcome: StepOutcome,
    patterns: Sequence[Pattern],
    nodes: Sequence[Node],
    times: NodeTimes | None,
) -> None:
    """Add a finding for each place with patterns that together cost more than the
    limit: a layer repeats its pattern.

    Patterns of unknown cost get a separate finding.
    """
    bound = outcome.limit("fusion.share.warning")
    places: dict[tuple[str, str | None, str | None], list[Pattern]] = {}
    for pattern in patterns:
        # The line of most operators of a pattern; on a tie the first.
        lines = Counter(nodes[at].line for at in pattern.merged)
        del lines[None]
        line = None
        if lines:
            line = lines.most_common(1)[0][0]
        places.setdefault((pattern.kind, pattern.broken_by, line), []).append(pattern)
    costly: list[tuple[float, str, MaybeEvidence]] = []
    unknown: list[tuple[str, MaybeEvidence]] = []
    for (kind, broken_by, line), members in places.items():
        share = merged_share(members, times)
        merged = members[0].merged
        evidence: MaybeEvidence = {
            "patterns": len(members),
            "ops": _listed([nodes[at].plain for at in merged]),
            "line": line,
            "by": broken_by,
        }
        if times is None or share is None:
            rule = "fusion.broken" if broken_by else "fusion.unknown_cost"
            unknown.append((rule, {**evidence, "kind": kind}))
        elif share > bound:
            heaviest = max(merged, key=lambda at: times.nodes[at] or 0.0)
            costly.append(
                (share, f"fusion.{kind}", {**evidence, "op": nodes[heaviest].name})
            )
    for share, rule, evidence in sorted(costly, key=lambda entry: -entry[0]):
        outcome.note(
            rule, "warning", {"fusion.share": share, "limit": bound, **evidence}
        )
    for rule, evidence in unknown:
        outcome.note(rule, "info", evidence)


def _judge_kernels(
    outcome: StepOutcome, kernels: KernelFusion, spans: int, *, judge: bool = True
) -> None:
    """The fusion that the names and order of a device's kernels show."""
    share = kernels.sequences_ns / (kernels.total_ns or 1)
    outcome.numbers(
        {
            "fusion.fused_kernels": kernels.fused / spans,
            "fusion.sequences": kernels.sequences / spans,
            "fusion.sequence_share": share,
        }
    )
    if judge:
        names = Counter(_shortened(name) for name in kernels.heaviest)
        repeated: list[str | Message] = []
        for name, count in names.items():
            if count == 1:
                repeated.append(name)
            else:
                repeated.append(
                    Message("operators.repeated", {"count": count, "name": name})
                )
        outcome.above("fusion.sequence_share", share, {"kernels": _listed(repeated)})


def _listed(names: Sequence[str | Message]) -> Evidence:
    first, more = names[:_SHOWN_OPS], len(names) - _SHOWN_OPS
    if more > 0:
        return Message("operators.names-and-more", {"names": first, "count": more})
    return first


def _shortened(name: str) -> str:
    """A C++ kernel's name without its result and arguments."""
    plain = name.replace("(anonymous namespace)::", "").partition("(")[0]
    return plain.removeprefix("void ")[:_LONGEST_NAME]


def _judge_graph_fusions(
    outcome: StepOutcome, folders: Sequence[Path], *, since: float = 0.0
) -> None:
    """The graph engine's own report on its passes, if it left one."""
    counts = read_fusion_result(*folders, since=since)
    if counts is None:
        return
    matches, effects = counts
    outcome.number("fusion.graph_fusions", float(sum(effects.values())))
    for name, matched in sorted(matches.items()):
        if matched and not effects[name]:
            outcome.note(
                "fusion.pass_without_effect", "info", {"name": name, "matched": matched}
            )
