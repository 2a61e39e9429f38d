"""`perfgate bisect` with real gates, in a small history with broken and irrelevant commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfgate.flows.publish.starting import bisect_line
from perfgate.judging.forge.orders import BisectOrder, OrderedChange
from tests.end_to_end.conftest import Clone, Perfgate

# Up to eight gates; only a command that hangs takes as long.
SECONDS = 3600
RELU = "return torch.relu(y)"


@pytest.fixture
def good(clone: Clone) -> str:
    """Commits on top of a good one: documents, a comment, a broken model, and the fifth relevant one is slow."""
    first = clone.commit("the good one")
    for number in range(4):
        clone.commit(f"neutral {number}", model=(RELU, f"number = {number}\n        {RELU}"))
        (clone.root / "README.md").write_text(f"{number}\n")
        clone.commit(f"document {number}")
    clone.commit("breaks it", model=(RELU, f"raise RuntimeError\n        {RELU}"))
    clone.commit("slow and whole again", model=("raise RuntimeError\n", "y = y + 0 + 0 + 0 + 0\n"))
    for number in range(4):
        clone.commit(f"later {number}", model=(RELU, f"number = {number}\n        {RELU}"))
    return first


def run(perfgate: Perfgate, clone: Clone, *arguments: str) -> tuple[int, str]:
    perfgate.environment["COLUMNS"] = "200"
    process = perfgate.start(*arguments, cwd=clone.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate(timeout=SECONDS)
    return process.returncode, output + errors


@pytest.mark.slow
def test_bisect__slow_commit_after_a_broken_one__both_named_with_the_comment(
    perfgate: Perfgate, clone: Clone, good: str
) -> None:
    # Only a measurement shows that nothing reads the documents.
    code, output = run(perfgate, clone, "run", "--quick", "--steps", "4")
    assert code == 0, output
    code, output = run(perfgate, clone, "bisect", "--good", good, "--out", "out", "--steps", "4")
    assert code == 0, output
    document: dict[str, Any] = json.loads((clone.root / "out" / "bisection.json").read_text())
    assert (document["outcome"], document["searched"]["irrelevant"], document["error"]) == ("found", 4, 0.0)
    subjects = [document["searched"]["changes"][at]["subject"] for at in document["culprits"][0]]
    # Of the broken commit nobody can tell whether it was slow already.
    assert subjects == ["breaks it", "slow and whole again"]
    assert "those between cannot be tried" in output
    assert "aten::add" in output
    assert len(document["tried"]) <= 7
    # The ends, and the smallest slow state for its comment; exact counters tell the rest.
    deciding = document["tried"][document["deciding"]]
    assert [trial["answered_by"] for trial in document["tried"]].count("gate") == 2
    assert document["tried"][0]["answered_by"] == deciding["answered_by"] == "gate"
    decision = json.loads((clone.root / "out" / deciding["folder"] / "decision.json").read_text())
    assert any(compared["kind"] == "paired" for compared in decision["comparisons"])
    first = json.loads((clone.root / "out" / "gates" / "01" / "decision.json").read_text())
    assert (first["verdict"], first["measured"]["pairs"]) == ("FAIL", 0)


@pytest.mark.slow
def test_bisect__for_git__the_codes_that_git_bisect_run_reads(perfgate: Perfgate, clone: Clone, good: str) -> None:
    judge = ("bisect", "--good", good, "--for-git", "--steps", "4")
    for revision, expected in (("HEAD", 1), ("HEAD~5", 125), ("HEAD~6", 0)):
        clone.git("checkout", "-q", revision)
        code, output = run(perfgate, clone, *judge)
        assert code == expected, output
    code, output = run(perfgate, clone, "bisect", "--good", "nowhere", "--for-git")
    assert code == 128, output


@pytest.mark.slow
def test_bisect__line_that_answers_an_order__runs_in_a_clone_that_lacks_the_branch(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    base = clone.git("rev-parse", "main")
    slower = clone.commit("slower", model=(RELU, f"y = y + 0 + 0\n        {RELU}"))
    head = clone.commit("later", model=(RELU, f"number = 1\n        {RELU}"))
    server, reader = tmp_path / "server.git", tmp_path / "reader"
    clone.git("clone", "-q", "--bare", ".", str(server))
    # As a forge keeps the head of a fork's pull request.
    clone.git("-C", str(server), "update-ref", "refs/pull/7/head", head)
    clone.git("-C", str(server), "update-ref", "-d", "refs/heads/feature")
    clone.git("clone", "-q", "--branch", "main", str(server), str(reader))
    change = OrderedChange(7, head, base, is_open=True, from_fork=True, author="mallory", ref="refs/pull/7/head")
    line = bisect_line(BisectOrder(metric="counters.*@small"), change)
    path = os.pathsep.join([str(Path(sys.executable).parent), perfgate.environment["PATH"]])
    done = subprocess.run(
        ["bash", "-c", line], cwd=reader, env={**perfgate.environment, "PATH": path}, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads((reader / ".perfgate" / "bisect" / "bisection.json").read_text())
    assert [document["searched"]["changes"][at]["commit"] for at in document["culprits"][0]] == [slower]
