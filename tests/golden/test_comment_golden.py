"""The whole comment, as it is posted, for the decisions people meet. Rewrite the files with PERFGATE_WRITE_GOLDEN=1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from perfgate.catalogue.names import OPERATOR_SHARE
from perfgate.document.coverage import ChangedFunction, Coverage
from perfgate.document.decision import (
    DecisionDocument,
    HarnessAddition,
    HarnessEdit,
    HarnessRemoval,
    Policy,
    Procedure,
    SideSummary,
    StepComparison,
    StoredComparison,
    TurnDifference,
    UnfitHarness,
    Verdict,
)
from perfgate.document.message import Message, quote
from perfgate.document.run import ErrorDetail
from perfgate.judging.forge.orders import numbered_order
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.testbeds import render_column, render_joint_comment, section_budget
from tests.fakes.documents import (
    code_changes,
    make_comparison,
    make_counter,
    make_decision,
    make_difference,
    make_failed_check,
    make_failure,
    make_harness_change,
    make_package,
    operator_changes,
    operator_tests,
    partial_coverage,
    regressed_counters,
    regressed_time,
    suggestions,
    traces,
    unchanged_comparisons,
)
from tests.fakes.records import changed
from tests.golden.kept import compare

DATA = Path(__file__).parent / "data"
CONTEXT = CommentContext(
    marker="<!-- perfgate:v1:demo -->",
    artifact_url="https://forge.example/demo/actions/runs/1/artifacts/2",
    job_url="https://forge.example/demo/actions/runs/1",
    source=lambda line: f"https://forge.example/demo/blob/0f1e2d3c4/{line.replace(':', '#L')}",
    reproduce="perfgate local --base a1b2c3d4e5f6",
    accept_order=lambda number, _: numbered_order(number, None),
)
# The decisions whose comment is kept in Chinese too.
CHINESE = [
    "pass", "fail-by-time", "inconclusive-noisy", "harness-measures-less", "hostile-names", "measured-in-part", "not-measured",
]  # fmt: skip
HOSTILE = "</details>|`x``y`\n/approve @octocat [a](https://evil.example) <img src=x> \u202e$z$"


def numbers_of_steps() -> list[StepComparison]:
    """Return numbers that pairs decide, of their samples, of turns under a limit, that the head lacks, and of one side each."""
    latency = StepComparison(
        step=1, workload="encoder", shape="long", metric="latency.p50", unit="s", base=0.0371, head=0.0391,
        tolerance=0.01, leads=True,
        difference=TurnDifference(unit="pair", count=24, delta=0.054, interval=(0.041, 0.066), confidence=0.99),
    )  # fmt: skip
    throughput = StepComparison(
        step=1, workload="encoder", shape="long", metric="throughput.median", unit="1/s", base=26.9, head=25.6,
        difference=TurnDifference(unit="pair", count=24, delta=-0.048, interval=(-0.061, -0.035), confidence=0.95),
    )  # fmt: skip
    busy = StepComparison(
        step=2, workload="encoder", shape="long", metric="utilization.busy", unit="1", base=0.91, head=0.88,
        bound=0.8, at_most=False, leads=True,
        difference=TurnDifference(
            unit="turn", count=6, needed=31, delta=-0.033, interval=(-0.08, 0.02), confidence=0.95
        ),
    )  # fmt: skip
    best = StepComparison(step=5, workload="encoder", shape="", metric="batch.best", unit="1", base=16.0)
    knee = StepComparison(
        step=5,
        workload="encoder",
        shape="",
        metric="batch.knee",
        unit="1",
        base=16.0,
        head=8.0,
        difference=TurnDifference(unit="turn", count=0),
        leads=True,
    )
    shares = [
        StepComparison(
            step=4, workload="encoder", shape="long", metric=OPERATOR_SHARE, labels={"op": op}, unit="1", base=base, head=head,
            leads=True,
        )
        for op, base, head in (("aten::addmm", 0.412, 0.379), ("aten::add", 0.094, 0.168), ("aten::bmm", 0.081, 0.077))
    ]  # fmt: skip
    return [latency, throughput, busy, *shares, best, knee]


def main_runs() -> StoredComparison:
    """Return seven runs of main that the head lies above."""
    return StoredComparison(
        workload="encoder", shape="long", metric="latency.p50", unit="s", head=0.0391, runs=7, typical=0.0372, delta=0.0511,
        interval=(0.0365, 0.0379), confidence=0.98, values=[0.0372] * 7,
    )  # fmt: skip


def decisions() -> dict[str, DecisionDocument]:
    """Return one decision for each golden file."""
    better = make_counter("memory.peak", 3_328_599_654, 2_909_798_400)
    noisy = make_comparison(outcome="inconclusive", interval=(-0.012, 0.041), delta=0.013, pairs_needed=44)
    killed = ErrorDetail(kind="signal", message="the worker was killed", signal="SIGKILL", log_tail="loading\nepoch 0")
    wrong = make_failed_check(quote("cosine similarity 0.31 is below 0.99"))
    hostile_parts = [make_counter("counters.copies", 1, 9, workload=HOSTILE, shape=HOSTILE, reason=quote(HOSTILE))]
    return {
        "pass": make_decision(),
        "pass-slower-operator": make_decision(operator_tests=operator_tests()),
        "warn-by-counter": make_decision(
            "WARN",
            reasons=[Message("verdict.costless", {"name": "encoder/long counters.framework_ops"})],
            comparisons=unchanged_comparisons()[:2]
            + [msgspec.structs.replace(c, gating=False, costless=True) for c in regressed_counters()],
            suggestions=suggestions(),
        ),
        "fail-by-time": make_decision(
            "FAIL",
            reasons=[Message("verdict.regressed", {"name": "encoder/long latency.low"})],
            comparisons=[*regressed_time(), *regressed_counters(), better],
            operator_changes=operator_changes(),
            changes=code_changes(),
            suggestions=suggestions(),
            links=traces(),
            numbers=numbers_of_steps(),
            stored=[main_runs()],
            duration=460.0,
        ),
        "inconclusive-noisy": make_decision(
            "INCONCLUSIVE",
            reasons=[Message("verdict.undecided", {"name": "encoder/long latency.low"})],
            comparisons=[noisy],
        ),
        "inconclusive-testbed": make_decision(
            "INCONCLUSIVE",
            reasons=[Message("verdict.testbed", {"name": "torch"})],
            testbed_differences=[make_difference()],
            comparisons=[make_comparison(outcome="not_comparable", reason=quote("torch differs"))],
        ),
        "error-in-head": make_decision(
            "INCONCLUSIVE",
            reasons=[Message("verdict.failed", {"name": "head encoder loading"})],
            comparisons=[],
            noise_floors=[],
            failures=[make_failure(), make_failure("pair", what="pair 3", error=killed)],
            pairs=0,
            duration=12.0,
        ),
        "correctness-failed": make_decision(
            "FAIL",
            reasons=[Message("verdict.regressed", {"name": "encoder/long correctness"})],
            comparisons=[wrong, *unchanged_comparisons()],
        ),
        "upgrade-slower": make_decision(
            "WARN",
            comparing="stack",
            reasons=[Message("verdict.regressed", {"name": "encoder/long latency.low"})],
            comparisons=[*regressed_time(), *unchanged_comparisons()[2:]],
            base=SideSummary(
                commit="a1b2c3d4e5f60718293a4b5c6d7e8f9001122334", chosen_because=Message("gate.base-old-stack")
            ),
            head=SideSummary(commit="a1b2c3d4e5f60718293a4b5c6d7e8f9001122334"),
            testbed_differences=[make_difference("python", "3.11.7", "3.12.1"), make_difference()],
            package_differences=[
                make_package("torch", "2.12.0", "2.13.0"),
                make_package("transformers", "4.40.0", "4.41.2"),
                make_package("tabulate", None, "0.9.0"),
                make_package("setuptools", "68.0", "80.9", loaded=False),
            ],
        ),
        "harness-measures-less": make_decision(
            "WARN",
            reasons=[
                Message("verdict.harness", {"name": "encoder: the head no longer measures shape short"}),
                Message("verdict.harness", {"name": "encoder: the head removed check="}),
            ],
            harness_changes=[
                make_harness_change(HarnessAddition, Message("harness.sla-added")),
                make_harness_change(HarnessRemoval, Message("harness.shape-removed", {"shape": "short"})),
                make_harness_change(HarnessRemoval, Message("harness.function-removed", {"function": "check"})),
            ],
        ),
        "harness-not-comparable": make_decision(
            "INCONCLUSIVE",
            reasons=[
                Message("verdict.harness", {"name": "encoder: the base does not run under the head's workload file"})
            ],
            comparisons=[
                make_comparison(
                    outcome="not_comparable",
                    gating=False,
                    base=None,
                    head=None,
                    delta=None,
                    interval=None,
                    reason=Message("harness.base-does-not-run"),
                )
            ],
            harness_changes=[
                make_harness_change(HarnessEdit, Message("harness.function-changed", {"function": "build"})),
                make_harness_change(UnfitHarness, Message("harness.base-does-not-run")),
            ],
            failures=[make_failure("base", what="load")],
            noise_floors=[],
            pairs=0,
        ),
        "hostile-names": make_decision(
            "FAIL",
            device=HOSTILE,
            package_differences=[make_package(HOSTILE, HOSTILE, None)],
            harness_changes=[make_harness_change(HarnessRemoval, Message("harness.shape-removed", {"shape": HOSTILE}))],
            warnings=[HOSTILE],
            comparisons=hostile_parts,
            base=SideSummary(commit=HOSTILE, chosen_because=HOSTILE),
            failures=[make_failure(workload=HOSTILE, what=HOSTILE, error=ErrorDetail(kind="exit", message=HOSTILE))],
        ),
        "measured-in-part": make_decision(coverage=partial_coverage()),
        "not-measured": make_decision(
            "FAIL",
            reasons=[Message("gate.unmeasured")],
            policy=Policy(unmeasured="fail"),
            coverage=Coverage(
                files=["decoder.py", "docs/decoder.md"],
                functions=[ChangedFunction(line="decoder.py:12", function="decode", executed="no")],
                calls=5000,
                nearest=["tests/test_decoder.py::test_decode"],
            ),
            comparisons=[],
            noise_floors=[],
            steps=[],
            procedure=Procedure(name="none", version=1, seed=0, quantiles=[], policy=Policy()),
            pairs=0,
            duration=8.0,
        ),
        "skipped": make_decision(
            "SKIPPED",
            reasons=[Message("gate.nothing-changed", {"count": 2, "rules": ["docs/**"]})],
            comparisons=[],
            noise_floors=[],
            steps=[],
            procedure=Procedure(name="none", version=1, seed=0, quantiles=[], policy=Policy()),
            pairs=0,
            duration=0.0,
        ),
    }


@pytest.mark.parametrize("name", decisions())
def test_render_comment__decision__is_the_golden_text(name: str) -> None:
    text = render_comment(decisions()[name], CONTEXT)
    compare(text, DATA / f"comment-{name}.md")


@pytest.mark.parametrize("name", CHINESE)
def test_render_comment__decision_in_chinese__is_the_golden_text(name: str) -> None:
    text = render_comment(decisions()[name], replace(CONTEXT, language="zh"))
    compare(text, DATA / f"comment-{name}.zh.md")


def unread(why: str) -> DecisionDocument:
    """Return the decision on a testbed that left nothing."""
    return make_decision(
        "INCONCLUSIVE",
        reasons=[Message("publish.artifact", {"why": Message(why)})],
        base=SideSummary(),
        head=SideSummary(commit="0f1e2d3c4b5a69788796a5b4c3d2e1f001122334"),
        device="unknown",
        comparisons=[],
        noise_floors=[],
        steps=[],
        procedure=Procedure(name="none", version=1, seed=0, quantiles=[], policy=Policy()),
        pairs=0,
        duration=0.0,
    )


def matrices() -> dict[str, tuple[Verdict, dict[str, DecisionDocument]]]:
    """Return the verdict and the decisions of three testbeds for each golden file."""
    known = decisions()
    on_npu = changed(known["pass"], device="Ascend910B3")
    other = changed(known["pass"], device="Ascend910_9382")
    return {
        "three-pass": ("PASS", {"910b": on_npu, "a3": other, "cpu-x86": known["pass"]}),
        "one-fails": ("FAIL", {"910b": on_npu, "a3": known["fail-by-time"], "cpu-x86": known["inconclusive-noisy"]}),
        "one-missing": (
            "INCONCLUSIVE",
            {"910b": on_npu, "a3": unread("publish.job-cancelled"), "cpu-x86": known["pass"]},
        ),
        "hostile": ("FAIL", {"910b": known["hostile-names"], "a3": unread("publish.measured-once"), "cpu-x86": on_npu}),
    }


def joint_comment(name: str, context: CommentContext, budget: int = 55_000) -> str:
    verdict, of_testbeds = matrices()[name]
    room = section_budget(len(of_testbeds), budget)
    columns = [render_column(testbed, one, context, budget=room) for testbed, one in of_testbeds.items()]
    return render_joint_comment(columns, verdict, context, budget=budget)


@pytest.mark.parametrize("name", matrices())
def test_render_joint_comment__decisions_of_testbeds__is_the_golden_text(name: str) -> None:
    compare(joint_comment(name, CONTEXT), DATA / f"joint-{name}.md")


def test_render_joint_comment__in_chinese__is_the_golden_text() -> None:
    compare(joint_comment("one-fails", replace(CONTEXT, language="zh")), DATA / "joint-one-fails.zh.md")


def test_render_joint_comment__too_small_a_budget__names_the_testbeds_whose_comment_is_left_out() -> None:
    text = joint_comment("one-fails", CONTEXT, budget=11_000)
    assert len(text) <= 11_000
    assert "| | 910b | a3 | cpu-x86 |" in text
    assert "The comment of a3 is too long to show here: see its `report.html`." in text


def test_golden_files__folder__holds_no_file_without_a_decision() -> None:
    assert {path.name for path in DATA.glob("comment-*.md")} == {
        *(f"comment-{name}.md" for name in decisions()),
        *(f"comment-{name}.zh.md" for name in CHINESE),
    }
