"""The order of the causes of one place."""

from __future__ import annotations

from perfgate.document.explanation import Cause, Explanation, OperatorDelta
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.explain.ranking import PlaceRanking
from tests.fakes.documents import make_counter, make_decision


def bytecodes(line: str, base: float, head: float) -> Cause:
    return Cause(
        workload="encoder",
        shape="long",
        op="forward",
        amount="bytecodes",
        counted=True,
        base_count=base,
        head_count=head,
        line=line,
    )


def test_ranked__more_python_and_time_outside_operators__the_lines_with_most_bytecodes_explain_that_time() -> None:
    outside = Cause(
        workload="encoder",
        shape="long",
        op="forward",
        kind="outside",
        rank=2,
        more_time=1e-3,
        line="model.py:5",
        mentions=0,
    )
    many, few = bytecodes("model.py:7", 10, 1000), bytecodes("model.py:9", 10, 20)
    ranked = PlaceRanking([few, many, outside], ChangedCode([], functions=(), texts=None), {}).ranked()
    assert {entry.cause.line: entry.cause.rank for entry in ranked} == {
        "model.py:9": None,
        "model.py:7": 2,
        "model.py:5": 2,
    }


def on_other_inputs(shape: str, operator: str) -> Explanation:
    part = OperatorDelta(op=operator, kind="other_inputs", seconds=0.0, inputs_change="layout", line="model.py:9")
    return Explanation(workload="encoder", shape=shape, other_inputs=[part])


def test_causes__a_count_rose_and_names_no_operator__operators_on_other_inputs_of_its_shape_alone() -> None:
    decision = make_decision(
        "FAIL",
        comparisons=[make_counter("counters.copies", 0, 1, shape="long")],
        explanations=[on_other_inputs("long", "aten::mul"), on_other_inputs("short", "aten::div")],
    )
    assert [(cause.op, cause.shape) for cause in decision.explained.causes] == [("aten::mul", "long")]
