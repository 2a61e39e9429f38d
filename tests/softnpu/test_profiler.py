"""torch_npu's own profiler and analysis over what the software NPU records."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.softnpu.checkout import OnNpu

PROGRAM = Path(__file__).parent / "profiled.py"


@pytest.fixture
def profiled(npu_environment: dict[str, str], tmp_path: Path) -> Callable[..., Path]:
    """Run profiled.py; returns the folder of results."""

    def run(*arguments: str, folder: str = "profile", **switches: str) -> Path:
        result = subprocess.run(
            [sys.executable, str(PROGRAM), folder, *arguments],
            cwd=tmp_path,
            env={**npu_environment, **switches},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert result.returncode == 0, result.stderr
        assert "run failed" not in result.stdout, result.stdout
        return next((tmp_path / folder).glob("*_ascend_pt")) / "ASCEND_PROFILER_OUTPUT"

    return run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_profile__level1_pipes__kernels_with_steps_shapes_formats_and_counters(profiled: Callable[..., Path]) -> None:
    folder = profiled("now")
    kernels = rows(folder / "kernel_details.csv")
    assert [row["Step Id"] for row in kernels] == ["1"] * 4 + ["2"] * 4
    product, relu, _, cast = kernels[:4]
    assert product["Name"] == "aclnnAddmm_MatMulCommon_MatMulV2"
    assert (product["Type"], product["Accelerator Core"], product["Block Num"]) == ("MatMulV2", "AI_CORE", "20")
    assert product["Input Shapes"] == '"128;16,64;64,128"'
    assert product["Input Data Types"] == "FLOAT;FLOAT;FLOAT"
    assert product["Output Shapes"] == '"16,128"'
    assert product["Start Time(us)"].endswith("\t")
    assert (product["aic_mac_ratio"], product["aiv_vec_ratio"]) == ("0.55", "0.0")
    assert (relu["aic_mac_ratio"], relu["aiv_vec_ratio"]) == ("0.0", "0.42")
    time = float(product["Duration(us)"])
    assert float(product["aicore_time(us)"]) == pytest.approx(0.96 * time, abs=0.001)
    # cycles / (MHz * cores * duration), as msprof computes it
    cycles = int(product["aic_total_cycles"])
    assert float(product["cube_utilization(%)"]) == pytest.approx(100 * cycles / (1800 * 20 * time), abs=0.001)
    assert cast["Name"].startswith("trans_TransData_")
    assert cast["Type"] == "TransData"
    assert (cast["Input Formats"], cast["Output Formats"]) == ("NCHW", "NC1HWC0")
    assert (cast["Input Shapes"], cast["Output Shapes"]) == ('"1,16,4,4"', '"1,1,4,4,16"')


def test_profile__level1__other_files_agree_with_kernels(profiled: Callable[..., Path]) -> None:
    folder = profiled("now")
    kernels = rows(folder / "kernel_details.csv")
    statistic = {row["OP Type"]: row for row in rows(folder / "op_statistic.csv")}
    assert {kind: int(row["Count"]) for kind, row in statistic.items()} == {"MatMulV2": 4, "Relu": 2, "TransData": 2}
    for step in rows(folder / "step_trace_time.csv"):
        durations = [float(row["Duration(us)"]) for row in kernels if row["Step Id"] == step["Step"]]
        assert float(step["Computing"]) == pytest.approx(sum(durations), abs=0.01)
    names = {row["kernel_name"] for row in rows(folder / "task_time.csv")}
    assert {"MEMCPY_ASYNC", "aclnnRelu_ReluAiCore_Relu"} <= names
    events = json.loads((folder / "trace_view.json").read_text())
    assert sum(event.get("cat") == "async_npu" and event["ph"] == "f" for event in events) >= len(kernels)


def test_profile__level0__no_types_and_no_statistic(profiled: Callable[..., Path]) -> None:
    folder = profiled("now", "Level0")
    kernels = rows(folder / "kernel_details.csv")
    assert {row["Type"] for row in kernels} == {"N/A"}
    assert not (folder / "op_statistic.csv").exists()


def test_profile__l2_cache__hits_and_victim_rates(profiled: Callable[..., Path]) -> None:
    folder = profiled("now", "Level1", "L2Cache")
    kernel = rows(folder / "kernel_details.csv")[0]
    assert int(kernel["aic_r0_read_cache_hit"]) == pytest.approx(
        4 * int(kernel["aic_r0_read_cache_miss_allocate"]), abs=4
    )
    assert {row["Hit Rate"] for row in rows(folder / "l2_cache.csv")} == {"N/A"}


def test_profile__analysed_in_a_fresh_process__same_files(profiled: Callable[..., Path]) -> None:
    collected = profiled("later")
    assert not (collected / "kernel_details.csv").exists()
    folder = profiled("analyse")
    assert len(rows(folder / "kernel_details.csv")) == 8
    assert (folder / "op_statistic.csv").exists()


def test_profile__copies__asynchronous_ones_are_tasks(on_npu: OnNpu, profiled: Callable[..., Path]) -> None:
    events = json.loads((profiled("now") / "trace_view.json").read_text())
    copies = [event for event in events if event["name"] == "MEMCPY_ASYNC"]
    assert [event["args"]["Task Type"] for event in copies] == ["PCIE_DMA_SQE"] * 2
    assert sum(event["name"] == "AscendCL@aclrtMemcpyAsync" for event in events) == 2


def test_msprof__database_asked_for__refused(npu_environment: dict[str, str], tmp_path: Path) -> None:
    command = ["msprof", "--export=on", "--type=db", f"--output={tmp_path}"]
    result = subprocess.run(command, env=npu_environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "--type=db is not built" in result.stderr


def test_delay__planted_on_relu__shows_as_its_duration(profiled: Callable[..., Path]) -> None:
    folder = profiled("now", SOFTNPU_DELAY_US="aclnnRelu=3000")
    # The shortest run of each: any may meet a busy machine.
    shortest = {row["OP Type"]: float(row["Min Time(us)"]) for row in rows(folder / "op_statistic.csv")}
    assert 3000 <= shortest["Relu"] < 6000
    assert shortest["MatMulV2"] < 3000
