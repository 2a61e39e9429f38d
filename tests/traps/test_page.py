"""docs/traps.md says what the tests show: every row has its test, every test its row, and the page is up to date."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.traps.__main__ import import_all
from tests.traps.catalogue import PAGE, TRAPS, caught, not_caught, page

FOLDER = Path(__file__).parent
# Not traps: they show that the honest are left alone.
CONTROLS = {
    "test_measure__honest_head__nothing_invalid_and_no_pair_failed",
    "test_measure__honest_head_and_conductor_queue_for_one_cpu__no_worker_accused",
    "test_both_work_out_of_turn__one_has_much_longer_turns__still_alike",
}


@pytest.fixture(scope="module", autouse=True)
def _all_traps() -> None:
    import_all()


def written_tests() -> set[str]:
    """Return every test function that stands in the modules of traps, as ``file::name``."""
    found = set()
    for file in sorted(FOLDER.glob("test_*.py")):
        if file.name != Path(__file__).name:
            tree = ast.parse(file.read_text())
            functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
            found |= {f"{file.name}::{name}" for name in functions if name.startswith("test_") and name not in CONTROLS}
    return found


def test_page__every_row__has_its_test_and_every_test_its_row() -> None:
    assert {trap.test for trap in TRAPS} == written_tests()
    assert len({trap.title for trap in TRAPS}) == len(TRAPS)


def test_page__traps_that_are_caught__at_least_25() -> None:
    assert sum(trap.named is not None for trap in TRAPS) >= 25


def test_page__as_written__is_what_the_tests_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make pages`"


def test_caught__another_name_found__fails() -> None:
    before = list(TRAPS)
    test = caught("a", fools="b", by="c", named="latency.low: regressed")(lambda: {"latency.low: unchanged"})
    missed = not_caught("a", fools="b", because="c")(lambda: {"verdict FAIL", "latency.low: regressed"})
    TRAPS[:] = before
    with pytest.raises(AssertionError, match="is not among"):
        test()
    with pytest.raises(AssertionError, match="listed as not caught"):
        missed()
