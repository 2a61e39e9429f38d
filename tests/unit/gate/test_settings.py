from __future__ import annotations

import msgspec
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import Verdict
from perfgate.document.run import CodeChange, CounterSet
from perfgate.judging.gate.compare.counters import compare_settings, notes_on_settings
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.wording import text_of

BENCHMARK = "torch.backends.cudnn.benchmark"


def _compared(base: dict[str, str], head: dict[str, str], *changes: CodeChange) -> list[Comparison]:
    before, after = (
        changed(
            make_run(side),
            counters=[
                CounterSet(workload="encoder", shape=shape, repeats=3, values={}, ops=[], settings=settings)
                for shape in ("long", "short")
            ],
        )
        for side, settings in (("base", base), ("head", head))
    )
    after = msgspec.structs.replace(after, source=msgspec.structs.replace(after.source, changes=list(changes)))
    work = WorkTable(Evidence(before, after))
    return list(compare_settings(work.counted, work.code.changes))


def test_settings__flag_that_a_changed_line_names__told_once_with_the_line() -> None:
    change = CodeChange(file="train.py", first=11, last=12, text=["import torch", "cudnn.benchmark = False"])
    other = CodeChange(file="model.py", first=3, last=3, text=["WIDTH = 4"])
    (found,) = _compared({BENCHMARK: "True"}, {BENCHMARK: "False"}, other, change)
    assert (found.outcome, found.gating, found.shape) == ("inconclusive", False, "long")
    assert found.reason is not None
    assert text_of(found.reason) == (
        f"{BENCHMARK} is False instead of True since train.py:12; set it back unless that is intended"
    )


@pytest.mark.parametrize(("places", "ends"), [(1, " since train.py:7; set"), (4, "instead of True; set")])
def test_settings__deleted_line__the_first_of_few_changes(places: int, ends: str) -> None:
    changes = [
        CodeChange(file="train.py", first=7 + number, last=7 + number, text=["x = 1"]) for number in range(places)
    ]
    (found,) = _compared({BENCHMARK: "True"}, {BENCHMARK: "False"}, *changes)
    assert found.reason is not None
    assert ends in text_of(found.reason)


@pytest.mark.parametrize(("verdict", "notes"), [("INCONCLUSIVE", 1), ("FAIL", 1), ("WARN", 0)])
def test_notes__verdict_with_another_reason__the_setting_is_told_on_top(verdict: Verdict, notes: int) -> None:
    compared = _compared({BENCHMARK: "True"}, {BENCHMARK: "False"})
    assert len(notes_on_settings(compared, verdict)) == notes


def test_settings__the_same__nothing() -> None:
    assert _compared({BENCHMARK: "True"}, {BENCHMARK: "True"}) == []


def test_settings__left_out_of_the_head__undecided_in_each_shape() -> None:
    assert [found.outcome for found in _compared({BENCHMARK: "True"}, {})] == ["inconclusive", "inconclusive"]
