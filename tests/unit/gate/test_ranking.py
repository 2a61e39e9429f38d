"""The order of the causes of one place."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.explanation import Cause, Explanation, OperatorDelta
from perfgate.document.run import CodeChange
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


def slower_operator(op: str, line: str, seconds: float, rank: int, code: ChangedCode) -> Cause:
    cause = Cause(workload="encoder", shape="long", op=op, kind="slower", rank=rank, more_time=seconds, line=line)
    return msgspec.structs.replace(cause, mentions=0, origin=code.line(line).origin)


@pytest.mark.parametrize("other", ["model.py", "decoder.py"])
def test_ranked__operators_of_two_changed_functions_of_one_name__each_function_takes_its_own_time(other: str) -> None:
    encoder = CodeChange(file="model.py", first=9, last=9, function="forward", begins=8, ends=12, text=["x = f(x)"])
    decoder = CodeChange(file=other, first=29, last=29, function="forward", begins=28, ends=33, text=["x = g(x)"])
    code = ChangedCode([encoder, decoder], functions=(), texts=None)
    causes = [
        slower_operator("aten::mm", "model.py:10", 3e-4, 0, code),
        slower_operator("aten::add", "model.py:11", 1e-4, 1, code),
        slower_operator("aten::mul", f"{other}:30", 2e-4, 2, code),
    ]
    first = min(PlaceRanking(causes, code, {}).ranked(), key=lambda entry: entry.order).cause
    assert (first.op, first.line) == ("forward", "model.py:9")
    assert first.more_time == pytest.approx(4e-4)


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
