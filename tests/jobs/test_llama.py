"""llama.cpp's server under the gate. It closes each connection that streamed an answer, although it announces to keep it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.jobs.tools import installed

SETTINGS = """
project = "llama"
[workloads.llama]
serve = "exec {python} llama_server.py $(cat layers.txt) $PORT"
same_output = false
budget = 90
load = {{ concurrency = 2, requests = 4, log = "log.jsonl" }}
"""
HERE = Path(__file__).parent


def gate(folder: Path, layers: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The decision over a model of 8 layers and one of so many, and all turns."""
    python = installed("xllamacpp==2026.10.11549", "gguf==0.19.0") / "python"
    shutil.copy(HERE / "llama_server.py", folder)
    (folder / "perfgate.toml").write_text(SETTINGS.format(python=python))
    (folder / "layers.txt").write_text("8\n")
    words = ["the", "dog", "and", "a", "cat", "ran", "by"]
    texts = [" ".join(words[(line + word) % len(words)] for word in range(60)) for line in range(12)]
    log = [{"at": 0, "prompt": f"{chr(ord('a') + line)} {text}", "output": 12} for line, text in enumerate(texts)]
    (folder / "log.jsonl").write_text("\n".join(json.dumps(line) for line in log))
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "a server")
    git(folder, "checkout", "-q", "-b", "feature")
    (folder / "layers.txt").write_text(f"{layers}\n")
    (folder / "notes.txt").write_text("notes\n")
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "a change")
    command = [sys.executable, "-m", "perfgate", "check", "--base", "main", "--always"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert (folder / "perfgate-out" / "decision.json").is_file(), done.stdout + done.stderr
    read = [
        json.loads((folder / "perfgate-out" / name).read_text())
        for name in ("decision.json", "base/run.json", "head/run.json")
    ]
    return read[0], read[1]["jobs"]["turns"] + read[2]["jobs"]["turns"]


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=perfgate", "-c", "user.email=perfgate@example.invalid")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True)


def test_llama__equal_code__is_measured_and_does_not_fail(tmp_path: Path) -> None:
    decision, turns = gate(tmp_path, layers=8)
    assert decision["gaps"]["missing"] == decision["gaps"]["failures"] == []
    assert decision["verdict"] in ("PASS", "INCONCLUSIVE")
    assert {tuple(turn["without"]) for turn in turns} == {("keep-alive",)}
    # Of a whole log no prompt comes twice; what is cached are beginnings that they have in common.
    asked, cached = (
        sum(turn[part][name] for turn in turns)
        for part, name in (("work", "input_tokens"), ("counters", "cached_tokens"))
    )
    assert cached < 0.1 * asked


def test_llama__twice_the_layers__fails_or_is_open(tmp_path: Path) -> None:
    decision, _ = gate(tmp_path, layers=16)
    rows = {row["metric"]: row for row in decision["comparisons"]}
    assert decision["gaps"]["missing"] == decision["gaps"]["failures"] == []
    assert decision["verdict"] in ("FAIL", "INCONCLUSIVE")
    assert rows["serving.ttft"]["delta"] > 0.3
    assert rows["serving.tpot"]["delta"] > 0.3
