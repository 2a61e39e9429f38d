"""The demo, as a newcomer starts it. Minutes long, so behind a marker: `make test-slow`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.lengths import MOST_TITLE_WORDS, MOST_WORDS, before_folds, title, words

DOCUMENTS = ("head/run.json", "base/run.json", "decision.json", "comment.md", "report.html")


@pytest.mark.slow
def test_demo__from_nothing__fails_the_mistake_first_and_passes_the_refactoring(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    environment = {**os.environ, "PERFGATE_LOCK": str(tmp_path / "lock")}
    command = [sys.executable, "-m", "perfgate", "demo", "--dir", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    verdicts = {}
    for change in ("refactor", "mistake"):
        assert all((folder / "results" / change / name).exists() for name in DOCUMENTS)
        verdicts[change] = json.loads((folder / "results" / change / "decision.json").read_text())["verdict"]
    assert verdicts == {"refactor": "PASS", "mistake": "FAIL"}
    comment = (folder / "results" / "mistake" / "comment.md").read_text()
    assert "framework ops per call" in comment
    assert "8 more `aten::bmm` at `ranker.py:25`" in comment
    # The attention that is written out is one cause, with the memory that it takes further down.
    assert comment.count("- If intended: ") == 1
    assert "**1.** `ranker.py:25` (16 in all, also at `:28`): `scores = query[:, head] @ " in comment
    assert words(title(comment)) <= MOST_TITLE_WORDS
    assert words(before_folds(comment)) <= MOST_WORDS
    assert 0 < done.stdout.index("perfgate: FAIL") < done.stdout.index("perfgate: PASS")
    # The counts of the mistake are shown before any pair.
    assert "8 more aten::bmm at ranker.py:25" in done.stderr.partition(": pair 1, ")[0]
    end = done.stdout.partition("where to look:")[2]
    times = re.findall(r"^  (.+?) +(\d+) s, +(\d+) s of CPU time$", end, re.MULTILINE)
    assert [name for name, _, _ in times] == [
        "verdict on the mistake",
        "run of main",
        "verdict on the refactoring",
        "in all",
    ]
    for name in ("mistake", "refactor"):
        for page in ("report.html", "head/flame.html", "comment.md"):
            assert str(folder / "results" / name / page) in end
            assert (folder / "results" / name / page).stat().st_size
