"""`perfgate baseline accept`: of which commit a regression is meant."""

from __future__ import annotations

import json

from tests.end_to_end.conftest import Clone, Perfgate

RELU = "return torch.relu(y)"


def test_baseline_accept__commit_named__its_regression_is_shown_and_does_not_gate(
    perfgate: Perfgate, clone: Clone
) -> None:
    head = clone.commit("an operator more", model=(RELU, "return torch.relu(y + 0)"))
    clone.git("checkout", "-q", "main")
    meant = ("counters.framework_ops", "--reason", "needs it", "--by", "Li Wei", "--commit", "feature")
    accepted = perfgate("baseline", "accept", *meant, cwd=clone.root)
    assert accepted.returncode == 0, accepted.stderr
    assert accepted.stdout == f"accepted counters.framework_ops of {head[:12]} by Li Wei\n"

    clone.git("checkout", "-q", "feature")
    perfgate("check", "--base", "main", "--steps", "4", "--out", "out", cwd=clone.root)
    decision = json.loads((clone.root / "out" / "decision.json").read_text())
    (counted,) = [entry for entry in decision["comparisons"] if entry["metric"] == "counters.framework_ops"]
    assert (counted["outcome"], counted["gating"]) == ("regressed", False)
    assert counted["accepted"] == "Li Wei: needs it"


def test_baseline_accept__commit_that_git_does_not_know__exit_2(perfgate: Perfgate, clone: Clone) -> None:
    done = perfgate("baseline", "accept", "latency.*", "--reason", "meant", "--commit", "nonsense", cwd=clone.root)
    assert done.returncode == 2
    assert "git knows no commit 'nonsense'" in done.stderr
    assert perfgate("baseline", "accepted", "--json", cwd=clone.root).stdout.strip() == "[]"
