"""`perfgate local`: what it compares with, and how much it says."""

from __future__ import annotations

import json
from typing import Any

from perfgate.document.files import read_run
from tests.end_to_end.conftest import Clone, Perfgate
from tests.fakes.wording import worded

BROKEN = ("def build():", "def build():\n    raise ValueError('no checkpoint')")


def decision_in(clone: Clone) -> dict[str, Any]:
    return dict(json.loads((clone.root / ".perfgate" / "local" / "decision.json").read_text()))


def test_local__head_does_not_load_in_ci__brief_prints_everything_and_the_traceback_is_kept(
    perfgate: Perfgate, clone: Clone
) -> None:
    clone.commit("broken", model=BROKEN)
    done = perfgate("local", "--brief", "--steps", "4", cwd=clone.root, CI="true")
    assert done.returncode == 4, done.stderr
    assert "ValueError: no checkpoint" in done.stdout
    assert done.stdout.endswith("report: .perfgate/local/report.html\n")
    decision = decision_in(clone)
    assert decision["sides"]["base"]["commit"] == clone.git("rev-parse", "main")
    assert decision["verdict"] == "INCONCLUSIVE"
    assert [(failure["side"], failure["what"]) for failure in decision["gaps"]["failures"]] == [("head", "load")]
    error = decision["gaps"]["failures"][0]["error"]
    assert worded(error["message"]) == "ValueError: no checkpoint (at model.py:17)"
    assert error["traceback"].splitlines()[1].endswith("in <lambda>")
    base = read_run(clone.root / ".perfgate" / "local" / "base" / "run.json")
    counted = {counters.processes for counters in base.checklist.counters}
    assert counted == {1}, "counts that are compared with nothing need no second process"


def test_local__brief_against_a_revision_that_went_on__one_line_and_compared_with_where_they_parted(
    perfgate: Perfgate, clone: Clone
) -> None:
    parted = clone.git("rev-parse", "main")
    clone.git("checkout", "-q", "main")
    clone.commit("main goes on", model=BROKEN)
    clone.git("checkout", "-q", "feature")
    model = clone.root / "model.py"
    model.write_text(model.read_text() + "# words\n")
    done = perfgate("local", "--brief", "--base", "main", cwd=clone.root)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "perfgate: SKIPPED – only comments or formatting changed (1 file)\n"
    assert decision_in(clone)["sides"]["base"]["commit"] == parted


def test_local__work_tree_is_main__says_so_and_measures_nothing(perfgate: Perfgate, clone: Clone) -> None:
    clone.git("checkout", "-q", "main")
    main = clone.git("rev-parse", "main")
    done = perfgate("local", "--json", cwd=clone.root)
    assert done.returncode == 0, done.stderr
    assert f"SKIPPED – the work tree is the same as {main[:12]}: there is nothing to compare" in done.stderr
    assert "To do: make a change first, or measure the work tree against itself with" in done.stderr
    assert json.loads(done.stdout) == decision_in(clone)
    assert not (clone.root / ".perfgate" / "local" / "head").exists()


def test_local__against_what_git_does_not_know__exit_2(perfgate: Perfgate, clone: Clone) -> None:
    done = perfgate("local", "--base", "nonsense", cwd=clone.root)
    assert done.returncode == 2
    assert "git knows no commit 'nonsense'" in done.stderr
