"""What to try about a change: counters that regressed and what explains a slower call."""

from __future__ import annotations

from typing import Any

import pytest

from perfgate.document.comparison import Comparison, Exact, Paired
from perfgate.document.decision import Suggestion
from perfgate.document.explanation import Explanation, OperatorDelta, Part
from perfgate.document.message import english
from perfgate.judging.advice.changes import on_changes
from perfgate.judging.report.text.messages import word
from tests.fakes.documents import make_comparison, make_counter, make_decision

LINE = "model.py:9"


def _regressed(metric: str, *parts: Part, kind: type[Exact | Paired] = Exact, **fields: Any) -> Comparison:
    values: dict[str, Any] = {
        "workload": "encoder", "shape": "long", "unit": "1", "better": "lower", "gating": True, **fields
    }  # fmt: skip
    return kind(metric=metric, outcome="regressed", parts=list(parts), **values)


def _advice(*comparisons: Comparison, explanations: tuple[Explanation, ...] = ()) -> list[Suggestion]:
    return on_changes(make_decision("FAIL", comparisons=list(comparisons), explanations=list(explanations)))


def _rules(found: list[Suggestion]) -> list[tuple[str, str | None]]:
    return [(suggestion.rule, suggestion.line) for suggestion in found]


def _slower(*contributions: OperatorDelta, measured: float = 0.004) -> Explanation:
    explained = sum(part.seconds for part in contributions)
    return Explanation(
        workload="encoder", shape="long", metric="latency.low", measured=measured, explained=explained,
        contributions=list(contributions),
    )  # fmt: skip


def test_on_changes__format_casts__keep_one_format_and_no_word_of_loops() -> None:
    cast = Part(name="npu::npu_format_cast", base=0, head=4, line="model.py:22")
    found = _advice(
        _regressed("counters.framework_ops", cast),
        _regressed("counters.format_conversions", Part(name="TransData", base=0, head=4)),
    )
    assert _rules(found) == [("format-conversion", None)]


def test_on_changes__operator_that_falls_back__is_named_with_its_line() -> None:
    found = _advice(_regressed("counters.fallbacks", Part(name="aten::i0", base=0, head=1, line="model.py:7")))
    assert _rules(found) == [("host-fallback", "model.py:7")]
    assert word(found[0].message).startswith("aten::i0 has no kernel on this device")


def test_on_changes__operators_in_a_loop__said_with_counts_and_command() -> None:
    add = Part(name="aten::add", base=1, head=7, line=LINE)
    (found,) = _advice(_regressed("counters.framework_ops", add))
    assert (found.rule, found.line, found.introduced) == ("small-ops", LINE, True)
    assert word(found.message).startswith(
        "aten::add runs 7 times per call instead of 1; run it once on the whole tensor"
    )
    assert found.evidence == {"op": "aten::add", "base": 1, "head": 7}
    assert (found.gain, found.command) == (None, "perfgate local --workload encoder")


@pytest.mark.parametrize(
    ("metric", "base", "head", "expected"),
    [
        ("counters.collectives", 0, 1, "hcom runs more often per call (0 → 1); every collective"),
        ("counters.collectives", 1, 7 / 3, "hcom runs more often per call (1 → 2.3); every collective"),
        ("counters.autograd_ops", 0, 1, "autograd records more operators (0 → 1) and keeps their inputs"),
        ("counters.framework_ops", 1200, 2400, "hcom runs 2,400 times per call instead of 1,200; run it once"),
    ],
)
def test_on_changes__any_counts__read_as_numbers(metric: str, base: float, head: float, expected: str) -> None:
    (found,) = _advice(_regressed(metric, Part(name="hcom", base=base, head=head, line=LINE)))
    assert word(found.message).startswith(expected)
    assert english(found.message) == word(found.message)


def test_on_changes__operators_on_several_lines__no_loop() -> None:
    sites = [Part(line=f"model.py:{line}", base=0, head=1) for line in (7, 9)]
    add = Part(name="aten::add", base=1, head=3, line="model.py:7", sites=sites)
    assert _advice(_regressed("counters.framework_ops", add)) == []


def test_on_changes__cast_there_and_back__no_loop() -> None:
    cast = Part(name="aten::_to_copy", base=0, head=2, line=LINE)
    assert _advice(_regressed("counters.framework_ops", cast)) == []


@pytest.mark.parametrize(
    ("metric", "rule"),
    [
        ("counters.noncontiguous_copies", "layout-copy"),
        ("counters.syncs", "value-for-python"),
        ("counters.graph_breaks", "graph-break"),
        ("counters.recompiles", "recompilation"),
        ("counters.device_copies", "copies-to-device"),
        ("counters.collectives", "collectives"),
        ("counters.repeat_saves", "same-input-cache"),
        ("counters.low_precision_ops", "dropped-precision"),
        ("memory.kept", "memory-kept"),
        ("memory.kept_python", "memory-kept-python"),
        ("memory.kept_native", "memory-kept-native"),
        ("memory.peak", "peak-memory"),
    ],
)
def test_on_changes__counter_that_rose__its_rule_with_the_line_of_the_rise(metric: str, rule: str) -> None:
    fell, rose = Part(name="a", base=3, head=1, line="model.py:1"), Part(name="b", base=1, head=3, line=LINE)
    assert _rules(_advice(_regressed(metric, fell, rose))) == [(rule, LINE)]


def test_on_changes__kept_tensors_and_the_list_that_keeps_them__one_advice() -> None:
    tensors = make_counter(
        "memory.kept", 0, 4096, unit="B", parts=[Part(name="aten::mm", base=0, head=4096, line=LINE)]
    )
    listed = make_counter("memory.kept_python", 0, 1024, unit="B")
    assert _rules(_advice(tensors, listed)) == [("memory-kept", LINE)]


def test_on_changes__memory_kept_by_native_code__is_not_said_to_be_in_tensors_or_lists() -> None:
    (found,) = _advice(make_counter("memory.kept_native", 0, 65536, unit="B"))
    assert "C++ extensions" in word(found.message)
    assert "detach" not in word(found.message)
    assert found.code is None


@pytest.mark.parametrize("copy", ["aten::_to_copy", "aten::copy_"])
def test_on_changes__host_waits_for_a_copy__the_copy_need_not_be_waited_for(copy: str) -> None:
    counted = _regressed("counters.syncs", Part(name=copy, base=0, head=1, line=LINE))
    waiting = _slower(OperatorDelta(op=copy, kind="waiting", seconds=0.004, line=LINE))
    assert _rules(_advice(counted)) == _rules(_advice(explanations=(waiting,))) == [("copy-that-waits", LINE)]


def test_on_changes__counter_without_advice_or_not_regressed__nothing() -> None:
    part = Part(name="aten::add", base=1, head=7, line=LINE)
    unchanged = make_counter("counters.syncs", 1, 1, parts=[part])
    assert _advice(_regressed("counters.copy_bytes", part), unchanged) == []


def test_on_changes__slower_stage__the_one_that_got_slowest() -> None:
    stages = (
        Part(name="decode", base=0.001, head=0.002, line="data.py:3"),
        Part(name="resize", base=0.001, head=0.009),
    )
    (found,) = _advice(_regressed("preprocess.low", *stages, unit="s", kind=Paired))
    assert (found.rule, found.evidence["op"]) == ("slower-stage", "resize")


def test_on_changes__call_that_is_explained__gain_of_undoing_the_line_by_amdahl() -> None:
    add = Part(name="aten::add", base=1, head=7, line=LINE)
    latency = make_comparison("latency.low", outcome="regressed", base=0.016, head=0.020, shape="long")
    on_line = OperatorDelta(op="aten::add", kind="more", seconds=0.003, base_count=1, head_count=7, line=LINE)
    beside = OperatorDelta(op="aten::stack", kind="added", seconds=0.001, base_count=0, head_count=1, line=LINE)
    found = _advice(_regressed("counters.framework_ops", add), latency, explanations=(_slower(on_line, beside),))
    assert _rules(found) == [("small-ops", LINE)]
    gain = found[0].gain
    assert gain is not None
    assert (gain.kind, gain.share, gain.speedup) == ("estimated", pytest.approx(0.2), pytest.approx(1.25))
    assert found[0].evidence["more seconds a call"] == pytest.approx(0.004)


def test_on_changes__operators_between_which_time_passes__their_part_of_it_belongs_to_the_line() -> None:
    add = Part(name="aten::add", base=1, head=7, line=LINE)
    latency = make_comparison("latency.low", outcome="regressed", base=0.016, head=0.020, shape="long")
    on_line = OperatorDelta(op="aten::add", kind="more", seconds=0.001, base_count=1, head_count=7, line=LINE)
    between = OperatorDelta(op="outside operators", kind="launching", seconds=0.003, base_count=10, head_count=19)
    found = _advice(_regressed("counters.framework_ops", add), latency, explanations=(_slower(on_line, between),))
    assert found[0].evidence["more seconds a call"] == pytest.approx(0.001 + 0.003 * 6 / 9)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"kind": "other_inputs", "inputs_change": "shape"}, "larger-inputs"),
        ({"kind": "other_inputs", "inputs_change": "dtype"}, "other-dtype"),
        ({"kind": "other_inputs", "inputs_change": "layout"}, "other-layout"),
        ({"kind": "slower"}, "slower-operator"),
        ({"kind": "waiting"}, "value-for-python"),
        ({"kind": "outside", "function": "tokenize"}, "slower-python"),
    ],
)
def test_on_changes__contribution_that_no_counter_sees__its_rule(fields: dict[str, Any], rule: str) -> None:
    part = OperatorDelta(op="aten::mm", seconds=0.004, line=LINE, base_inputs="f32[8]", head_inputs="f32[9]", **fields)
    assert _rules(_advice(explanations=(_slower(part),))) == [(rule, LINE)]


def test_on_changes__slower_in_the_wake_of_another_and_small_parts__nothing_of_them() -> None:
    first = OperatorDelta(op="aten::mm", kind="added", seconds=0.003, line=LINE)
    wake = OperatorDelta(op="aten::add", kind="slower", seconds=0.001)
    small = OperatorDelta(op="aten::mul", kind="other_inputs", inputs_change="shape", seconds=0.0003)
    assert _advice(explanations=(_slower(first, wake, small),)) == []
    # A leak: what came is told first and costs little by itself.
    little = OperatorDelta(op="aten::mm", kind="added", seconds=0.0001, line=LINE)
    assert _advice(explanations=(_slower(little, wake),)) == []


def test_on_changes__faster_call__no_advice_on_what_it_is_made_of() -> None:
    gone = OperatorDelta(op="aten::mm", kind="other_inputs", inputs_change="shape", seconds=-0.003, line=LINE)
    assert _advice(explanations=(_slower(gone, measured=-0.003),)) == []


def test_on_changes__dropped_autocast_seen_in_counters_too__said_once() -> None:
    dtype = OperatorDelta(op="aten::mm", kind="other_inputs", inputs_change="dtype", seconds=0.004, line=LINE)
    part = Part(name="aten::mm", aspect="full precision", base=2, head=4, line=LINE)
    found = _advice(_regressed("counters.low_precision_ops", part), explanations=(_slower(dtype),))
    assert _rules(found) == [("dropped-precision", LINE)]


def test_on_changes__two_recordings__no_command_as_nothing_can_be_run() -> None:
    decision = make_decision(
        "FAIL", comparisons=[_regressed("counters.collectives", Part(name="hcom", base=1, head=2))], recorded=True
    )
    assert [suggestion.command for suggestion in on_changes(decision)] == [None]


def test_on_changes__counter_of_which_no_operator_is_known__none_is_made_up_and_the_counts_are_the_calls() -> None:
    regressed = make_counter("memory.peak", 1000.0, 2000.0)
    (found,) = _advice(regressed)
    assert found.evidence == {"base": 1000, "head": 2000}
