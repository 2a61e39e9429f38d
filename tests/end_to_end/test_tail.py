"""A head that stalls in every 60th call: no call of a pair gets that far."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from perfgate.document.files import read_run
from tests.end_to_end.conftest import UNDECIDED, Clone, Perfgate

# The pairs may find anything on a busy machine; the stretches are judged as by default.
PAIRS_DECIDE_NOTHING = ('"latency.mean" = 9.0\n"latency.stalls" = 9999.0\n', "")
STALLS = """
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls % 60 == 0:
            import time

            time.sleep(0.03)
"""


@pytest.mark.slow
def test_check__head_sleeps_in_every_60th_call__fails_with_how_often_how_long_and_the_line(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    settings = clone.root / "perfgate.toml"
    settings.write_text(settings.read_text().replace(*PAIRS_DECIDE_NOTHING))
    clone.git("checkout", "-q", "main")
    clone.commit("judge the tail")
    clone.git("checkout", "-q", "-B", "feature")
    clone.commit("flush now and then", model=("\n    def forward(self, x):\n", STALLS))
    line = 1 + (clone.root / "model.py").read_text().splitlines().index("            time.sleep(0.03)")
    out = tmp_path / "out"
    done = perfgate("check", "--base", "main", "--out", str(out), "--steps", "4", cwd=clone.root)
    decision = json.loads((out / "decision.json").read_text())
    assert (done.returncode, decision["verdict"]) in ((1, "FAIL"), *UNDECIDED), done.stderr
    base, head = (read_run(out / side / "run.json") for side in ("base", "head"))
    starts = [one for one in head.pairs.replicates if one.arm == "stretch"]
    assert len(starts) == len([one for one in base.pairs.replicates if one.arm == "stretch"]) >= 1
    assert all(sum(one.shapes["default"].calls) >= 1000 for one in starts)
    if decision["verdict"] == "FAIL":
        comment = (out / "comment.md").read_text()
        title = next(text for text in comment.splitlines() if "FAIL" in text)
        assert re.search(r"about 1 call in \d+ takes [23]\d\.\d ms longer", title)
        assert f"model.py:{line}" in title
        assert "waiting" in title
        assert "look for what only some calls wait for" in comment
