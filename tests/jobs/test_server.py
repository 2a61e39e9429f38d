"""A real server under the gate: `transformers serve` with continuous batching, equal, with a layer more, with a slow tokenizer.

What may be asked of a machine that others use: equal code never fails, and what is found is named. How often a slowdown
is found is measured by benchmarks/jobs.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.jobs,
    pytest.mark.skipif(
        importlib.util.find_spec("transformers") is None,
        reason="needs transformers: make test-jobs installs examples/serving/requirements.txt",
    ),
]
ROOT = Path(__file__).parents[2]


def gate(folder: Path, change: str) -> tuple[int, dict[str, Any]]:
    """Gate a change of the example as its README says, in a folder of its own."""
    command = [sys.executable, str(ROOT / "examples" / "gate.py"), "serving", change, "--always"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    written = folder / "perfgate-out" / "serving" / change / "decision.json"
    assert written.is_file(), done.stdout + done.stderr
    return done.returncode, json.loads(written.read_text())


def outcomes(decision: dict[str, Any]) -> dict[str, str]:
    return {one["metric"]: one["outcome"] for one in decision["comparisons"] if one["gating"]}


def test_server__equal_code__does_not_fail(tmp_path: Path) -> None:
    code, decision = gate(tmp_path, "rename")
    assert (code, decision["verdict"]) in ((0, "PASS"), (3, "INCONCLUSIVE"))
    assert "regressed" not in outcomes(decision).values()
    assert decision["missing"] == decision["failures"] == decision["invalid"] == []


def test_server__a_layer_more__fails_with_the_time_per_token(tmp_path: Path) -> None:
    code, decision = gate(tmp_path, "layer")
    assert (code, decision["verdict"]) == (1, "FAIL")
    found = outcomes(decision)
    assert "regressed" in (found["serving.tpot"], found["serving.cpu"])
    assert "job.work" not in found


def test_server__a_slow_tokenizer__fails_with_the_time_to_the_first_token(tmp_path: Path) -> None:
    code, decision = gate(tmp_path, "tokenizer")
    assert (code, decision["verdict"]) == (1, "FAIL")
    found = {one["metric"]: one for one in decision["comparisons"]}
    assert found["serving.ttft"]["outcome"] == "regressed"
    assert found["serving.ttft"]["delta"] > found["serving.tpot"]["delta"]
