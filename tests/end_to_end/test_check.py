"""From a clone to a decision, with the smallest gate there is."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from perfgate.document.run import CALLS_TOO_SLOW
from tests.end_to_end.conftest import SECONDS, UNDECIDED, Clone, Perfgate
from tests.fakes.wording import worded

RELU = "return torch.relu(y)"


def _decision(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "decision.json").read_text()))


def _outcomes(decision: dict[str, Any], outcome: str) -> dict[str, str]:
    return {found["metric"]: found["kind"] for found in decision["comparisons"] if found["outcome"] == outcome}


def _files(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.suffix in (".json", ".md", ".html"))


@pytest.mark.slow
def test_check__same_model_other_workload_file__no_fail_the_heads_file_on_both_sides_and_gate_agrees_to_the_byte(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    clone.commit(
        "nothing but a comment, and a larger batch",
        model=("    def forward", "    # the forward\n    def forward"),
        perf__workload=("batch=8", "batch=16"),
    )
    out = tmp_path / "out"
    done = perfgate("check", "--base", "main", "--out", str(out), "--steps", "4,17", "--json", cwd=clone.root)
    decision = _decision(out)
    assert json.loads(done.stdout) == decision
    assert (done.returncode, decision["verdict"]) in ((0, "WARN"), *UNDECIDED), done.stderr
    assert [worded(change["message"]) for change in decision["sides"]["harness_changes"]] == [
        "the batch changed from 8 to 16"
    ]
    assert "exact" not in _outcomes(decision, "regressed").values()
    assert _files(out) == [
        "base/run.json",
        "comment.md",
        "decision.json",
        "head/flame.html",
        "head/run.json",
        "report.html",
    ]
    assert decision["sides"]["base"]["commit"] == clone.git("rev-parse", "main")
    assert worded(decision["sides"]["base"]["chosen_because"]) == "main, an ancestor of head"
    assert decision["measured"]["pairs"] == 8
    _assert_steps_without_turns_are_named(decision, (out / "comment.md").read_text())
    runs = [json.loads((out / side / "run.json").read_text()) for side in ("base", "head")]
    assert [run["workloads"][0]["batch"] for run in runs] == [16, 16]
    assert runs[0]["workloads"][0]["sha256"] == runs[1]["workloads"][0]["sha256"]
    assert runs[0]["source"]["commit"] == clone.git("rev-parse", "main")
    assert perfgate.scratch_folders == []
    assert len(clone.git("worktree", "list").splitlines()) == 1
    assert clone.git("status", "--porcelain") == ""

    again = perfgate("gate", str(out), "--out", str(tmp_path / "again"), "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == decision
    assert "the batch changed from 8 to 16" in again.stderr
    assert _exit_code_without_a_reader(perfgate, "gate", str(out), cwd=tmp_path) == done.returncode
    assert again.returncode == done.returncode, again.stderr
    assert (tmp_path / "again" / "decision.json").read_bytes() == (out / "decision.json").read_bytes()


def _assert_steps_without_turns_are_named(decision: dict[str, Any], comment: str) -> None:
    """``checklist_budget`` is 0: each side measures the steps once, and the comment names the setting that is enough."""
    (note,) = [one for one in map(json.dumps, decision["warnings"]) if "notes.not-in-turns" in one]
    assert re.search(r"17 memory \(\d+ s\)", note)
    assert {row["difference"] for row in decision["checklist"]["numbers"] if row["step"] == 17} == {None}
    assert "measured once per side" in comment
    steps = r"4 `top_ops` \(\d+ s\), 17 memory \(\d+ s\)"
    assert re.search(
        rf"Not compared side by side for lack of time: {steps}; to compare all steps, set `checklist_budget` to \d+ s",
        comment,
    )
    assert "> **Note:**" not in comment


@pytest.mark.slow
def test_check__calls_too_slow_for_the_budget__judged_by_counts_and_names_what_times_would_take(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    # Pairs of so many quads that calls of a third of a second are too slow.
    settings = clone.root / "perfgate.toml"
    settings.write_text(settings.read_text().replace("quads = 2", "quads = 24"))
    computing = 'import hashlib; hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 2_000_000)'
    clone.commit("slow", model=(RELU, f"{computing}\n        {RELU}"))
    clone.git("branch", "--force", "main")
    clone.commit("slower", model=("2_000_000", "2_200_000"))
    done = perfgate("check", "--base", "main", "--out", str(tmp_path / "same"), cwd=clone.root)
    assert done.returncode == 3, done.stderr
    runs = [json.loads((tmp_path / "same" / side / "run.json").read_text()) for side in ("base", "head")]
    assert [run["pairs"]["replicates"] for run in runs] == [[], []]
    assert [[step["number"] for step in run["checklist"]["steps"]] for run in runs] == [[4], [4]]
    decision = _decision(tmp_path / "same")
    assert decision["gaps"]["missing"] == []
    assert "counters.framework_ops" in _outcomes(decision, "unchanged")
    (failure,) = decision["gaps"]["failures"]
    assert failure["error"]["message"]["code"] == CALLS_TOO_SLOW
    budget = failure["error"]["message"]["values"]["budget"]
    assert f"set budget = {budget} under [gate] in perfgate.toml" in " ".join(done.stdout.split())
    comment = (tmp_path / "same" / "comment.md").read_text()
    assert re.search(
        r"## .*INCONCLUSIVE – \d+ metrics unchanged, but times were not measured \(.*a call takes", comment
    )
    assert re.search(rf"times of `small` not measured: 13 pairs of .* need `budget = {budget}`", comment)
    assert f"set `budget = {budget}` under `[gate]`" in comment
    assert "**Error**" not in comment

    clone.commit("a mistake", model=(RELU, "torch.relu(y + 0 * y.sum().item())"))
    done = perfgate("check", "--base", "main", "--out", str(tmp_path / "mistake"), cwd=clone.root)
    assert done.returncode == 1, done.stderr
    assert "counters.framework_ops" in _outcomes(_decision(tmp_path / "mistake"), "regressed")
    comment = (tmp_path / "mistake" / "comment.md").read_text()
    assert re.search(r"times of `small` not measured: 13 pairs of .* need `budget = \d+`", comment)


def _exit_code_without_a_reader(perfgate: Perfgate, *arguments: str, cwd: Path) -> int:
    """Run with nobody at the other end of standard output, as in `perfgate gate out | head -1`."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = perfgate.start(*arguments, cwd=cwd, stdout=write_end)
    os.close(write_end)
    return process.wait(SECONDS)


@pytest.mark.slow
def test_check__ops_in_a_loop_and_a_copy__fail_that_names_the_counter_and_the_op(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    slow = (
        "for _ in range(6):\n            y = y.t().contiguous().t()\n        return torch.relu(y + 0 * y.sum().item())"
    )
    (clone.root / "decoder.py").write_text("def decode(x):\n    return x\n")
    clone.commit("a mistake", model=(RELU, slow))
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", "4", cwd=clone.root)
    assert done.returncode == 1, done.stderr
    # The verdict of the counts stands there before any pair, with its line; at the end it is the same.
    # A pair that is over at once leaves no line.
    early = re.split(r": pair \d+, ", done.stderr, maxsplit=1)[0]
    assert "FAIL – small, for certain: no time can change this" in early
    assert "at model.py:" in early
    decision = _decision(clone.root / "out")
    assert decision["verdict"] == "FAIL"
    assert "counters.framework_ops" in _outcomes(decision, "regressed")
    comment = (clone.root / "out" / "comment.md").read_text()
    assert _exit_code_without_a_reader(perfgate, "gate", "out", cwd=clone.root) == 1
    assert "Measured: 1 of 2 changed functions. No workload runs `decode` (`decoder.py:1`)." in comment
    assert "aten::clone" in comment or "aten::copy_" in comment or "aten::contiguous" in comment
    assert "FAIL" in comment.splitlines()[0] + comment.splitlines()[1] + comment.splitlines()[2]


@pytest.mark.slow
def test_check__requests_remembered_outside_tensors__fail_that_names_the_line(perfgate: Perfgate, clone: Clone) -> None:
    leak = "self.seen = [*getattr(self, 'seen', ()), bytes(200_000)]\n        return torch.relu(y)"
    clone.commit("for the report of the day", model=(RELU, leak))
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", "4", cwd=clone.root)
    assert done.returncode == 1, done.stderr
    decision = _decision(clone.root / "out")
    kept = next(c for c in decision["comparisons"] if c["metric"] == "memory.kept_python")
    assert kept["base"] <= 512
    assert 200_000 <= kept["head"] < 201_000
    text = (clone.root / "model.py").read_text()
    line = f"model.py:{text[: text.index('bytes(200_000)')].count(chr(10)) + 1}"
    assert kept["parts"][0]["line"] == line
    comment = (clone.root / "out" / "comment.md").read_text()
    # Filling so many bytes takes time too, so the title may name either.
    assert next(row for row in comment.splitlines() if row.startswith("## ")).endswith(f"`{line}`")
    assert ", 0 B → 195 KiB" in comment


@pytest.mark.slow
def test_check__wrong_output__fail_by_correctness(perfgate: Perfgate, clone: Clone) -> None:
    clone.commit("faster and wrong", model=(RELU, "return y"))
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", "4", cwd=clone.root)
    assert done.returncode == 1, done.stderr
    decision = _decision(clone.root / "out")
    assert decision["verdict"] == "FAIL"
    assert "regressed: small/default correctness" in map(worded, decision["reasons"])
    assert "relu gives nothing below zero" in (clone.root / "out" / "head" / "run.json").read_text()


@pytest.mark.slow
def test_check__head_hangs__one_step_waits_for_it_and_nothing_else_is_measured(
    perfgate: Perfgate, clone: Clone
) -> None:
    settings = clone.root / "perfgate.toml"
    settings.write_text(settings.read_text() + "\n[measure]\nstep_timeout = 5\n")
    clone.commit("settings")
    clone.git("branch", "-f", "main")
    clone.commit("a deadlock", model=(RELU, f"import time\n        time.sleep(3600)\n        {RELU}"))
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", "4,7", "--always", cwd=clone.root)
    assert done.returncode == 4, done.stderr
    assert ": pair 1, " not in done.stderr
    head = json.loads((clone.root / "out" / "head" / "run.json").read_text())
    counting, formats = head["checklist"]["steps"]
    assert (counting["status"], formats["status"]) == ("error", "unavailable")
    reason = "not measured, because the workload seems to hang: small: step 4 top_ops"
    assert worded(formats["reason"]).startswith(reason)
    assert [worded(check["message"]).startswith(reason) for check in head["checklist"]["correctness"]] == [True]
    decision = _decision(clone.root / "out")
    assert decision["verdict"] == "INCONCLUSIVE"
    assert "failed: head small top_ops" in map(worded, decision["reasons"])


@pytest.mark.slow
def test_check__check_that_refuses_both_sides_in_ci__fail_without_pairs(perfgate: Perfgate, clone: Clone) -> None:
    clone.commit(
        "a wrong check", perf__workload=("(inputs.shape[0], 64)", "(7, 64)"), model=(RELU, f"y = y + 0\n        {RELU}")
    )
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", "4", cwd=clone.root, CI="true")
    assert done.returncode == 1, done.stderr
    assert ": pair 1, " not in done.stderr
    comment = (clone.root / "out" / "comment.md").read_text()
    assert (
        "the check rejects the output of base and head alike, so no pairs were measured; correct the check" in comment
    )


def test_local__uncommitted_mistake_in_a_subfolder__fail_and_the_work_tree_is_untouched(
    perfgate: Perfgate, clone: Clone
) -> None:
    (clone.root / "models").mkdir()
    # Two fresh processes count what differs, not five.
    settings = clone.root / "perfgate.toml"
    settings.write_text(settings.read_text().replace("[gate]\n", "[gate]\nbudget = 1\n"))
    clone.git("add", "perfgate.toml")
    clone.git("mv", "model.py", "perf", "perfgate.toml", "models")
    clone.git("commit", "-qm", "move")
    clone.git("branch", "-f", "main")
    project = clone.root / "models"
    (project / "helper.py").write_text("def more(y):\n    for _ in range(6):\n        y = y + 0\n    return y\n")
    model = project / "model.py"
    model.write_text("from helper import more\n" + model.read_text().replace(RELU, "return torch.relu(more(y))"))
    before = clone.git("status", "--porcelain")
    done = perfgate("local", "--steps", "4", cwd=project)
    assert done.returncode == 1, done.stderr
    decision = _decision(project / ".perfgate" / "local")
    assert "counters.framework_ops" in _outcomes(decision, "regressed")
    assert decision["sides"]["head"]["dirty"] is True
    assert clone.git("status", "--porcelain") == before


@pytest.mark.parametrize("allow", [False, True])
def test_check__dirty_clone__refused_by_name_unless_allowed(perfgate: Perfgate, clone: Clone, allow: bool) -> None:
    (clone.root / "model.py").write_text("raise ValueError('not committed')")
    flags = ["--allow-dirty"] if allow else []
    done = perfgate("check", "--base", "nonsense" if allow else "main", *flags, "--out", "out", cwd=clone.root)
    assert done.returncode == 2
    wanted = "git knows no commit 'nonsense'" if allow else "has uncommitted changes in model.py; commit them, or use"
    assert wanted in done.stderr


@pytest.mark.slow
def test_check__store_named_in_perfgate_toml__found_from_the_clone_and_not_from_a_worktree_that_is_gone(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    settings = clone.root / "perfgate.toml"
    settings.write_text(settings.read_text() + '[store]\npath = "../main-runs.db"\n')
    clone.commit("a store beside the clone")
    del perfgate.environment["PERFGATE_STORE"]
    measured = perfgate("run", "--quick", "--steps", "1", "--out", str(tmp_path / "main"), cwd=clone.root)
    assert measured.returncode == 0, measured.stderr
    kept = perfgate("baseline", "record", "--run", str(tmp_path / "main" / "run.json"), cwd=clone.root)
    assert kept.returncode == 0, kept.stderr
    out = tmp_path / "out"
    done = perfgate("check", "--base", "HEAD", "--out", str(out), "--steps", "1", cwd=clone.root)
    assert "left out" not in done.stderr
    series = {entry["metric"]: entry for entry in json.loads((out / "history.json").read_text())["series"]}
    # A quick run is measured as a check is.
    assert (len(series["latency.p50"]["values"]), series["latency.p50"]["left_out"]) == (1, 0)
