"""The gate on two recordings: counts decide, times are shown, and what could not be compared is no PASS."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.jobs.run.from_profile import ProfileOptions, run_from_profile
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.recordings import NOT_COMPARED
from perfgate.judging.gate.verdict import exit_code
from tests.fakes.recordings import ADD, ALL_REDUCE, GEMM, STEP, TO_NHWC, UPLOAD, kineto_recording
from tests.wording import text_of, worded

SLOWER = tuple((name, 3 * length) for name, length in STEP)


def recorded(folder: Path, name: str, **fields: object) -> RunDocument:
    path = kineto_recording(folder / f"{name}.json", **fields)  # type: ignore[arg-type]
    return run_from_profile(folder, ProfileOptions(profile=path, out=folder / name), lambda text: None)


def judge(base: RunDocument, head: RunDocument) -> DecisionDocument:
    return decide(base, head, policy=Policy(), history=History())


def test_decide__equal_counts_and_times__pass(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head"))

    assert (decision.verdict, decision.recorded, worded(decision.reasons)) == ("PASS", True, [])
    assert [c.outcome for c in decision.comparisons if c.gating] == ["unchanged"] * 5
    assert exit_code(decision) == 0


def test_decide__three_times_as_slow__fail_that_names_the_operators(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head", steps=(SLOWER,) * 3))

    assert (decision.verdict, worded(decision.reasons)) == ("FAIL", ["regressed: profile/rank 0 kernels.time"])
    assert exit_code(decision) == 1
    (time,) = (c for c in decision.comparisons if c.method == "profiled")
    # 400 us of kernels a step, those of the collective apart.
    assert (time.base, time.head, time.delta) == (pytest.approx(400e-6), pytest.approx(1200e-6), pytest.approx(2.0))
    assert [(part.name, part.head) for part in time.parts][:2] == [
        (GEMM, pytest.approx(750e-6)), (TO_NHWC, pytest.approx(270e-6)),
    ]  # fmt: skip


def test_decide__slower__other_times_shown_and_judged_by_nobody(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head", steps=(SLOWER,) * 3))

    shown = {c.metric: c for c in decision.comparisons if c.method == "recorded"}
    assert {c.outcome for c in shown.values()} == {"not_comparable"}
    assert all(c.reason == NOT_COMPARED for c in shown.values())
    assert not any(c.gating or c.delta is not None for c in shown.values())
    time = shown[f"ops.time:{ADD}"]
    assert time.base == pytest.approx(60e-6)
    assert time.head is not None
    assert time.head > time.base


def test_decide__collective_alone_slower__it_waits_for_others_and_proves_nothing(tmp_path: Path) -> None:
    waiting = tuple((name, 3 * length if name == ALL_REDUCE else length) for name, length in STEP)

    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head", steps=(waiting,) * 3))

    assert decision.verdict == "PASS"


@pytest.mark.parametrize("side", ["base", "head"])
def test_decide__times_of_one_side_left_out__inconclusive_by_name(tmp_path: Path, side: str) -> None:
    runs = {"base": recorded(tmp_path, "base"), "head": recorded(tmp_path, "head", steps=(SLOWER,) * 3)}
    runs[side] = msgspec.structs.replace(runs[side], kernel_times=[])

    decision = judge(runs["base"], runs["head"])

    assert (decision.verdict, worded(decision.reasons)) == (
        "INCONCLUSIVE",
        ["undecided: profile/rank 0 kernels.time"],
    )
    (time,) = (c for c in decision.comparisons if c.method == "profiled")
    assert text_of(time.reason) == f"the {side} has no times of kernels"


@pytest.mark.parametrize("side", ["base", "head"])
def test_decide__steps_of_one_side_left_out__inconclusive_by_name(tmp_path: Path, side: str) -> None:
    runs = {"base": recorded(tmp_path, "base"), "head": recorded(tmp_path, "head", steps=(SLOWER,) * 3)}
    (times,) = runs[side].kernel_times
    for fewer in (times.seconds[:1], []):
        cut = msgspec.structs.replace(times, seconds=fewer)

        decision = judge(**{**runs, side: msgspec.structs.replace(runs[side], kernel_times=[cut])})

        assert (decision.verdict, worded(decision.reasons)) == (
            "INCONCLUSIVE",
            ["undecided: profile/rank 0 kernels.time"],
        )


def test_decide__neither_side_has_times__inconclusive_by_name(tmp_path: Path) -> None:
    runs = [msgspec.structs.replace(recorded(tmp_path, side), kernel_times=[]) for side in ("base", "head")]

    decision = judge(*runs)

    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == [
        "untimed: profile/rank 0 kernels.time: the recordings tell no time of kernels in a step"
    ]
    assert exit_code(decision) == 3


def test_decide__two_steps_a_side__too_few_for_a_time(tmp_path: Path) -> None:
    decision = judge(*(recorded(tmp_path, side, steps=(STEP, STEP)) for side in ("base", "head")))

    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == ["undecided: profile/rank 0 kernels.time"]
    (time,) = (c for c in decision.comparisons if c.method == "profiled")
    assert text_of(time.reason) == "needs 3 steps a side, there are 2 and 2"


def test_decide__a_recording_whose_copies_were_not_seen__not_comparable_and_never_worse(tmp_path: Path) -> None:
    base, head = recorded(tmp_path, "base"), recorded(tmp_path, "head")
    (counted,) = base.counters
    values = {name: value for name, value in counted.values.items() if name != "counters.device_copies"}
    blind = msgspec.structs.replace(
        counted,
        values=values,
        ops=[op for op in counted.ops if op.op != UPLOAD],
        sites=[site for site in counted.sites if site.name != UPLOAD],
    )

    decision = judge(msgspec.structs.replace(base, counters=[blind]), head)

    assert [c.metric for c in decision.comparisons if c.outcome == "regressed"] == []
    assert [c.metric for c in decision.comparisons if c.metric.endswith(UPLOAD) and c.method == "exact"] == []


def test_decide__a_conversion_more__fail_with_its_name(tmp_path: Path) -> None:
    head = recorded(tmp_path, "head", steps=((*STEP, (TO_NHWC, 5)),) * 3)

    decision = judge(recorded(tmp_path, "base"), head)

    # 405 us of kernels instead of 400 are within the tolerance.
    assert decision.verdict == "FAIL"
    assert worded(decision.reasons) == [
        "regressed: profile/rank 0 counters.format_conversions",
        "regressed: profile/rank 0 counters.kernels",
    ]
    failing = next(c for c in decision.comparisons if c.metric == "counters.format_conversions")
    assert [(part.name, part.base, part.head) for part in failing.parts] == [(TO_NHWC, 2, 3)]
    assert failing.reason is None
    assert exit_code(decision) == 1


def test_decide__a_single_step__compared_and_said(tmp_path: Path) -> None:
    base = recorded(tmp_path, "base", steps=(STEP,))

    decision = judge(base, recorded(tmp_path, "head", steps=((*STEP, (TO_NHWC, 5)),)))

    failing = next(c for c in decision.comparisons if c.metric == "counters.kernels")
    assert decision.verdict == "FAIL"
    assert text_of(failing.reason) == "counted in a single step of base and head, so nothing shows that it repeats"
    assert any("one profiler step alone" in text for text in worded(decision.warnings))


def test_decide__steps_of_the_head_disagree__warned_not_hidden(tmp_path: Path) -> None:
    head = recorded(tmp_path, "head", steps=(STEP, (*STEP, (TO_NHWC, 5)), STEP))

    decision = judge(recorded(tmp_path, "base"), head)

    assert decision.verdict == "WARN"
    assert all(reason.startswith("unsteady: ") for reason in worded(decision.reasons))
    assert f"ops.count:{TO_NHWC}" not in [c.metric for c in decision.comparisons]


def test_decide__whole_recordings_of_other_lengths__nobody_is_blamed(tmp_path: Path) -> None:
    base = recorded(tmp_path, "base", marked=False)

    decision = judge(base, recorded(tmp_path, "head", marked=False, steps=(STEP,) * 4))

    assert decision.verdict == "INCONCLUSIVE"
    assert "undecided: profile/rank 0 counters.kernels" in worded(decision.reasons)
    assert exit_code(decision) == 3
    counted = next(c for c in decision.comparisons if c.metric == "counters.kernels")
    assert (counted.outcome, counted.gating, counted.base, counted.head) == ("inconclusive", True, 12, 16)
    assert "mark no steps" in (text_of(counted.reason))
    assert decision.operator_changes == []


def test_decide__whole_recordings_of_equal_counts__no_time_was_compared(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base", marked=False), recorded(tmp_path, "head", marked=False))

    assert decision.verdict == "INCONCLUSIVE"
    assert [reason.partition(":")[0] for reason in worded(decision.reasons)] == ["untimed"]


def test_decide__other_ranks__not_comparable(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head", rank=1))

    assert (decision.verdict, worded(decision.reasons)) == ("INCONCLUSIVE", ["testbed: profile.shapes"])
    assert not any(c.method == "recorded" for c in decision.comparisons)


def test_decide__measured_against_recorded__not_comparable(tmp_path: Path) -> None:
    base = recorded(tmp_path, "base")
    measured = msgspec.structs.replace(
        base,
        session=msgspec.structs.replace(base.session, command="run"),
        testbed=msgspec.structs.replace(base.testbed, fingerprint="0", comparable={"device.kind": "cuda"}),
    )

    decision = judge(base, measured)

    assert (decision.verdict, decision.recorded) == ("INCONCLUSIVE", False)


def test_decide__two_measured_runs_without_pairs__inconclusive_and_names_what_is_missing(tmp_path: Path) -> None:
    run = recorded(tmp_path, "run")
    measured = msgspec.structs.replace(run, session=msgspec.structs.replace(run.session, command="run"))

    decision = judge(measured, measured)

    assert (decision.verdict, decision.recorded) == ("INCONCLUSIVE", False)
    assert "missing: profile/rank 0 latency.low (both)" in worded(decision.reasons)


def test_decide__both_lack_the_same__said_once(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head"))

    assert (
        text_of(decision.warnings[0])
        == "base and head: made from a recording: counts and times of kernels are compared, the other times with nothing"
    )
    assert len(decision.warnings) == len(set(worded(decision.warnings)))
