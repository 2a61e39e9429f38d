"""The other benchmarks run, small: each as `make` or its own first lines start it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.benchmarks.conftest import BENCHMARKS


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_trace__a_few_thousand_events__every_way_is_costed_on_both_layouts() -> None:
    printed = run(str(BENCHMARKS / "trace" / "cost.py"), "--events", "2000", "--turns", "1")
    assert [line.split(":")[0] for line in printed.splitlines() if " MB" in line] == ["kineto", "trace_view"]
    for way in ("top", "flame", "run", "json", "msgspec"):
        assert printed.count(f"\n  {way} ") == 2, printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "gate/live.py",
        "gate/record.py",
        "gate/lab",
        "gate/yardstick.py",
        "gate/recording.py",
        "trend/compare.py",
        "trend/noise.py",
    ],
)
def test_benchmark__asked_what_it_does__starts_and_says_so(script: str) -> None:
    assert "usage:" in run(str(BENCHMARKS / script), "--help")


@pytest.mark.slow
def test_record__two_servers__the_yardstick_replays_their_pairs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    measured = run(
        str(BENCHMARKS / "gate" / "record.py"),
        "--out",
        str(tmp_path),
        "--servers",
        "2",
        "--pairs",
        "2",
        "--workload",
        "images",
    )
    assert measured.count("images, 2 pairs") == 2
    printed = run(
        str(BENCHMARKS / "gate" / "yardstick.py"), "--recordings", str(tmp_path), "--sets", "live", "--only-rules", "perfgate",
        "--unchanged", "2", "--changed", "1",
    )  # fmt: skip
    heads = printed.partition("Heads of other code and equal speed")[2]
    assert "| images/live | 4, 2 |" in heads
    assert "| images_preprocess/live | 4, 2 |" in heads
