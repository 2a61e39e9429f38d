"""Times of kernels in two recordings: what is compared by operator and shape, and what the recorded profiles repeat to."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfgate.document.decision import Comparison, Policy
from perfgate.document.run import KernelTimes, KernelWork, RunDocument
from perfgate.jobs.run.from_profile import ProfileOptions, run_from_profile
from perfgate.judging.gate.recordings import compare_kernel_times
from tests.fakes.recordings import kineto_recording
from tests.samples import unpacked

ALEXNET = "msinsight-910B-alexnet-2501"


@pytest.fixture
def run(tmp_path: Path) -> RunDocument:
    path = kineto_recording(tmp_path / "recording.json")
    return run_from_profile(tmp_path, ProfileOptions(profile=path, out=tmp_path / "out"), lambda text: None)


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
    return msgspec.structs.replace(run, kernel_times=[times])


def matmul(mac: float, inputs: str = "32,1000;1000,4096") -> KernelWork:
    return KernelWork(op="MatMulV2", inputs=inputs, count=1, seconds=2.0, mac=mac)


def compared(base: RunDocument, head: RunDocument) -> dict[str, Comparison]:
    return {c.metric: c for c in compare_kernel_times(base, head, Policy())}


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
    (times,) = runs[side].kernel_times
    for changed in ({"rows": times.rows[:1]}, {"rows": []}, {"mac": None}, {"rows": [], "mac": None}):
        cut = msgspec.structs.replace(runs[side], kernel_times=[msgspec.structs.replace(times, **changed)])

        found = compared(**{**runs, side: cut})["kernels.mac_time"]

        assert (found.outcome, found.gating) == ("inconclusive", True)


def alexnet(tmp_path: Path, name: str) -> RunDocument:
    recording = unpacked(tmp_path / name.replace("/", "-"), ALEXNET, *name.split("/"))
    run = run_from_profile(tmp_path, ProfileOptions(profile=recording, out=tmp_path / "out"), lambda text: None)
    (times,) = run.kernel_times
    # Ranks of one job, and two jobs, ran the same program.
    return msgspec.structs.replace(run, kernel_times=[msgspec.structs.replace(times, shape="rank 0")])


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
