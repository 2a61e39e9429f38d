"""The gate on two recordings: counts decide, times are shown, and what could not be compared is no PASS."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfgate.document.comparison import Comparison, Exact, Recorded
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import KernelTimes, KernelWork, RunDocument
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.judging.gate.compare.recordings import NOT_COMPARED, compare_kernel_times
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.gate.verdict import exit_code
from tests.fakes.recordings import ADD, ALL_REDUCE, GEMM, STEP, TO_NHWC, UPLOAD, kineto_recording
from tests.fakes.records import changed
from tests.samples import unpacked
from tests.unit.trace import job
from tests.wording import text_of, worded

SLOWER = tuple((name, 3 * length) for name, length in STEP)


def recorded(folder: Path, name: str, **fields: object) -> RunDocument:
    path = kineto_recording(folder / f"{name}.json", **fields)  # type: ignore[arg-type]
    return run_from_profile(folder, path, folder / name, lambda text: None, keep_files=False)


def judge(base: RunDocument, head: RunDocument) -> DecisionDocument:
    return decide(base, head, policy=Policy(), history=History())


def test_decide__equal_counts_and_times__pass(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head"))

    assert (decision.verdict, decision.measured.recorded, worded(decision.reasons)) == ("PASS", True, [])
    assert [c.outcome for c in decision.comparisons if c.gating] == ["unchanged"] * 5
    assert exit_code(decision) == 0


def test_decide__three_times_as_slow__fail_that_names_the_operators(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head", steps=(SLOWER,) * 3))

    assert (decision.verdict, worded(decision.reasons)) == ("FAIL", ["regressed: profile/rank 0 kernels.time"])
    assert exit_code(decision) == 1
    (time,) = (c for c in decision.comparisons if isinstance(c, Recorded) and c.gating)
    # 400 us of kernels a step, those of the collective apart.
    assert (time.base, time.head, time.delta) == (pytest.approx(400e-6), pytest.approx(1200e-6), pytest.approx(2.0))
    assert [(part.name, part.head) for part in time.parts][:2] == [
        (GEMM, pytest.approx(750e-6)), (TO_NHWC, pytest.approx(270e-6)),
    ]  # fmt: skip


def test_decide__slower__other_times_shown_and_judged_by_nobody(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head", steps=(SLOWER,) * 3))

    shown = {c.metric: c for c in decision.comparisons if isinstance(c, Recorded) and c.outcome == "informs"}
    assert all(c.reason == NOT_COMPARED for c in shown.values())
    assert not any(c.gating or c.delta is not None for c in shown.values())
    time = shown[f"ops.time:{ADD}"]
    assert time.base == pytest.approx(60e-6)
    assert time.head is not None
    assert time.head > time.base


@pytest.mark.parametrize(("before", "after"), [(0, 8), (8, 0), (2, 8)])
def test_decide__more_work_in_the_queue_when_the_recording_began__pass(tmp_path: Path, before: int, after: int) -> None:
    """The device ran behind the host: it still had kernels of the steps before the recorded ones."""
    runs = []
    for side, queued in (("base", before), ("head", after)):
        events: list[job.Event] = []
        now = 1000
        for number in range(queued):
            # No operator was recorded when it was launched.
            unlaunched = {"device": 0, "stream": 7, "correlation": 1 + number}
            events.append(job.kernel(now, 50, 900 + number, args=unlaunched))
            now += 51
        for number in range(3):
            begin = 1000 + 200 * number
            events.append(job.step_mark(number, begin, 199))
            for place in range(4):
                called = 4 * number + place + 100
                now = max(now, begin + 45 * place + 20)
                events += [*job.launch(begin + 45 * place, called), job.kernel(now, 50, called)]
                now += 51
        path = job.recorded(tmp_path / f"{side}.json", events)
        runs.append(run_from_profile(tmp_path, path, tmp_path / side, lambda text: None, keep_files=False))
    decision = judge(*runs)
    assert [run.checklist.counters[0].values["counters.kernels"] for run in runs] == [4, 4]
    assert decision.verdict == "PASS"


@pytest.mark.parametrize("kernel", [ALL_REDUCE, "MatmulAllReduce"])
def test_decide__collective_or_fused_kernel_alone_slower__it_waits_for_others_and_proves_nothing(
    tmp_path: Path, kernel: str
) -> None:
    step = tuple((kernel if name == ALL_REDUCE else name, length) for name, length in STEP)
    waiting = tuple((name, 3 * length if name == kernel else length) for name, length in step)

    base, head = recorded(tmp_path, "base", steps=(step,) * 3), recorded(tmp_path, "head", steps=(waiting,) * 3)

    assert judge(base, head).verdict == "PASS"


@pytest.mark.parametrize("side", ["base", "head"])
def test_decide__times_of_one_side_left_out__inconclusive_by_name(tmp_path: Path, side: str) -> None:
    runs = {"base": recorded(tmp_path, "base"), "head": recorded(tmp_path, "head", steps=(SLOWER,) * 3)}
    runs[side] = changed(runs[side], kernel_times=[])

    decision = judge(runs["base"], runs["head"])

    assert (decision.verdict, worded(decision.reasons)) == (
        "INCONCLUSIVE",
        ["undecided: profile/rank 0 kernels.time"],
    )
    (time,) = (c for c in decision.comparisons if isinstance(c, Recorded) and c.gating)
    assert text_of(time.reason) == f"the {side} has no kernel times"


@pytest.mark.parametrize("side", ["base", "head"])
def test_decide__steps_of_one_side_left_out__inconclusive_by_name(tmp_path: Path, side: str) -> None:
    runs = {"base": recorded(tmp_path, "base"), "head": recorded(tmp_path, "head", steps=(SLOWER,) * 3)}
    (times,) = runs[side].checklist.kernel_times
    for fewer in (times.seconds[:1], []):
        cut = msgspec.structs.replace(times, seconds=fewer)

        decision = judge(**{**runs, side: changed(runs[side], kernel_times=[cut])})

        assert (decision.verdict, worded(decision.reasons)) == (
            "INCONCLUSIVE",
            ["undecided: profile/rank 0 kernels.time"],
        )


def test_decide__neither_side_has_times__inconclusive_by_name(tmp_path: Path) -> None:
    runs = [changed(recorded(tmp_path, side), kernel_times=[]) for side in ("base", "head")]

    decision = judge(*runs)

    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == [
        "untimed: profile/rank 0 kernels.time: the recordings have no kernel times per step"
    ]
    assert exit_code(decision) == 3


def test_decide__two_steps_a_side__too_few_for_a_time(tmp_path: Path) -> None:
    decision = judge(*(recorded(tmp_path, side, steps=(STEP, STEP)) for side in ("base", "head")))

    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == ["undecided: profile/rank 0 kernels.time"]
    (time,) = (c for c in decision.comparisons if isinstance(c, Recorded) and c.gating)
    assert text_of(time.reason) == "needs 3 steps per side, but there are 2 and 2"


def test_decide__a_recording_whose_copies_were_not_seen__not_comparable_and_never_worse(tmp_path: Path) -> None:
    base, head = recorded(tmp_path, "base"), recorded(tmp_path, "head")
    (counted,) = base.checklist.counters
    values = {name: value for name, value in counted.values.items() if name != "counters.device_copies"}
    blind = msgspec.structs.replace(
        counted,
        values=values,
        ops=[op for op in counted.ops if op.op != UPLOAD],
        sites=[site for site in counted.sites if site.name != UPLOAD],
    )

    decision = judge(changed(base, counters=[blind]), head)

    assert [c.metric for c in decision.comparisons if c.outcome == "regressed"] == []
    assert [c.metric for c in decision.comparisons if c.metric.endswith(UPLOAD) and isinstance(c, Exact)] == []


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
    assert text_of(failing.reason) == "counted in a single step of base and head, so repeatability is not shown"
    assert any("in a single profiler step" in text for text in worded(decision.warnings))


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
    assert decision.explained.operators == []


def test_decide__whole_recordings_of_equal_counts__no_time_was_compared(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base", marked=False), recorded(tmp_path, "head", marked=False))

    assert decision.verdict == "INCONCLUSIVE"
    assert [reason.partition(":")[0] for reason in worded(decision.reasons)] == ["untimed"]


def test_decide__other_ranks__not_comparable(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head", rank=1))

    assert (decision.verdict, worded(decision.reasons)) == ("INCONCLUSIVE", ["testbed: profile.shapes"])
    assert not any(c.outcome == "informs" for c in decision.comparisons)


def test_decide__measured_against_recorded__not_comparable(tmp_path: Path) -> None:
    base = recorded(tmp_path, "base")
    measured = msgspec.structs.replace(
        base,
        session=msgspec.structs.replace(base.session, command="run"),
        testbed=msgspec.structs.replace(base.testbed, fingerprint="0", comparable={"device.kind": "cuda"}),
    )

    decision = judge(base, measured)

    assert (decision.verdict, decision.measured.recorded) == ("INCONCLUSIVE", False)


def test_decide__two_measured_runs_without_pairs__inconclusive_and_names_what_is_missing(tmp_path: Path) -> None:
    run = recorded(tmp_path, "run")
    measured = msgspec.structs.replace(run, session=msgspec.structs.replace(run.session, command="run"))

    decision = judge(measured, measured)

    assert (decision.verdict, decision.measured.recorded) == ("INCONCLUSIVE", False)
    assert "missing: profile/rank 0 latency.low (both)" in worded(decision.reasons)


def test_decide__both_lack_the_same__said_once(tmp_path: Path) -> None:
    decision = judge(recorded(tmp_path, "base"), recorded(tmp_path, "head"))

    assert (
        text_of(worded(decision.warnings)[0])
        == "base and head: based on a recording: counts and kernel times are compared, other times are not"
    )
    assert len(worded(decision.warnings)) == len(set(worded(decision.warnings)))


ALEXNET = "msinsight-910B-alexnet-2501"


@pytest.fixture
def run(tmp_path: Path) -> RunDocument:
    path = kineto_recording(tmp_path / "recording.json")
    return run_from_profile(tmp_path, path, tmp_path / "out", lambda text: None, keep_files=False)


def with_times(run: RunDocument, *rows: KernelWork, seconds: tuple[float, ...] = (1.0,) * 3) -> RunDocument:
    mac = [row.mac for row in rows if row.mac is not None]
    vec = [row.vec for row in rows if row.vec is not None]
    times = KernelTimes(
        workload="profile",
        shape="rank 0",
        steps=len(seconds),
        seconds=list(seconds),
        mac=sum(mac) if mac else None,
        vec=sum(vec) if vec else None,
        rows=list(rows),
    )
    return changed(run, kernel_times=[times])


def matmul(mac: float, inputs: str = "32,1000;1000,4096") -> KernelWork:
    return KernelWork(op="MatMulV2", inputs=inputs, count=1, seconds=2.0, mac=mac)


def compared(base: RunDocument, head: RunDocument) -> dict[str, Comparison]:
    return {c.metric: c for c in compare_kernel_times(WorkTable(Evidence(base, head)).recorded_kernels, Policy())}


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [
        ((1.0, 1.0, 1.0), "unchanged"),
        ((1.019, 1.019, 1.019), "unchanged"),
        ((1.021, 1.021, 1.021), "regressed"),
        ((3.0, 3.0, 3.0), "regressed"),
        ((0.9, 0.9, 0.9), "improved"),
        ((1.0, 1.1, 1.0, 1.1), "inconclusive"),
        # One slow step among many tells nothing.
        ((1.0, 1.0, 1.0, 1.0, 5.0), "unchanged"),
    ],
)
def test_compare_kernel_times__sum_of_all_kernels__two_percent(
    run: RunDocument, seconds: tuple[float, ...], outcome: str
) -> None:
    found = compared(with_times(run), with_times(run, seconds=seconds))

    assert found["kernels.time"].outcome == outcome


@pytest.mark.parametrize(("mac", "outcome"), [(1.0015, "unchanged"), (1.0025, "regressed"), (0.99, "improved")])
def test_compare_kernel_times__an_operator__fifth_of_a_percent(run: RunDocument, mac: float, outcome: str) -> None:
    found = compared(with_times(run, matmul(1.0)), with_times(run, matmul(mac)))

    assert found["kernels.mac_time"].outcome == outcome
    assert "kernels.vec_time" not in found


def test_compare_kernel_times__one_of_two_shapes_worse__named_with_its_own_times(run: RunDocument) -> None:
    other = matmul(100.0, "1;1")

    found = compared(with_times(run, other, matmul(1.0)), with_times(run, other, matmul(3.0)))["kernels.mac_time"]

    assert (found.outcome, found.base, found.head) == ("regressed", 1.0, 3.0)
    assert [(part.name, part.base, part.head) for part in found.parts] == [("MatMulV2 [32,1000;1000,4096]", 1.0, 3.0)]


def test_compare_kernel_times__less_than_the_counter_itself_differs_by__unchanged(run: RunDocument) -> None:
    large = matmul(1000.0, "1;1")

    found = compared(with_times(run, large, matmul(0.5)), with_times(run, large, matmul(0.6)))

    assert found["kernels.mac_time"].outcome == "unchanged"


def test_compare_kernel_times__a_layer_became_wider__its_new_shape_is_named(run: RunDocument) -> None:
    found = compared(with_times(run, matmul(1.0, "32,64")), with_times(run, matmul(1.1, "32,96")))["kernels.mac_time"]

    assert found.outcome == "regressed"
    assert [part.name for part in found.parts] == ["MatMulV2 [32,96]"]


def test_compare_kernel_times__operators_replaced_by_one_that_takes_no_longer__unchanged(run: RunDocument) -> None:
    fused = KernelWork(op="FusedMatMul", inputs="1;1", count=1, seconds=2.0, mac=2.0)

    found = compared(with_times(run, matmul(1.0), matmul(1.0, "2;2")), with_times(run, fused))

    assert found["kernels.mac_time"].outcome == "unchanged"


@pytest.mark.parametrize("side", ["base", "head"])
def test_compare_kernel_times__a_row_left_out__undecided(run: RunDocument, side: str) -> None:
    runs = {
        "base": with_times(run, matmul(1.0), matmul(1.0, "2;2")),
        "head": with_times(run, matmul(1.0), matmul(3.0, "2;2")),
    }
    (times,) = runs[side].checklist.kernel_times
    for change in ({"rows": times.rows[:1]}, {"rows": []}, {"mac": None}, {"rows": [], "mac": None}):
        cut = changed(runs[side], kernel_times=[msgspec.structs.replace(times, **change)])

        found = compared(**{**runs, side: cut})["kernels.mac_time"]

        assert (found.outcome, found.gating) == ("inconclusive", True)


def alexnet(tmp_path: Path, name: str) -> RunDocument:
    recording = unpacked(tmp_path / name.replace("/", "-"), ALEXNET, *name.split("/"))
    run = run_from_profile(tmp_path, recording, tmp_path / "out", lambda text: None, keep_files=False)
    (times,) = run.checklist.kernel_times
    # Ranks of one job, and two jobs, ran the same program.
    return changed(run, kernel_times=[msgspec.structs.replace(times, shape="rank 0")])


@pytest.mark.recordings
@pytest.mark.parametrize("other", ["text/level1/rank1_ascend_pt", "db/level1/rank0_ascend_pt"])
def test_compare_kernel_times__recorded_profiles_of_one_program__unchanged_both_ways(
    tmp_path: Path, other: str
) -> None:
    base, head = alexnet(tmp_path, "text/level1/rank0_ascend_pt"), alexnet(tmp_path, other)

    for found in (compared(base, head), compared(head, base)):
        assert found["kernels.mac_time"].outcome == "unchanged"
        assert found["kernels.vec_time"].outcome == "unchanged"
        assert found["kernels.mac_time"].delta == pytest.approx(0.0, abs=0.0005)
        assert found["kernels.vec_time"].delta == pytest.approx(0.0, abs=0.00004)
        assert found["kernels.time"].head == pytest.approx(found["kernels.time"].base, rel=0.004)
        # A single step each.
        assert found["kernels.time"].outcome == "inconclusive"
