"""Journey 2: three pushes to main are recorded, and the comment on a change shows main's level beside every step of both."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest

from tests.journeys.projects import commit_all, gate_project, start_project
from tests.journeys.shell import Shell

RESIDUAL = "self.norm(x + self.attention"
# One more copy of the input, which is exactly counted.
COPIED = "self.norm(x.clone() + self.attention"
MEASURED = ("ok", "attention")
# Of the steps without an accelerator, without preprocessing, and without requests of their own.
FEWEST_STEPS = 12


@dataclass(frozen=True)
class Row:
    """A row of the comment's checklist, as a person reads it."""

    number: int
    status: str
    values: str
    main: str
    against_main: str
    findings: str


@pytest.mark.journey
def test_check__three_pushes_to_main_recorded__main_beside_every_step_and_a_head_outside_marked(shell: Shell) -> None:
    start_project(shell)
    gate_project(shell)
    shell.writes("perfgate.toml", f"{shell.reads('perfgate.toml')}[gate]\nbudget = 20\n")
    commit_all(shell, "Spend a minute on a gate")
    for push in ("Monday", "Tuesday", "Wednesday"):
        shell.writes("NEWS.md", f"{push}\n")
        commit_all(shell, push)
        shell.types(f"perfgate baseline record --out ../{push}").shows("kept run")

    shell.types("git checkout --quiet -b copy")
    shell.edits("mymodel/__init__.py", RESIDUAL, COPIED)
    commit_all(shell, "Keep the input as it is")
    shell.types("perfgate check --base main --out ../check", ends=1).shows("FAIL", "aten::clone")

    comment = shell.reads("../check/comment.md")
    rows = _checklist(comment)
    assert [row.number for row in rows] == list(range(1, 21))
    on_main = _measured_steps(shell.reads("../Wednesday/run.json"))
    of_both = [row for row in rows if row.number in on_main and not row.values.endswith("–")]
    assert len(of_both) >= FEWEST_STEPS, rows
    # A run may leave a batch size open; every other number is there in all three.
    without_level = [row for row in of_both if not re.search(r"\([1-3] runs?\b", row.main)]
    assert not without_level, without_level
    assert len([row for row in of_both if "(3 runs" in row.main]) >= len(of_both) - 1, of_both
    (layout,) = [row for row in rows if row.number == 14]
    assert "**head 7.13 %, above 0 %**" in layout.against_main
    unmeasured = [row for row in rows[:-1] if row.status not in MEASURED and not row.findings]
    assert not unmeasured, "a step that did not run has a reason"
    assert rows[-1].status == "FAIL"

    (in_short,) = re.findall(r"^P50 .*$", comment.partition("<details>")[0], flags=re.MULTILINE)
    assert re.search(r"^P50 [^·]* · CPU [^·]* · top: [^·]* · (knee|best batch) [^·]* · transfer n/a$", in_short), (
        in_short
    )
    assert "(main " in in_short
    assert "**Reproduce** `perfgate" in comment


def _checklist(comment: str) -> list[Row]:
    """The rows of the checklist, one for each step."""
    rows = [line.split(" | ") for line in comment.splitlines() if re.match(r"\| \d+ \| ", line)]
    return [
        Row(
            number=int(cells[0].removeprefix("| ")),
            status=cells[2],
            values=cells[4],
            main=cells[6],
            against_main=cells[7],
            findings=cells[8].removesuffix("|").strip(),
        )
        for cells in rows
    ]


def _measured_steps(run: str) -> set[int]:
    """The steps of a run document that measured something."""
    return {step["number"] for step in json.loads(run)["checklist"]["steps"] if step["status"] in MEASURED}
