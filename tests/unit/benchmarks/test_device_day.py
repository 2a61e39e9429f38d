"""A day with a card goes on where it was cut short, and its summary is that of the quads."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clocks
import day
import pytest


def options(out: Path, *, seconds: float, device: str = "cpu") -> argparse.Namespace:
    return argparse.Namespace(out=out, device=device, seconds=seconds, quick=True)


def test_summary__quads_of_two_starts__effect_spread_within_and_between_them() -> None:
    quads = [{"start": start, "wall": start * 0.02 + step * 0.001} for start in (0, 1) for step in (-1, 0, 1)]
    found = clocks._summary("wall", quads)
    assert found is not None
    assert found["effect"] == pytest.approx(math.expm1(0.01))
    assert found["quad"] == pytest.approx(1.4826e-3)
    assert found["start"] == pytest.approx(0.02 / math.sqrt(2))
    assert clocks._summary("kernels", quads) is None


def test_run_day__stages_that_are_there__not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "day.json"
    known = {
        stage.name: {"verdict": "PASS", "title": "no slowdown", "seconds": 1.0} for stage in day.stages("cpu", 1, 1)
    }
    out.write_text(json.dumps({"device": "cpu", "stages": known}))
    assert day.run_day(options(out, seconds=0.0), day.stages("cpu", 1, 1)) == 0
    assert "| equal code | PASS |" in capsys.readouterr().out


def test_run_day__no_time__named_and_the_file_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "day.json"
    out.write_text(json.dumps({"device": "cpu", "stages": {}}))
    assert day.run_day(options(out, seconds=0.0), day.stages("cpu", 1, 1)) == 1
    assert "no time for: clocks: tiny equal," in capsys.readouterr().out
    assert json.loads(out.read_text())["stages"] == {}


def test_run_day__file_of_another_device__refused(tmp_path: Path) -> None:
    out = tmp_path / "day.json"
    out.write_text(json.dumps({"device": "cuda", "stages": {}}))
    with pytest.raises(SystemExit, match="is of cuda"):
        day.run_day(options(out, seconds=0.0), day.stages("cpu", 1, 1))


@pytest.mark.slow
def test_measure__planted_layer__all_clocks_and_other_work() -> None:
    found = clocks.measure(clocks.Series("tiny", "device", starts=1, quads=1), "cpu", 600.0)
    assert set(found["clocks"]) == set(clocks.CLOCKS)
    assert found["same_work"] is False


def ends(result: dict[str, Any], seconds: list[float]) -> Callable[[float], dict[str, Any]]:
    def run(allotted: float) -> dict[str, Any]:
        seconds.append(allotted)
        return result

    return run


def test_run_day__stages_of_two_parts__share_the_time_that_is_left(tmp_path: Path) -> None:
    seconds: list[float] = []
    passed = {"verdict": "PASS", "title": "no slowdown"}
    stages = [day.Stage("first", 1, ends(passed, seconds)), day.Stage("second", 3, ends(passed, seconds))]
    assert day.run_day(options(tmp_path / "day.json", seconds=410.0), stages) == 0
    assert seconds[0] == pytest.approx(100, rel=0.05)
    assert seconds[1] == pytest.approx(400, rel=0.05)


def test_run_day__stage_that_did_not_end__reason_now_and_run_again_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "day.json"
    seconds: list[float] = []

    def too_slow(_: float) -> dict[str, Any]:
        raise TimeoutError("no answer in its time")

    passed = {"verdict": "PASS", "title": "no slowdown"}
    stages = [day.Stage("slow", 1, too_slow), day.Stage("good", 1, ends(passed, seconds))]
    assert day.run_day(options(out, seconds=410.0), stages) == 1
    assert "not ended: slow: no answer in its time" in capsys.readouterr().out

    again = [day.Stage("slow", 1, ends(passed, seconds)), day.Stage("good", 1, too_slow)]
    assert day.run_day(options(out, seconds=410.0), again) == 0
    assert json.loads(out.read_text())["stages"]["slow"]["verdict"] == "PASS"


def test_gate__no_verdict_in_its_time__stopped_with_the_last_line(tmp_path: Path) -> None:
    repository = tmp_path / "stack"
    repository.mkdir()
    result = day.gate(repository, "cpu", day.STOP_SECONDS + 0.01)
    assert result["verdict"] == "none"
    assert result["unfinished"].startswith("no verdict after 8 s; at last: ")


@pytest.mark.slow
def test_measure__side_that_is_not_ready_in_time__timeout() -> None:
    with pytest.raises(TimeoutError, match="no answer in its time"):
        clocks.measure(clocks.Series("tiny", "", starts=2, quads=1), "cpu", 0.0)
