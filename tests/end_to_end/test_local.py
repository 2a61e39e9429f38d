"""`perfgate local`: what it compares with, and how much it says."""

from __future__ import annotations

import json
from typing import Any

from tests.end_to_end.conftest import Clone, Perfgate

BROKEN = ("def build():", "def build():\n    raise ValueError('no checkpoint')")


def decision_in(clone: Clone) -> dict[str, Any]:
    return dict(json.loads((clone.root / ".perfgate" / "local" / "decision.json").read_text()))


def test_local__brief_and_against_a_revision__one_line_where_it_passes_and_everything_where_it_does_not(
    perfgate: Perfgate, clone: Clone
) -> None:
    broken = clone.commit("broken", model=BROKEN)
    clone.git("tag", "broken")
    model = clone.root / "model.py"
    model.write_text(model.read_text() + "# words\n")

    brief = perfgate("local", "--brief", "--base", "broken", cwd=clone.root)
    assert brief.returncode == 0, brief.stderr
    assert brief.stdout == "perfgate: SKIPPED – only comments or formatting changed (1 file)\n"
    assert decision_in(clone)["base"]["commit"] == broken

    whole = perfgate("local", "--brief", "--steps", "4", cwd=clone.root, CI="true")
    assert whole.returncode == 4, whole.stderr
    assert "ValueError: no checkpoint" in whole.stdout
    assert whole.stdout.endswith("report: .perfgate/local/report.html\n")
    assert decision_in(clone)["base"]["commit"] == clone.git("rev-parse", "main")


def test_local__revision_went_on_after_the_branch__compared_with_where_they_parted(
    perfgate: Perfgate, clone: Clone
) -> None:
    parted = clone.git("rev-parse", "main")
    clone.git("checkout", "-q", "main")
    clone.commit("main goes on", model=BROKEN)
    clone.git("checkout", "-q", "feature")
    model = clone.root / "model.py"
    model.write_text(model.read_text() + "# words\n")
    done = perfgate("local", "--base", "main", cwd=clone.root)
    assert done.returncode == 0, done.stderr
    assert "SKIPPED – only comments or formatting changed (1 file)" in done.stdout
    assert decision_in(clone)["base"]["commit"] == parted


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
