"""A change of the workload file is named: what it no longer measures, and a base that does not run under it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import UNDECIDED, Clone, Perfgate
from tests.fakes.wording import worded

SHAPES = 'shapes={"short": {"length": 8}, "long": {"length": 64}},\n    check=check,'
INPUTS = "inputs=lambda batch, seed: torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed))"
LONG_INPUTS = (
    "inputs=lambda batch, seed, length=64: torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed))"
)


def gate(perfgate: Perfgate, clone: Clone) -> tuple[int, dict[str, Any], str]:
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", "4", cwd=clone.root)
    out = clone.root / "out"
    assert (out / "decision.json").exists(), done.stderr
    return done.returncode, json.loads((out / "decision.json").read_text()), (out / "comment.md").read_text()


MODULE_BESIDE = "from made import scale\n\nfrom perfgate import Workload"


def two_shapes_on_main(clone: Clone) -> None:
    clone.git("checkout", "-q", "main")
    clone.commit("two shapes", perf__workload=("check=check,", SHAPES))
    clone.commit("inputs of a length", perf__workload=(INPUTS, LONG_INPUTS))
    clone.git("branch", "-f", "feature")
    clone.git("checkout", "-q", "feature")


@pytest.mark.slow
def test_check__shape_skipped_and_check_removed__warn_that_names_both(perfgate: Perfgate, clone: Clone) -> None:
    two_shapes_on_main(clone)
    clone.commit("less to measure", perf__workload=(SHAPES, 'shapes={"short": {"length": 8}},'))
    code, decision, comment = gate(perfgate, clone)
    assert [worded(change["message"]) for change in decision["sides"]["harness_changes"]] == [
        "the head no longer measures shape long",
        "the head removed check=",
    ]
    assert (code, decision["verdict"]) in ((0, "WARN"), *UNDECIDED)
    if decision["verdict"] == "WARN":
        assert worded(decision["reasons"][0]) == "harness: small: the head no longer measures shape long"
    assert "- `small`: the head no longer measures shape long" in comment
    assert "- `small`: the head removed `check=`" in comment


@pytest.mark.slow
def test_check__comment_in_the_workload_file__nothing_is_named(perfgate: Perfgate, clone: Clone) -> None:
    clone.commit("a comment", perf__workload=("small = Workload(", "# what is measured\nsmall = Workload("))
    _, decision, _ = gate(perfgate, clone)
    assert decision["sides"]["harness_changes"] == []
    assert decision["verdict"] in ("PASS", "INCONCLUSIVE")


@pytest.mark.slow
def test_check__module_beside_the_workload_file_changed__warn_that_names_it(perfgate: Perfgate, clone: Clone) -> None:
    clone.git("checkout", "-q", "main")
    (clone.root / "perf" / "made.py").write_text("scale = 1\n")
    clone.commit("a module beside", perf__workload=("from perfgate import Workload", MODULE_BESIDE))
    clone.git("branch", "-f", "feature")
    clone.git("checkout", "-q", "feature")
    clone.commit("another scale", perf__made=("1", "2"))
    _, decision, _ = gate(perfgate, clone)
    assert [worded(change["message"]) for change in decision["sides"]["harness_changes"]] == [
        "other code in perf/workload.py or in a module next to it changed"
    ]
    assert decision["verdict"] in ("WARN", "INCONCLUSIVE")


@pytest.mark.slow
def test_check__new_argument_that_the_base_does_not_know__not_comparable_and_no_crash(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    clone.commit("a width", model=("def build():", "def build(width):"), perf__workload=("build().to", "build(64).to"))
    code, decision, comment = gate(perfgate, clone)
    assert (code, decision["verdict"]) == (3, "INCONCLUSIVE")
    assert list(map(worded, decision["reasons"])) == [
        "harness: small: the base does not run under the head's workload file"
    ]
    assert [change["kind"] for change in decision["sides"]["harness_changes"]] == ["changed", "not_comparable"]
    assert [c["outcome"] for c in decision["comparisons"] if c["metric"] == "latency.low"] == ["not_comparable"]
    assert "INCONCLUSIVE – the base does not run under the head's workload file" in comment
    again = perfgate("gate", "out", "--out", str(tmp_path / "again"), cwd=clone.root)
    assert again.returncode == 3
    assert (tmp_path / "again" / "decision.json").read_bytes() == (clone.root / "out" / "decision.json").read_bytes()


@pytest.mark.slow
def test_check__workload_removed_and_another_added__warn_that_names_the_one(perfgate: Perfgate, clone: Clone) -> None:
    config = clone.root / "perfgate.toml"
    config.write_text(
        config.read_text().replace(
            'workload = "perf/workload.py:small"', '[workloads]\nother = "perf/workload.py:small"'
        )
    )
    clone.commit("another name")
    code, decision, _ = gate(perfgate, clone)
    assert [(change["workload"], change["kind"]) for change in decision["sides"]["harness_changes"]] == [
        ("small", "removed"),
        ("other", "added"),
    ]
    assert (code, decision["verdict"]) in ((0, "WARN"), *UNDECIDED)
