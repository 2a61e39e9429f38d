"""A day with a card goes on where it was cut short, and its summary is that of the quads."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

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
    assert day.run_day(options(out, seconds=0.0)) == 0
    assert "| equal code | PASS |" in capsys.readouterr().out


def test_run_day__no_time__named_and_the_file_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "day.json"
    out.write_text(json.dumps({"device": "cpu", "stages": {}}))
    assert day.run_day(options(out, seconds=0.0)) == 1
    assert "no time for: clocks: tiny equal," in capsys.readouterr().out
    assert json.loads(out.read_text())["stages"] == {}


def test_run_day__file_of_another_device__refused(tmp_path: Path) -> None:
    out = tmp_path / "day.json"
    out.write_text(json.dumps({"device": "cuda", "stages": {}}))
    with pytest.raises(SystemExit, match="is of cuda"):
        day.run_day(options(out, seconds=0.0))


def test_measure__planted_layer__all_clocks_and_other_work() -> None:
    found = clocks.measure(clocks.Series("tiny", "device", starts=1, quads=1), "cpu")
    assert set(found["clocks"]) == set(clocks.CLOCKS)
    assert found["same_work"] is False
