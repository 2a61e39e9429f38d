"""Journey 1: a model gets its gate, a mistake is caught before it is pushed, and the repaired change passes."""

from __future__ import annotations

import pytest

from tests.journeys.projects import ITEM_BY_ITEM, WHOLE_BATCH, gate_project, start_project
from tests.journeys.shell import Screen, Shell

# What a busy machine may leave open: whether two equal codes are equally fast.
PASSED = (0, 3, 4)


@pytest.mark.journey
def test_local__init_then_a_mistake_then_its_repair__pass_fail_with_the_line_and_pass(shell: Shell) -> None:
    start_project(shell)
    shell.types('pip install --quiet "$PERFGATE"')
    shell.types("perfgate init --local").shows("wrote perfgate.toml", "wrote perf/workload.py", "perfgate local")
    first = shell.types("perfgate local", ends=PASSED)
    _shows_that_it_passed(first)
    first.shows("report: .perfgate/local/report.html", "flame graph: .perfgate/local/head/flame.html")

    gate_project(shell)
    shell.types("perfgate run --quick --steps 1,4").shows("aten::addmm")
    shell.types("perfgate local").shows("SKIPPED", "there is nothing to compare")

    shell.edits("mymodel/__init__.py", WHOLE_BATCH, ITEM_BY_ITEM)
    caught = shell.types("perfgate local", ends=1)
    caught.shows("FAIL – ", "14 more aten::addmm at mymodel/__init__.py:13", "run it once on the whole tensor")
    assert "mymodel/__init__.py:13" in shell.reads(".perfgate/local/report.html")
    assert "aten::addmm" in shell.reads(".perfgate/local/head/flame.html")

    shell.edits("mymodel/__init__.py", ITEM_BY_ITEM, "        return self.feed(x) + x\n")
    repaired = shell.types("perfgate local --brief --steps 1,4", ends=PASSED)
    _shows_that_it_passed(repaired)


def _shows_that_it_passed(screen: Screen) -> None:
    """On a busy machine times may be undecided; what counters find would be a FAIL there too."""
    screen.shows("PASS" if screen.code == 0 else "INCONCLUSIVE")
    screen.hides("FAIL", "(exact)")
