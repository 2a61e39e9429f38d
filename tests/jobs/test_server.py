"""A real server under the gate: `transformers serve` with continuous batching, equal, with a layer more, with a slow tokenizer.

What may be asked of a machine that others use: equal code never fails, a slowdown never passes, and what is found is named. How
often a slowdown is found is measured by benchmarks/jobs.
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


def gating_outcomes(decision: dict[str, Any]) -> list[str]:
    return [comparison["outcome"] for comparison in decision["comparisons"] if comparison["gating"]]


def by_metric(decision: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {comparison["metric"]: comparison for comparison in decision["comparisons"]}


def test_server__equal_code__does_not_fail(tmp_path: Path) -> None:
    code, decision = gate(tmp_path, "rename")
    assert (code, decision["verdict"]) in ((0, "PASS"), (3, "INCONCLUSIVE"))
    assert "regressed" not in gating_outcomes(decision)
    assert decision["gaps"]["missing"] == decision["gaps"]["failures"] == decision["gaps"]["invalid"] == []
    rejected = {"workload": "chat", "names": ["ignore_eos"]}
    assert {"code": "notes.fields-rejected", "values": rejected} in decision["warnings"]


def test_server__a_layer_more__fails_with_the_time_per_token(tmp_path: Path) -> None:
    code, decision = gate(tmp_path, "layer")
    assert (code, decision["verdict"]) in ((1, "FAIL"), (3, "INCONCLUSIVE"))
    rows = by_metric(decision)
    assert "job.work" not in rows
    # The work of every token grew by a tenth: both numbers say so, and a FAIL rests on one of them.
    per_token = [rows["serving.tpot"], rows["serving.cpu"]]
    assert all(comparison["delta"] > 0 for comparison in per_token)
    assert "unchanged" not in [comparison["outcome"] for comparison in per_token]
    assert code == 3 or "regressed" in [comparison["outcome"] for comparison in per_token]


def test_server__a_slow_tokenizer__fails_with_the_time_to_the_first_token(tmp_path: Path) -> None:
    code, decision = gate(tmp_path, "tokenizer")
    assert (code, decision["verdict"]) in ((1, "FAIL"), (3, "INCONCLUSIVE"))
    rows = by_metric(decision)
    first_token = rows["serving.ttft"]
    assert first_token["outcome"] in ("regressed", "inconclusive")
    assert first_token["delta"] > max(0, rows["serving.tpot"]["delta"])
