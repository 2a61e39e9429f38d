"""The order of the causes of one place."""

from __future__ import annotations

from perfgate.document.explanation import Cause
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.explain.ranking import PlaceRanking


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
    ranked = PlaceRanking([few, many, outside], ChangedCode([]), {}).ranked()
    assert {entry.cause.line: entry.cause.rank for entry in ranked} == {
        "model.py:9": None,
        "model.py:7": 2,
        "model.py:5": 2,
    }
