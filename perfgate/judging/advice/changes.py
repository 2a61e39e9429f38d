"""Advice on the effects of a change: counters that regressed, and the parts that
explain a slower call.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import msgspec

from perfgate.catalogue.lookup import CHANGE_ADVICE, METRICS, metric
from perfgate.catalogue.names import (
    COPIES,
    FRAMEWORK_OPS,
    LATENCY_STALLS,
    PREPROCESSING,
    PREPROCESSING_STAGES,
    SYNCS,
)
from perfgate.document.comparison import Comparison, Exact, NumberComparison, Paired
from perfgate.document.decision import DecisionDocument, Gain, Suggestion
from perfgate.document.explanation import Explanation, OperatorDelta, Part
from perfgate.document.message import Message, message_from
from perfgate.document.run import Evidence

# Share of a call's slowdown; smaller parts are not worth advice.
_TELLS = 0.1
_OTHER_INPUTS = {
    "shape": "larger-inputs",
    "dtype": "other-dtype",
    "layout": "other-layout",
}
# Rules whose problem one of these others has already detected: in counters, the
# explanation in operator inputs; in kept tensors, the list that keeps them.
_SAME = {
    "other-dtype": {"dropped-precision", "dtype-round-trip"},
    "other-layout": {"layout-copy"},
    "memory-kept-python": {"memory-kept"},
}


# The advice on counts that fail the gate at any call time.
FAULTS = {"value-for-python", "copy-that-waits", "attached-tensor"} | {
    entry.gate.advice
    for entry in METRICS.values()
    if entry.gate.fails_alone and entry.gate.advice
}
# The advice on stalls, by the activity of their calls.
OF_STALLS = {"computing": "calls-that-compute", "waiting": "calls-that-wait"}
# A widening cast causes all computation in the wider type after it.
_CAST = "aten::_to_copy"
# Operators that draw the values to drop, by device and torch's version.
_DROPOUTS = {"aten::native_dropout", "aten::bernoulli", "aten::bernoulli_"}


# A rule with the operator that triggered it, before it is put into words.
_Advised = tuple[str, OperatorDelta]


def on_changes(decision: DecisionDocument) -> list[Suggestion]:
    advised = [
        *_on_comparisons(decision.comparisons),
        *_on_explanations(decision.explained.explanations),
    ]
    advice: dict[tuple[str, str], OperatorDelta] = {}
    for rule, delta in advised:
        if not any((delta.workload, same) in advice for same in _SAME.get(rule, ())):
            advice.setdefault((delta.workload, rule), delta)
    return [_suggestion(rule, delta, decision) for (_, rule), delta in advice.items()]


def _on_comparisons(comparisons: Sequence[Comparison]) -> Iterator[_Advised]:
    for comparison in comparisons:
        if not isinstance(comparison, NumberComparison):
            continue
        if comparison.outcome != "regressed":
            continue
        if isinstance(comparison, Exact):
            yield from _on_counter(comparison)
        elif comparison.metric == LATENCY_STALLS:
            rule = _rule_of_stalls(comparison)
            yield _of(comparison, rule, _line_of_stalls(comparison))
        elif comparison.metric in (PREPROCESSING, PREPROCESSING_STAGES):
            rises = _rises(comparison)
            if rises:
                yield _of(comparison, "slower-stage", max(rises, key=_rise))


def _rule_of_stalls(stalls: NumberComparison) -> str:
    if stalls.reason is not None:
        how = stalls.reason.values.get("how")
        if isinstance(how, Message) and how.code == "gate.stall-waiting":
            return OF_STALLS["waiting"]
    return OF_STALLS["computing"]


def _line_of_stalls(stalls: NumberComparison) -> Part | None:
    if stalls.reason is None:
        return None
    line = stalls.reason.values.get("line")
    if not isinstance(line, str):
        return None
    return Part(line=line, base=stalls.base or 0.0, head=stalls.head or 0.0)


def _on_counter(comparison: Exact) -> Iterator[_Advised]:
    rule = metric(comparison.metric).gate.advice
    if comparison.metric == FRAMEWORK_OPS:
        yield from _small_ops(comparison)
    elif comparison.metric == COPIES:
        cast = _cast(_rises(comparison))
        if cast is not None:
            yield _of(comparison, "dtype-round-trip", cast)
    elif comparison.metric == SYNCS:
        rise = _located(_rises(comparison))
        yield _of(
            comparison, _rule_of_wait(rise.name if rise is not None else ""), rise
        )
    elif any(part.aspect == "attached" for part in comparison.parts):
        yield _of(comparison, "attached-tensor", _located(_rises(comparison)))
    elif rule == "double-precision":
        yield _of(
            comparison, rule, _cast(_rises(comparison)) or _located(_rises(comparison))
        )
    elif rule:
        yield _of(comparison, rule, _located(_rises(comparison)))


def _cast(rises: Sequence[Part]) -> Part | None:
    for part in rises:
        if part.name == _CAST:
            return part
    return None


def _small_ops(comparison: Exact) -> Iterator[_Advised]:
    """Decomposed attention, or else the operator with the largest increase in calls on
    one line.

    Calls on several lines are no loop, and a cast back and forth has its own advice.
    """
    # torch_npu's own cast only changes a format (``npu::npu_format_cast`` and its
    # in-place form).
    rises = {
        part.name: part for part in _rises(comparison) if "format_cast" not in part.name
    }
    fused = any(
        "attention" in part.name and part.head < part.base for part in comparison.parts
    )
    if "aten::bmm" in rises and fused:
        yield _of(comparison, "unfused-attention", rises["aten::bmm"])
        return
    if dropped := _DROPOUTS & rises.keys():
        yield _of(comparison, "dropout", rises[min(dropped)])
        return
    rises.pop(_CAST, None)
    most = max(rises.values(), key=_rise_of_line, default=None)
    if most is not None and _rise_of_line(most) >= 2:
        yield _of(comparison, "small-ops", most)


def _on_explanations(explanations: Sequence[Explanation]) -> Iterator[_Advised]:
    for explained in explanations:
        measured = explained.measured or 0.0
        for number, part in enumerate(explained.contributions):
            if not part.seconds >= _TELLS * measured > 0:
                continue
            rule = _rule_of(part, first=number == 0)
            if rule is None:
                continue
            op = part.op
            if rule == "slower-python" and part.function:
                op = part.function
            delta = msgspec.structs.replace(
                part,
                workload=explained.workload,
                shape=explained.shape,
                op=op,
                base_inputs=part.base_inputs or "?",
                head_inputs=part.head_inputs or "?",
            )
            yield rule, delta


def _rule_of(part: OperatorDelta, *, first: bool) -> str | None:
    """The rule for a part of a slower call that counters do not show.

    An operator that merely takes longer gets advice only if it comes first: otherwise
    the operators before it are the cause.
    """
    if part.inputs_change is not None:
        return _OTHER_INPUTS[part.inputs_change]
    match part.kind:
        case "slower" if first:
            return "slower-operator"
        case "outside" if part.function is not None:
            return "slower-python"
        case "waiting":
            return _rule_of_wait(part.op)
    return None


def _rule_of_wait(op: str) -> str:
    if "copy" in op:
        return "copy-that-waits"
    return "value-for-python"


def _rises(comparison: NumberComparison) -> list[Part]:
    return [part for part in comparison.parts if part.head > part.base]


def _rise(part: Part) -> float:
    return part.head - part.base


def _rise_of_line(part: Part) -> float:
    """The largest rise on one line; of unknown lines, of all together."""
    return max(map(_rise, part.sites), default=_rise(part))


def _located(rises: Sequence[Part]) -> Part | None:
    for part in rises:
        if part.line:
            return part
    return next(iter(rises), None)


def _of(comparison: NumberComparison, rule: str, part: Part | None) -> _Advised:
    # An unknown operator has the counts of the whole call.
    counted = part or Part(base=comparison.base or 0.0, head=comparison.head or 0.0)
    return rule, OperatorDelta(
        workload=comparison.workload,
        shape=comparison.shape,
        op=counted.name,
        line=counted.line,
        base_count=counted.base,
        head_count=counted.head,
    )


def _suggestion(
    rule: str, advised: OperatorDelta, decision: DecisionDocument
) -> Suggestion:
    advice = CHANGE_ADVICE[rule]
    seconds, gain = _share_of_call(advised, decision)
    base = _whole_if_possible(advised.base_count or 0.0)
    head = _whole_if_possible(advised.head_count or 0.0)
    evidence: dict[str, Evidence] = {"base": base, "head": head}
    if advised.op:
        evidence["op"] = advised.op
    if advised.base_inputs and advised.head_inputs:
        evidence.update(before=advised.base_inputs, after=advised.head_inputs)
    if seconds:
        evidence["more seconds a call"] = seconds
    command = f"perfgate local --workload {shlex.quote(advised.workload)}"
    return Suggestion(
        rule=rule,
        workload=advised.workload,
        shape=advised.shape,
        message=message_from(
            f"advice.{rule}",
            {
                "op": Message("advice.an-operator"),
                **evidence,
                "base": round(base, 1),
                "head": round(head, 1),
            },
        ),
        severity="warning",
        line=advised.line,
        evidence=evidence,
        gain=gain,
        code=advice.code or None,
        command=None if decision.measured.recorded else command,
        introduced=True,
    )


def _whole_if_possible(count: float) -> float:
    if float(count).is_integer():
        return int(count)
    return count


def _share_of_call(
    advised: OperatorDelta, decision: DecisionDocument
) -> tuple[float, Gain | None]:
    """The seconds that the operator, or everything on its line, adds to a slower call,
    and the gain from undoing it.
    """
    for explained in decision.explained.explanations:
        if explained.place != advised.place or not explained.metric:
            continue
        for call in decision.comparisons:
            is_explained = (
                call.place == explained.place and call.metric == explained.metric
            )
            if (
                is_explained
                and isinstance(call, Paired)
                and call.is_of_call
                and call.head
            ):
                seconds = _seconds(advised, explained.contributions)
                return seconds, at_most(seconds / call.head)
    return 0.0, None


def at_most(share: float) -> Gain | None:
    """The most a call can gain from a part that takes ``share`` of its time (Amdahl,
    1967); None for no part of it.
    """
    if not 0 < share < 1:
        return None
    return Gain(kind="estimated", speedup=1 / (1 - share), share=share)


def _seconds(advised: OperatorDelta, contributions: Sequence[OperatorDelta]) -> float:
    def is_of(part: OperatorDelta) -> bool:
        if advised.line is not None and part.line is not None:
            return part.line == advised.line
        return advised.op in (part.op, part.function)

    seconds = 0.0
    more = 0.0
    for part in contributions:
        if part.seconds > 0 and is_of(part):
            seconds += part.seconds
            more += max(0.0, part.more_count)
    for part in contributions:
        if part.is_launching and part.more_count > 0:
            seconds += max(0.0, part.seconds) * min(1.0, more / part.more_count)
    return seconds
