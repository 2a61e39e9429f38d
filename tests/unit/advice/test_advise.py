"""Suggestions of runs and decisions: gains, ranking, and what a change introduced."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perfgate.document.decision import Gain, JudgedFinding, Standing, StepSummary
from perfgate.document.message import quote
from perfgate.document.run import FROM_PROFILE, Finding, Session, StepResult, Value
from perfgate.judging.advice.advise import advised, shown_faster, suggestions
from perfgate.judging.report.text.messages import word
from perfgate.locale import speaking
from tests.fakes.documents import make_decision, make_difference, make_run


def step(number: int, *findings: Finding, values: tuple[Value, ...] = (), **fields: Any) -> StepResult:
    return StepResult(
        **{
            "number": number, "slug": "any", "workload": "encoder", "status": "attention", "findings": list(findings),
            "values": list(values), **fields,
        }
    )  # fmt: skip


def finding(rule: str, severity: Any = "warning", **evidence: Any) -> Finding:
    return Finding(rule=rule, severity=severity, message=quote("words"), evidence={"shape": "long", **evidence})


GRAPH = step(
    9,
    finding("graph.gain", "info"),
    values=(
        Value(metric="graph.speedup", value=9.0, interval=(8.0, 10.0), labels={"shape": "short"}),
        Value(metric="graph.speedup", value=1.3, interval=(1.25, 1.4), labels={"shape": "long"}),
    ),
)
CHANNELS_LAST = step(
    14,
    finding("contiguity.channels_last"),
    values=(
        Value(metric="contiguity.channels_last_speedup", value=2.0, interval=(1.1, 3.0), labels={"shape": "long"}),
    ),
)
SOFTMAX = step(4, finding("ops.share.softmax", **{"op": "Softmax", "ops.share.softmax": 0.2}))
BUSY = step(2, values=(Value(metric="utilization.busy", value=0.5, labels={"shape": "long"}),), status="ok")
GROWTH = step(17, finding("memory.growth"), finding("ops.missing_kernel", "severe", kernel="Flash*", nearest="none"))


def test_suggestions__every_kind_of_gain__measured_by_low_end_then_estimated_then_by_severity() -> None:
    found = suggestions(make_run(steps=[GROWTH, SOFTMAX, CHANNELS_LAST, GRAPH]))
    assert [one.rule for one in found] == [
        "graph.gain", "contiguity.channels_last", "ops.share.softmax", "ops.missing_kernel", "memory.growth",
    ]  # fmt: skip
    assert found[0].gain == Gain(kind="measured", speedup=1.3, interval=(1.25, 1.4))
    assert found[0].gain.saved == pytest.approx(0.2)


def test_suggestions__measured_gain__evidence_code_command_and_step() -> None:
    (found,) = suggestions(make_run(steps=[GRAPH]))
    assert (found.step, found.shape, found.code) == (9, "long", "model = torch.compile(model)")
    assert found.command == "perfgate run --steps 9 --workload encoder"
    assert (found.source, found.introduced) == ("perfgate", False)


def test_suggestions__share_of_busy_time__of_the_call_only_as_much_as_the_device_is_busy() -> None:
    alone, beside = (suggestions(make_run(steps=steps))[0].gain for steps in ([SOFTMAX], [SOFTMAX, BUSY]))
    assert alone == Gain(kind="estimated", speedup=1 / 0.8, share=0.2)
    assert beside is not None
    assert (beside.share, beside.speedup) == (pytest.approx(0.1), pytest.approx(1 / 0.9))


@pytest.mark.parametrize(
    ("noticed", "values", "share"),
    [
        # Half the time of the operator stays at best, and the operator has 40 % of it.
        (finding("tiling.attained", op="mm", unit="cube", time_share=0.4, **{"tiling.attained": 0.5}), (), 0.2),
        (finding("utilization.busy", free=0.4), (), 0.4),
        (
            # Waiting for other ranks is not waiting for the host: a collective counts as busy.
            finding("utilization.busy", free=0.3),
            (Value(metric="communication.exposed", value=0.6, labels={"shape": "long"}),),
            0.3,
        ),
        (
            finding("tiling.padding_gain", op="mm", sizes="7", padded="8", saves=0.002),
            (Value(metric="latency.p50", value=0.010, labels={"shape": "long"}),),
            0.2,
        ),
    ],
)
def test_suggestions__part_of_the_call_that_may_go__by_amdahl(
    noticed: Finding, values: tuple[Value, ...], share: float
) -> None:
    (found,) = suggestions(make_run(steps=[step(13, noticed, values=values)]))
    assert found.gain is not None
    assert (found.gain.kind, found.gain.share) == ("estimated", pytest.approx(share))
    assert found.gain.speedup == pytest.approx(1 / (1 - share))


def test_suggestions__throughput_that_is_lost__gain_an_item() -> None:
    lost = step(5, finding("batch.loss", batch=2, best=16), values=(Value(metric="batch.loss", value=0.2),))
    (found,) = suggestions(make_run(steps=[lost]))
    assert found.gain == Gain(kind="measured", of="item", speedup=1.25)
    assert word(found.message).startswith("use a batch size of 16 instead of 2")
    assert (found.code or "").startswith("batch=16 ")


@pytest.mark.parametrize(
    ("speedup", "interval", "kept"),
    [(1.4, (1.2, 1.6), True), (1.4, (0.9, 1.9), False), (0.8, (0.7, 0.9), False), (1.4, None, True)],
)
def test_shown_faster__tried_by_a_step__if_its_whole_interval_is_faster(
    speedup: float, interval: tuple[float, float] | None, kept: bool
) -> None:
    tried = step(
        9,
        finding("graph.gain", "info"),
        finding("ops.share.softmax", **{"ops.share.softmax": 0.5}),
        values=(Value(metric="graph.speedup", value=speedup, interval=interval),),
    )
    found = shown_faster(suggestions(make_run(steps=[tried])))
    assert [one.rule for one in found] == (["graph.gain"] if kept else [])


def test_suggestions__low_precision_that_is_slower__gain_of_going_back() -> None:
    slower = step(
        8,
        finding("precision.slower", dtype="float16"),
        values=(Value(metric="precision.speedup", value=0.5, interval=(0.4, 0.8), labels={"shape": "long"}),),
    )
    (found,) = suggestions(make_run(steps=[slower]))
    assert found.gain is not None
    assert (found.gain.speedup, found.gain.interval) == (2.0, (pytest.approx(1.25), pytest.approx(2.5)))


@pytest.mark.parametrize("number", [0.0, -1.0, float("inf"), None])
def test_suggestions__number_that_is_no_speedup__no_gain(number: Any) -> None:
    broken = step(9, finding("graph.gain", "info"), values=(Value(metric="graph.speedup", value=number),))
    (found,) = suggestions(make_run(steps=[broken]))
    assert found.gain is None


@pytest.mark.parametrize("share", [1.0, 1.7, "much", float("nan")])
def test_suggestions__share_that_is_none__no_gain(share: Any) -> None:
    (found,) = suggestions(make_run(steps=[step(4, finding("ops.share.softmax", **{"ops.share.softmax": share}))]))
    assert found.gain is None


def test_suggestions__unknown_rule_missing_evidence_and_plain_notes__nothing() -> None:
    found = [finding("no.such"), finding("ops.kernel_time"), finding("counters.unstable", "info", metrics="a")]
    assert suggestions(make_run(steps=[step(4, *found)])) == []


def test_suggestions__one_rule_on_one_line_in_two_shapes__once_with_the_larger_gain() -> None:
    both = [
        finding("ops.share.softmax", **{"shape": shape, "line": "m.py:3", "ops.share.softmax": share})
        for shape, share in (("long", 0.2), ("short", 0.3))
    ]
    (found,) = suggestions(make_run(steps=[step(4, *both)]))
    assert (found.shape, found.line) == ("short", "m.py:3")


def test_suggestions__the_same_words_of_two_steps_and_two_ranks__once() -> None:
    """Steps 2 and 16 both see that nothing hides the collectives, of every rank of a recording."""
    noticed = [
        step(number, *[finding(rule, shape=f"rank {rank}", **{share: 0.5}) for rank in (0, 1)], workload="training")
        for number, rule, share in (
            (2, "utilization.communication", "exposed communication"),
            (16, "communication.exposed", "communication.exposed"),
        )
    ]
    (found,) = suggestions(make_run(steps=noticed))
    assert (found.code or "").endswith("bucket_cap_mb=10)"), "smaller than the 25 that DDP takes by itself"


def test_suggestions__smaller_buckets_and_larger_ones__the_larger_gain_alone() -> None:
    packets = finding("communication.small_packets", share=0.3, link="SDMA", smaller=1e6)
    exposed = finding("communication.exposed", **{"communication.exposed": 0.4})
    found = suggestions(make_run(steps=[step(16, packets, exposed)]))
    assert [suggestion.rule for suggestion in found] == ["communication.exposed"]


def test_suggestions__ranks_that_wait_for_most_of_the_exposed_time__the_wait_leads() -> None:
    exposed = finding("communication.exposed", waiting=0.9, **{"communication.exposed": 0.5})
    wait = finding("communication.waiting", share=0.45)
    first, second = suggestions(make_run(steps=[step(16, exposed, wait)]))
    assert (first.rule, first.gain and first.gain.share) == ("communication.waiting", 0.45)
    assert (second.rule, second.gain and second.gain.share) == ("communication.exposed", pytest.approx(0.05))


def test_suggestions__a_remedy_that_can_touch_no_time__none() -> None:
    exposed = finding("communication.exposed", waiting=0.999, **{"communication.exposed": 0.5})
    assert suggestions(make_run(steps=[step(16, exposed)])) == []


def test_suggestions__workload_with_a_hostile_name__command_quotes_it() -> None:
    (found,) = suggestions(make_run(steps=[step(17, finding("memory.growth"), workload="a; rm -rf ~")]))
    assert found.command == "perfgate run --steps 17 --workload 'a; rm -rf ~'"


def test_suggestions__recording__no_command() -> None:
    session = Session(
        id="a", started_at="2026-01-01T00:00:00Z", finished_at="2026-01-01T00:00:01Z", seed=0, command=FROM_PROFILE
    )
    (found,) = suggestions(make_run(steps=[step(17, finding("memory.growth"))], session=session))
    assert found.command is None


def introduced(
    base: StepResult, head: StepResult, *, standing: Standing = "as_measured", **decision: Any
) -> list[bool]:
    summary = StepSummary(number=head.number, slug=head.slug, workload=head.workload, status=head.status)
    findings = []
    for finding in head.findings:
        findings.append(JudgedFinding(**msgspec.structs.asdict(finding), standing=standing))
    summary = msgspec.structs.replace(summary, findings=findings)
    judged = advised(
        make_decision("FAIL", comparisons=[], steps=[summary], **decision),
        make_run("base", steps=[base]),
        make_run(steps=[head]),
    )
    return [suggestion.introduced for suggestion in judged.explained.suggestions]


def test_advised__number_that_moved_past_its_limit__is_introduced() -> None:
    assert introduced(step(4, status="ok"), SOFTMAX, standing="new") == [True]


def test_advised__noisy_number_beyond_its_limit_on_the_head_alone__not_known_to_be_new() -> None:
    assert introduced(step(4, status="ok"), SOFTMAX) == [False]


def test_advised__finding_of_both_sides__was_there_before() -> None:
    assert introduced(SOFTMAX, SOFTMAX, standing="unchanged") == [False]


def missing_kernel(operator: str) -> StepResult:
    return step(4, finding("ops.missing_kernel", "severe", kernel="Flash*", nearest="none", op=operator))


MISSING = missing_kernel("aten::mul")


def test_advised__rule_without_a_number__introduced_if_the_base_did_not_find_it() -> None:
    assert introduced(step(4, status="ok"), MISSING) == [True]
    assert introduced(MISSING, MISSING) == [False]
    assert introduced(missing_kernel("aten::add"), MISSING) == [True]


@pytest.mark.parametrize("status", ["unavailable", "not_applicable", "error", "invalid"])
def test_advised__base_could_not_measure_the_step__not_known_to_be_new(status: str) -> None:
    assert introduced(step(4, status=status), MISSING) == [False]


def test_advised__base_without_the_step_or_a_mere_note__not_introduced() -> None:
    assert introduced(step(5, status="ok"), MISSING) == [False]
    assert introduced(step(9, status="ok"), GRAPH, standing="new") == [False]


def test_advised__other_testbed__not_the_changes_doing_unless_the_stack_is_compared() -> None:
    differs = [make_difference()]
    assert introduced(step(4, status="ok"), MISSING, testbed_differences=differs) == [False]
    assert introduced(step(4, status="ok"), MISSING, testbed_differences=differs, comparing="stack") == [True]


def test_advised__twice__the_same() -> None:
    base, head = make_run("base", steps=[step(4, status="ok")]), make_run(steps=[SOFTMAX, GRAPH])
    once = advised(make_decision(), base, head)
    assert advised(once, base, head) == once


CHAIN = step(6, finding("fusion.elementwise", ops="mul, add, tanh", **{"fusion.share": 0.2}))


def compiled(speedup: float, low: float, high: float) -> StepResult:
    return step(
        9, values=(Value(metric="graph.speedup", value=speedup, interval=(low, high), labels={"shape": "long"}),)
    )


def test_suggestions__compiling_was_tried_and_is_no_faster__a_chain_does_not_suggest_it() -> None:
    assert suggestions(make_run(steps=[CHAIN, compiled(1.21, 0.97, 1.4)])) == []


def test_suggestions__compiling_was_tried_and_is_faster__a_chain_promises_what_was_measured() -> None:
    (found,) = suggestions(make_run(steps=[CHAIN, compiled(1.3, 1.2, 1.4)]))
    assert found.gain == Gain(kind="measured", speedup=1.3, interval=(1.2, 1.4))


def test_suggestions__compiling_was_not_tried__a_chain_promises_at_most_its_own_time() -> None:
    (found,) = suggestions(make_run(steps=[CHAIN]))
    assert found.gain == Gain(kind="estimated", speedup=1.25, share=0.2)


SHORT = step(12, finding("small_ops.time_share", **{"small_ops.time_share": 0.6}))
COVERAGE = step(4, finding("ops.coverage", **{"ops.coverage": 0.2}))


@pytest.mark.parametrize("noticed", [SHORT, COVERAGE], ids=["short operators", "coverage"])
def test_suggestions__compiling_is_no_faster__the_other_remedy_without_it(noticed: StepResult) -> None:
    (found,) = suggestions(make_run(steps=[noticed, compiled(1.21, 0.97, 1.4)]))
    assert "compiling the model was measured not to be faster" in word(found.message)
    assert found.code is None
    assert found.gain is None or found.gain.kind == "estimated"
    with speaking("zh"):
        assert "已实测编译模型" in word(found.message)


@pytest.mark.parametrize("noticed", [SHORT, COVERAGE], ids=["short operators", "coverage"])
def test_suggestions__compiling_is_faster__promised_as_measured(noticed: StepResult) -> None:
    (found,) = suggestions(make_run(steps=[noticed, compiled(1.3, 1.2, 1.4)]))
    assert found.gain == Gain(kind="measured", speedup=1.3, interval=(1.2, 1.4))


def test_suggestions__evidence_of_another_type_than_the_words_need__nothing_is_suggested() -> None:
    noticed = step(10, finding("batching.saturated", most=100.0, rate="many"))
    assert suggestions(make_run(steps=[noticed])) == []
