"""Journey 4: main is recorded for a week, the report shows when it got slower, bisect names the commit, a revert ends it."""

from __future__ import annotations

import json
import re

import pytest

from tests.journeys.projects import ITEM_BY_ITEM, WHOLE_BATCH, commit_all, gate_project, start_project
from tests.journeys.shell import Shell

SETTINGS = """
[gate]
budget = 20
checklist_budget = 10
[trend]
bisect = true
"""


@pytest.mark.journey
def test_trend_and_bisect__one_commit_of_a_week_is_slow__report_shows_the_day_and_bisect_the_commit(
    shell: Shell,
) -> None:
    start_project(shell)
    gate_project(shell)
    shell.writes("perfgate.toml", f"{shell.reads('perfgate.toml')}{SETTINGS}")
    commit_all(shell, "Spend half a minute on a gate, and bisect on Mondays")
    shell.types("perfgate baseline record").shows("kept run")
    for day in ("Tuesday", "Wednesday"):
        _work_on_main(shell, f"{day}, first")
        _work_on_main(shell, f"{day}, second")
        _record(shell)
    _work_on_main(shell, "Thursday, first")
    shell.edits("mymodel/__init__.py", WHOLE_BATCH, ITEM_BY_ITEM)
    culprit = commit_all(shell, "Simplify the residual connection")
    _work_on_main(shell, "Thursday, last")
    _record(shell)
    for day in ("Friday", "Saturday"):
        _work_on_main(shell, f"{day}, first")
        _record(shell)
    listed = shell.types("perfgate baseline list")
    listed.shows("Wednesday, second", "Saturday, first")
    assert len(re.findall("^[0-9a-f]{12} ", listed.text, flags=re.MULTILINE)) == 6

    weekly = shell.types("perfgate trend --out weekly")
    weekly.shows("1 regression", "framework ops per call", "29 more", "One of 3 commits")
    assert "aten::addmm" in shell.reads("weekly/trend.html")
    assert "aten::addmm" in shell.reads("weekly/trend.md")
    (command,) = re.findall(r"perfgate bisect \S+ --good [0-9a-f]+ --bad [0-9a-f]+", weekly.in_one_line)

    found = shell.types(command)
    found.shows("Simplify the residual connection", "14 more aten::addmm at mymodel/__init__.py")
    bisection = json.loads(shell.reads(".perfgate/bisect/bisection.json"))
    (at,) = bisection["culprits"][0]
    assert bisection["searched"]["changes"][at]["commit"] == culprit

    # On Monday nobody types a command: CI bisects while the machine is idle.
    monday = shell.types("perfgate trend --confirm --out monday")
    monday.shows(f"Simplify the residual connection (Ada) {culprit[:10]}", f"a bisection found {culprit[:10]}")
    monday.hides("One of 3 commits", "perfgate bisect")
    shell.types(f"perfgate ask explain --commit {culprit[:10]}").shows(
        "Simplify the residual connection", "aten::addmm"
    )

    # A maintainer answers, and the commit is reverted.
    shell.types(f"perfgate baseline triage {culprit[:10]} acknowledged --reason 'the revert is on its way'")
    shell.types("perfgate trend").shows("acknowledged by Ada", "the revert is on its way")
    shell.types(f"git revert --no-edit {culprit}")
    _record(shell)
    shell.types("perfgate trend --fail-on-regression --out repaired").shows(
        "1 improvement", 'Revert "Simplify the residual connection"'
    )
    repaired = json.loads(shell.reads("repaired/trend.json"))
    entries = {entry["commits"][0]["commit"]: entry["standing"] for entry in repaired["causes"] if entry["commits"]}
    assert entries[culprit] == "resolved"


def _work_on_main(shell: Shell, subject: str) -> None:
    """Commit a line that the import of the model runs, and that costs nothing."""
    shell.writes("mymodel/__init__.py", f"{shell.reads('mymodel/__init__.py')}LAST_CHANGE = {subject!r}\n")
    commit_all(shell, subject)


def _record(shell: Shell) -> None:
    """Measure the newest commit as a job that has little time does, and store it."""
    shell.types("perfgate run --quick --steps 1,4")
    shell.types("perfgate baseline record --run perfgate-out/run.json").shows("kept run")
