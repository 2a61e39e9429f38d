"""The benchmark whose numbers stand in docs/operate.md still runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.document.files import write_document
from tests.fakes.documents import make_run

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_sizing__few_runs__a_row_for_each_size(tmp_path: Path) -> None:
    write_document(tmp_path / "run.json", make_run(None, project="shop"))
    command = [sys.executable, "benchmarks/store/sizing.py", "--run", str(tmp_path / "run.json"), "--runs", "3", "6"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\| (\d+) \| [\d.]+ MB \| [\d.]+ kB \| \d+ MB", done.stdout, flags=re.MULTILINE) == ["3", "6"]
