"""Steps that base and head measure in turns, on real processes: what is compared, and what is named as not compared."""

from __future__ import annotations

import re

import msgspec

from perfgate.catalogue.names import HOST_UTILIZATION
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import read_decision, read_run
from perfgate.judging.gate.comparison import ShapePlace
from perfgate.judging.gate.pairs import SAMPLED, TimedLane, deciding_clocks
from tests.end_to_end.conftest import Clone, Perfgate


def _checked(perfgate: Perfgate, clone: Clone, *, budget: int, steps: str) -> DecisionDocument:
    """Check a head that does the same work, with ``budget`` seconds for the checklist."""
    settings = clone.root / "perfgate.toml"
    settings.write_text(settings.read_text().replace("checklist_budget = 0", f"checklist_budget = {budget}"))
    clone.git("checkout", "-q", "main")
    clone.commit("time for turns")
    clone.git("checkout", "-q", "-B", "feature")
    (clone.root / "model.py").write_text((clone.root / "model.py").read_text() + "\nUNUSED = 1\n")
    clone.commit("nothing slower")
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", steps, cwd=clone.root)
    assert done.returncode in (0, 3, 4), done.stderr
    return read_decision(clone.root / "out" / "decision.json")


def test_check__time_for_turns__differences_have_intervals_of_six_turns_and_no_other_number_has_one(
    perfgate: Perfgate, clone: Clone
) -> None:
    decision = _checked(perfgate, clone, budget=600, steps="1,4,12,17")
    rows = {(row.metric, row.method) for row in decision.checklist}
    assert ("memory.resident", "repeated") in rows
    of_calls = SAMPLED - {HOST_UTILIZATION}
    assert {metric for metric, _ in rows} >= of_calls
    # Where workers had to wait for a CPU, no clock that sees single calls may be fair to both sides.
    sides = [read_run(clone.root / "out" / side / "run.json") for side in ("base", "head")]
    clocks = deciding_clocks(*sides)
    set_aside = {entry.workload for entry in decision.invalid}
    for row in [row for row in decision.checklist if row.metric in of_calls]:
        clock = clocks.get(TimedLane(ShapePlace(row.workload, row.shape), preprocess=False), "wall")
        is_fair = clock is not None and clock != "awake" and row.workload not in set_aside
        assert row.method == ("paired" if is_fair else None), (row, clock)
    for row in decision.checklist:
        assert row.method == "exact" or (row.delta is None) == (row.interval is None), row
        if row.method == "repeated":
            assert row.pairs == 6, row
    for side in sides:
        turns = {value.labels.get("repeat") for step in side.steps for value in step.values}
        assert turns >= {None, "2", "3", "4", "5", "6"}


def test_check__no_time_for_turns__names_the_steps_with_seconds_and_the_setting_that_is_enough(
    perfgate: Perfgate, clone: Clone
) -> None:
    decision = _checked(perfgate, clone, budget=0, steps="4,17")
    (note,) = [one for one in decision.warnings if "notes.not-in-turns" in msgspec.json.encode(one).decode()]
    assert re.search(r"17 memory \(\d+ s\)", str(note))
    assert not [row for row in decision.checklist if row.step == 17 and row.delta is not None]
    comment = (clone.root / "out" / "comment.md").read_text()
    assert "measured once a side" in comment
    steps = r"4 `top_ops` \(\d+ s\), 17 memory \(\d+ s\)"
    assert re.search(rf"Not compared for lack of time: {steps}; a `checklist_budget` of \d+ s", comment)
    assert "> **Note:**" not in comment
