"""`perfgate trace diff`: replaced kernels, rows by line, and the spread of several recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from perfgate.cli.main import cli

Launch = tuple[str, str, str, float]  # function, operator, kernel, microseconds
BASE: tuple[Launch, ...] = (
    ("model.py(12): forward", "aten::mm", "cutlass_80_tensorop_gemm_128x64", 100.0),
    ("model.py(12): forward", "aten::relu", "relu_kernel", 20.0),
    ("loss.py(3): loss", "aten::sum", "reduce_kernel", 10.0),
)
HEAD: tuple[Launch, ...] = (
    ("model.py(12): forward", "aten::mm", "Cijk_Alik_Bljk_B_MT128x256x32", 60.0),
    ("model.py(12): forward", "aten::mm", "splitk_reduce", 5.0),
    ("model.py(12): forward", "aten::relu", "relu_kernel", 20.0),
    ("loss.py(3): loss", "aten::mul", "mul_kernel", 4.0),
    ("loss.py(3): loss", "aten::sum", "reduce_kernel", 10.0),
)


def recording(file: Path, launches: tuple[Launch, ...], *, scale: float = 1.0) -> Path:
    """Write one step in which functions launch kernels through operators, one after the other."""
    host = {"ph": "X", "pid": 1, "tid": 1}
    events: list[dict[str, Any]] = []
    at = 1000.0
    for number, (function, operator, kernel, took) in enumerate(launches, start=1):
        launch = {"correlation": number}
        events += [
            {**host, "cat": "python_function", "name": function, "ts": at, "dur": 50},
            {**host, "cat": "cpu_op", "name": operator, "ts": at + 5, "dur": 40},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 10, "dur": 5, "args": launch},
            {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": kernel, "ts": at + 20, "dur": took * scale,
             "args": {"device": 0, "stream": 7, **launch}},
        ]  # fmt: skip
        at += 1000
    step = {**host, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 900, "dur": at}
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [step, *events]}))
    return file


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli, ["trace", "diff", *map(str, arguments)], env={"COLUMNS": "140"})
    assert done.exit_code == 0, done.output
    return done.stdout


def device_rows(*arguments: object) -> list[dict[str, Any]]:
    (timeline,) = json.loads(run(*arguments, "--json"))["timelines"]
    return [row for row in timeline["rows"] if row["kind"] != "host"]


def test_diff__kernels_that_gave_way_to_others_under_one_operator_and_line__one_replaced_row(tmp_path: Path) -> None:
    base, head = recording(tmp_path / "base.pt.trace.json", BASE), recording(tmp_path / "head.pt.trace.json", HEAD)
    replaced, added = device_rows(base, head)
    assert (replaced["change"], replaced["before"], replaced["after"]) == (
        "replaced",
        ["cutlass_80_tensorop_gemm_128x64"],
        ["Cijk_Alik_Bljk_B_MT128x256x32", "splitk_reduce"],
    )
    assert (round(replaced["delta"] * 1e6, 3), replaced["by_count"], replaced["base"]["operator"]) == (
        -35.0,
        0,
        "aten::mm",
    )
    assert (replaced["base"]["count"], replaced["head"]["count"], replaced["head"]["line"]) == (1, 2, "model.py:12")
    # Under another operator nothing was there before.
    assert (added["change"], added["name"]) == ("added", "mul_kernel")
    text = run(base, head)
    assert "cutlass…gemm_128x64" in text or "cutlass_80" in text
    assert "Cijk…MT128x256x32 +1" in text
    assert "one recording a side: how far two recordings of one program differ is not known" in text


def test_diff__by_line__all_that_a_function_launched_in_one_row(tmp_path: Path) -> None:
    base, head = recording(tmp_path / "base.pt.trace.json", BASE), recording(tmp_path / "head.pt.trace.json", HEAD)
    rows = device_rows(base, head, "--by", "line")
    assert [(row["name"], row["change"], round(row["delta"] * 1e6, 3)) for row in rows] == [
        ("model.py: forward", "more", -35.0),
        ("loss.py: loss", "more", 4.0),
    ]


def test_diff__time_of_the_host__the_same_by_operator_by_line_and_in_top(tmp_path: Path) -> None:
    base, head = recording(tmp_path / "base.pt.trace.json", BASE), recording(tmp_path / "head.pt.trace.json", HEAD)
    for by in ("operator", "line"):
        (timeline,) = json.loads(run(base, head, "--by", by, "--json"))["timelines"]
        assert (timeline["base"]["host"], timeline["head"]["host"]) == pytest.approx((120e-6, 200e-6))
    done = CliRunner().invoke(cli, ["trace", "top", str(base), "--host", "--json"])
    (of_host,) = json.loads(done.stdout)["timelines"]
    assert of_host["base"] == pytest.approx(120e-6)


def test_diff__several_recordings__ranges_and_what_overlaps_is_the_same(tmp_path: Path) -> None:
    base, base_2, head, head_2 = (
        recording(tmp_path / f"{name}.pt.trace.json", BASE, scale=scale)
        for name, scale in (("a", 1.0), ("b", 1.3), ("c", 1.2), ("d", 1.5))
    )
    assert [row["change"] for row in device_rows(base, head)] == ["slower"] * 3
    assert device_rows(base, head, "--base", base_2, "--head", head_2) == []
    faster = recording(tmp_path / "e.pt.trace.json", BASE, scale=0.5)
    first, *_ = device_rows(base, faster, "--base", base_2)
    assert first["change"] == "faster"
    assert [round(time * 1e6, 3) for time in first["base"]["times"]] == [100.0, 130.0]
    assert [round(end * 1e6, 3) for end in first["delta_range"]] == [-80.0, -50.0]
    assert "(−80.0 µs to −50.0 µs)" in run(base, faster, "--base", base_2)


def test_diff__other_kernels_in_each_recording_of_a_side__the_time_of_the_middle_recording(tmp_path: Path) -> None:
    kernels = [("gemm_128x64", 80.0), ("gemm_64x64", 40.0), ("gemm_split", 77.0), ("gemm_tma", 105.0)]
    *bases, head = (
        recording(tmp_path / f"{name}.pt.trace.json", (("model.py(12): forward", "aten::mm", name, took),))
        for name, took in kernels
    )
    first, *others = bases
    further = [argument for other in others for argument in ("--base", other)]
    (replaced,) = device_rows(first, head, *further)
    assert replaced["change"] == "replaced"
    assert [round(time * 1e6, 3) for time in replaced["base"]["times"]] == [80.0, 40.0, 77.0]
    assert (round(replaced["base"]["time"] * 1e6, 3), replaced["base"]["count"]) == (77.0, 1)
    assert round(replaced["delta"] * 1e6, 3) == 28.0
    assert [round(end * 1e6, 3) for end in replaced["delta_range"]] == [25.0, 65.0]


def test_show__base_given__what_changed_is_on_the_first_screen(tmp_path: Path) -> None:
    base, head = recording(tmp_path / "base.pt.trace.json", BASE), recording(tmp_path / "head.pt.trace.json", HEAD)
    done = CliRunner().invoke(cli, ["trace", "show", str(head), "--base", str(base)], env={"COLUMNS": "140"})
    assert done.exit_code == 0, done.output
    assert "changed since …" in done.stdout
    assert "from aten::mm · model.py:12" in done.stdout
