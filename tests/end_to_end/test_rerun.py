"""A job that is run again adds its pairs to the earlier ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Clone, Perfgate

# Nothing is ever "unchanged" within a thousandth of a percent, so every job ends undecided and the next one adds to it.
UNDECIDABLE = """
[gate]
ok_margin = 0.00001
alpha_ok = 0.0001
alpha = 0.000001
"""


def _documents(out: Path) -> list[dict[str, Any]]:
    return [json.loads((out / name).read_text()) for name in ("decision.json", "base/run.json", "head/run.json")]


def _undecidable(clone: Clone) -> None:
    settings = clone.root / "perfgate.toml"
    text = settings.read_text().replace("\n[gate]\n", UNDECIDABLE)
    for metric in ("latency.low", "throughput.gap"):
        text = text.replace(f'"{metric}" = 1.0', f'"{metric}" = 0.0')
    settings.write_text(text)
    clone.commit("undecidable")
    clone.git("branch", "-f", "main")
    clone.commit("only words")


@pytest.mark.slow
def test_check__append_to_an_undecided_job__pairs_of_both_jobs_one_decision_that_gate_repeats(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    _undecidable(clone)
    out = tmp_path / "out"
    arguments = ("check", "--base", "main", "--out", str(out), "--steps", "4", "--append")
    first = perfgate(*arguments, cwd=clone.root)
    assert first.returncode in (3, 4), first.stderr
    decision, base, _ = _documents(out)
    assert (decision["measured"]["pairs"], decision["measured"]["rounds"]) == (8, 1)

    second = perfgate(*arguments, cwd=clone.root)
    assert second.returncode in (3, 4), second.stderr
    decision, base_now, head_now = _documents(out)
    assert (decision["measured"]["pairs"], decision["measured"]["rounds"]) == (16, 2)
    assert [session["id"] for session in head_now["session"]["earlier"]] == [base["session"]["id"]]
    assert base_now["session"]["id"] == head_now["session"]["id"] != base["session"]["id"]
    assert base_now["pairs"]["replicates"][: len(base["pairs"]["replicates"])] == base["pairs"]["replicates"]
    assert head_now["checklist"]["steps"], "the checklist of the first job stays"
    assert "the pairs of 2 jobs are pooled" in (out / "comment.md").read_text()

    again = perfgate("gate", str(out), "--out", str(tmp_path / "again"), cwd=tmp_path)
    assert again.returncode == second.returncode, again.stderr
    assert (tmp_path / "again" / "decision.json").read_bytes() == (out / "decision.json").read_bytes()


@pytest.mark.slow
def test_check__append_from_earlier_attempts__the_newest_that_fits_else_everything_anew(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    _undecidable(clone)
    attempts, out = tmp_path / "earlier", tmp_path / "out"
    arguments = ("check", "--base", "main", "--steps", "4")
    first = perfgate(*arguments, "--out", str(attempts / "perfgate-default-1"), cwd=clone.root)
    assert first.returncode in (3, 4), first.stderr
    # The second attempt ended before it wrote a document.
    (attempts / "perfgate-default-2").mkdir()
    second = perfgate(*arguments, "--out", str(out), "--append-from", str(attempts), cwd=clone.root)
    assert second.returncode in (3, 4), second.stderr
    decision, base, head = _documents(out)
    assert (decision["measured"]["pairs"], decision["measured"]["rounds"]) == (16, 2)
    earlier = json.loads((attempts / "perfgate-default-1" / "base" / "run.json").read_text())
    assert base["pairs"]["replicates"][: len(earlier["pairs"]["replicates"])] == earlier["pairs"]["replicates"]
    assert [session["id"] for session in head["session"]["earlier"]] == [earlier["session"]["id"]]

    clone.commit("another commit")
    third = perfgate(*arguments, "--out", str(out), "--append-from", str(attempts), cwd=clone.root)
    assert third.returncode in (3, 4), third.stderr
    assert "everything will be measured again: it holds pairs of head" in third.stderr
    assert _documents(out)[0]["measured"]["rounds"] == 1
