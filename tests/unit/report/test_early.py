"""What is shown of regressed counts before any pair: the line and the remedy, and FAIL only if no time can change it."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.judging.gate.look import Look
from perfgate.judging.report.render.terminal import early_lines
from tests.fakes.records import changed
from tests.unit.gate.builders import WORKLOAD, counters, sides

SIDES = sides([])


def counted(metric: str) -> tuple[RunDocument, RunDocument]:
    """Base and head without pairs, of which the head runs seven more copies at one line, and has more of a metric."""
    base, head = SIDES
    before, after = (
        counters({"aten::add": 1, "aten::clone": clones}, lines={"aten::clone": "model.py:12"}) for clones in (1, 8)
    )
    more = msgspec.structs.replace(after, values={**after.values, metric: 100})
    less = msgspec.structs.replace(before, values={**before.values, metric: 1})
    return changed(base, counters=[less]), changed(head, counters=[more])


@pytest.mark.parametrize(
    ("metric", "certain"),
    [
        ("counters.syncs", True),
        # Calls that are no slower would excuse it.
        ("counters.allocations", False),
        # Calls that are faster would.
        ("counters.low_precision_ops", False),
    ],
)
def test_early_lines__counts_regressed__line_and_counts_and_fail_only_if_certain(metric: str, certain: bool) -> None:
    documents = counted(metric)
    look = Look(*documents, Policy(), workload=WORKLOAD)
    assert look.fails_for_certain() is certain
    decision = decide_with_advice(*documents, policy=Policy(), history=History())
    lines = early_lines(decision, WORKLOAD, certain=look.fails_for_certain(), has_pairs=True, language="en")
    assert lines[0].startswith(f"FAIL – {WORKLOAD}, for certain") is certain
    assert lines[0].startswith(f"{WORKLOAD}: exact counts grew, which fails unless") is not certain
    text = "\n".join(lines)
    assert "7 more aten::clone at model.py:12" in text
    assert "copies per call 1 → 8" in text


def test_early_lines__chinese__verdict_and_what_is_measured_next() -> None:
    documents = counted("counters.syncs")
    decision = decide_with_advice(*documents, policy=Policy(), history=History())
    (first, *_) = early_lines(decision, WORKLOAD, certain=True, language="zh", has_pairs=True)
    assert first.startswith("FAIL")
    assert "已可确定" in first


def test_early_lines__calls_too_slow_for_pairs__fail_by_counts_without_a_promise_of_times() -> None:
    documents = counted("counters.copies")
    decision = decide_with_advice(*documents, policy=Policy(), history=History())
    lines = early_lines(decision, WORKLOAD, certain=False, has_pairs=False, language="en")
    assert lines[0].startswith(f"FAIL – {WORKLOAD}, by exact counts: calls are too slow to be timed")
    assert "7 more aten::clone at model.py:12" in "\n".join(lines)
