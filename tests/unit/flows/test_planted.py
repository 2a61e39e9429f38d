"""The planted changes, and how what the gate decided is held against what it must decide."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from perfgate.catalogue.lookup import metric
from perfgate.config import CONFIG_NAME, GateSettings, parse_config
from perfgate.document.comparison import Comparison
from perfgate.document.decision import Invalid, InvalidKind, Verdict
from perfgate.document.explanation import Part
from perfgate.document.message import Message, quote
from perfgate.flows.doctor.planted import CHANGES, PROJECT, PlantedChange, gate_table, judge
from tests.fakes.documents import make_comparison, make_counter, make_decision, regressed_time

NAMES = {change.name: change for change in CHANGES}
SLOWER = make_comparison("latency.low", outcome="regressed", delta=0.05, interval=(0.04, 0.06))


def _judge(change: PlantedChange, decision: object, exit_code: int = 1) -> object:
    return judge(change, decision, exit_code=exit_code, seconds=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_changes__patch__applies_and_its_metric_is_one_of_ours(tmp_path: Path, change: PlantedChange) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT / "main", project)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "apply", str(PROJECT / "changes" / f"{change.name}.patch")], cwd=project, check=True)
    for file in project.glob("**/*.py"):
        compile(file.read_text(), file.name, "exec")
    assert not (change.metric and metric(change.metric).name != change.metric)
    references = parse_config((project / CONFIG_NAME).read_text(), project / CONFIG_NAME).references
    assert change.workload in {reference.name for reference in references}


def test_changes__patches_there_are__all_planted() -> None:
    assert {path.stem for path in (PROJECT / "changes").iterdir()} == set(NAMES)


def test_gate_table__settings_of_every_kind__read_back_equal(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(GateSettings(), alpha=1e-05, tolerance={"latency.low": 0.5, "memory.peak": 0.0})
    text = 'workload = "w.py:w"\n' + gate_table(settings)
    assert parse_config(text, tmp_path / CONFIG_NAME).gate == settings


def test_judge__unchanged_passes__agrees() -> None:
    found = _judge(NAMES["no-change"], make_decision("PASS"), 0)
    assert found.outcome == "agrees"
    assert (found.verdict, found.metric, found.fired, found.reason) == ("PASS", None, [], None)


def test_judge__unchanged_fails__differs_and_says_what_moved() -> None:
    found = _judge(NAMES["no-change"], make_decision("FAIL", comparisons=[SLOWER]))
    assert found.outcome == "differs"
    assert found.reason == "PASS was expected; latency.low must not move"


def test_judge__slower_call__agrees_though_p50_moves_too() -> None:
    found = _judge(NAMES["work-3-percent"], make_decision("FAIL", comparisons=regressed_time()))
    assert found.outcome == "agrees"
    assert found.fired == ["latency.low", "latency.p50"]


def test_judge__slower_call_and_a_counter__differs() -> None:
    comparisons = [*regressed_time(), make_counter("counters.allocations", 4, 5)]
    found = _judge(NAMES["work-3-percent"], make_decision("FAIL", comparisons=comparisons))
    assert found.reason == "counters.allocations must not move"


def test_judge__right_verdict_for_another_reason__differs() -> None:
    tail = make_comparison("latency.p99", outcome="inconclusive", reason=quote("a slowdown of 5 % is not excluded"))
    found = _judge(NAMES["p99-only"], make_decision("FAIL", comparisons=[SLOWER, tail]))
    assert found.reason == (
        "latency.p99 is inconclusive (a slowdown of 5 % is not excluded); latency.low must not move"
    )


def test_judge__what_informs_only__does_not_count_as_fired() -> None:
    op = make_counter("ops.count:aten::clone", 0, 1, gating=False)
    found = _judge(NAMES["work-5-percent"], make_decision("FAIL", comparisons=[SLOWER, op]))
    assert (found.outcome, found.fired) == ("agrees", ["latency.low"])


@pytest.mark.parametrize(("line", "agrees"), [("scorer.py:29", True), ("perf/workload.py:9", False), (None, False)])
def test_judge__copy__must_be_traced_to_its_file(line: str, agrees: bool) -> None:
    copies = make_counter("counters.copies", 0, 1, parts=[Part(name="aten::clone", base=0, head=1, line=line)])
    found = _judge(NAMES["extra-copy"], make_decision("FAIL", comparisons=[copies]))
    assert (found.outcome, found.line) == ("agrees" if agrees else "differs", line)


def test_judge__copy_with_other_counters__agrees() -> None:
    copies = make_counter("counters.copies", 0, 1, parts=[Part(name="aten::clone", base=0, head=1, line="scorer.py:2")])
    comparisons = [copies, make_counter("counters.framework_ops", 5, 6)]
    assert _judge(NAMES["extra-copy"], make_decision("FAIL", comparisons=comparisons)).outcome == "agrees"


def test_judge__metric_that_nobody_compared__differs_and_says_so() -> None:
    found = _judge(NAMES["leak"], make_decision("FAIL", comparisons=[SLOWER]))
    assert found.reason == "memory.kept was not compared"


def test_judge__inconclusive__too_busy_with_what_it_hangs_on_noise_and_remedy() -> None:
    undecided = make_comparison("latency.low", outcome="inconclusive", pairs_needed=20)
    other = make_comparison("latency.p99", outcome="inconclusive", pairs_needed=900)
    decision = make_decision(
        "INCONCLUSIVE",
        comparisons=[undecided, other],
        reasons=[Message("verdict.undecided", {"name": "encoder/long latency.low"})],
    )
    found = _judge(NAMES["no-change"], decision, 3)
    assert found.outcome == "too_busy"
    assert found.reason == (
        "undecided: encoder/long latency.low after 14 pairs in 190 s, noise floor ±0.9 %; "
        "about 20 pairs would decide: raise [gate] budget, or use a quieter machine"
    )


SLOW_TAIL = make_comparison("latency.p99", outcome="inconclusive")
OPEN = Message("verdict.undecided", {"name": "encoder/long latency.p99"})


@pytest.mark.parametrize(
    ("name", "verdict", "comparisons", "reasons", "outcome"),
    [
        ("p99-only", "INCONCLUSIVE", [SLOW_TAIL], [OPEN], "too_busy"),
        ("p99-only", "PASS", [SLOW_TAIL], [], "too_busy"),
        # The clock decided, and wrongly.
        ("p99-only", "PASS", [make_comparison("latency.p99")], [], "differs"),
        ("p99-only", "FAIL", [SLOW_TAIL, SLOWER], [], "differs"),
        # Something else than the clock is missing.
        (
            "no-change",
            "INCONCLUSIVE",
            [],
            [Message("verdict.missing", {"name": "encoder/long memory.kept"})],
            "differs",
        ),
        # A counter needs no clock.
        ("leak", "INCONCLUSIVE", [SLOW_TAIL, make_counter("memory.kept", 0, 0)], [OPEN], "differs"),
    ],
)
def test_judge__clock_that_cannot_tell__too_busy_for_nothing_else(
    name: str, verdict: Verdict, comparisons: list[Comparison], reasons: list[Message], outcome: str
) -> None:
    decision = make_decision(verdict, comparisons=comparisons, reasons=reasons)
    assert _judge(NAMES[name], decision, 3).outcome == outcome


@pytest.mark.parametrize(("kind", "outcome"), [("foreign_process", "too_busy"), ("code_changed", "differs")])
def test_judge__times_that_prove_nothing__too_busy_unless_code_changed(kind: InvalidKind, outcome: str) -> None:
    invalid = Invalid(workload="encoder", shape="long", kind=kind, message=quote("others"))
    decision = make_decision(
        "INCONCLUSIVE", invalid=[invalid], reasons=[Message("verdict.invalid", {"name": "others"})]
    )
    assert {_judge(NAMES[name], decision, 4).outcome for name in ("no-change", "gap-only")} == {outcome}


def test_judge__no_decision__differs() -> None:
    found = _judge(NAMES["leak"], None, 4)
    assert (found.outcome, found.verdict, found.exit_code) == ("differs", None, 4)
    assert "exit code 4 and no decision" in found.reason
