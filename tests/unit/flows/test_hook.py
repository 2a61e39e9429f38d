from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.document.decision import DecisionDocument, Failure, Invalid, Verdict
from perfgate.document.message import Message
from perfgate.document.run import CALLS_TOO_SLOW, TIME_SPENT, ErrorDetail
from perfgate.flows.check.local import Push, hook_code, pushed
from perfgate.flows.shared.scratch import ScratchRepository
from perfgate.git.repository import Repository
from tests.fakes.documents import make_decision

CRASH, SPENT = ErrorDetail(kind="exception", message="boom"), ErrorDetail(kind="timeout", message=TIME_SPENT)
SLOW = ErrorDetail(kind="timeout", message=Message(CALLS_TOO_SLOW, {"budget": 1040}))


def _decision(verdict: Verdict, *errors: ErrorDetail, invalid: bool = False) -> DecisionDocument:
    failures = [Failure(side="head", workload="w", what="load", error=error) for error in errors]
    disturbed = Invalid(
        workload="w", shape="s", kind="aa_differs", message=Message("gate.aa-differs", {"metric": "latency.low"})
    )
    return make_decision(verdict, failures=failures, invalid=[disturbed] if invalid else [])


@pytest.mark.parametrize(
    ("decision", "strict", "code"),
    [
        (_decision("PASS"), True, 0),
        (_decision("SKIPPED"), True, 0),
        (_decision("WARN"), True, 0),
        (_decision("FAIL"), False, 1),
        (_decision("INCONCLUSIVE"), False, 0),
        (_decision("INCONCLUSIVE"), True, 3),
        (_decision("INCONCLUSIVE", SPENT), False, 0),
        (_decision("INCONCLUSIVE", SPENT), True, 3),
        (_decision("INCONCLUSIVE", SLOW), False, 0),
        (_decision("INCONCLUSIVE", SLOW), True, 3),
        (_decision("INCONCLUSIVE", invalid=True), False, 0),
        (_decision("INCONCLUSIVE", invalid=True), True, 4),
        (_decision("INCONCLUSIVE", CRASH), False, 4),
        (_decision("INCONCLUSIVE", SPENT, CRASH), False, 4),
    ],
)
def test_hook_code__decision__what_is_slower_or_does_not_run_stops_a_push(
    decision: DecisionDocument, strict: bool, code: int
) -> None:
    assert hook_code(decision, strict=strict) == code


@pytest.fixture
def clone(tmp_path: Path) -> ScratchRepository:
    """A clone that knows origin/main at its first commit, and has a feature one commit ahead."""
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "a").write_text("1")
    made = ScratchRepository(tmp_path / "clone", "test")
    made.start("first")
    made.git("update-ref", "refs/remotes/origin/main", "main")
    made.branch("feature")
    (tmp_path / "clone" / "a").write_text("2")
    made.commit("second")
    return made


NONE = "0" * 40


def test_pushed__lines_of_git__each_commit_once_and_no_deletion(clone: ScratchRepository) -> None:
    main, feature = clone.git("rev-parse", "main"), clone.git("rev-parse", "feature")
    lines = [
        f"refs/heads/feature {feature} refs/heads/feature {NONE}",
        f"refs/heads/feature {feature} refs/heads/other {NONE}",
        f"(delete) {NONE} refs/heads/gone {main}",
        f"refs/heads/main {main} refs/heads/main {main}",
        "",
    ]
    found = pushed(Repository(clone.root), {}, remote="origin", lines=lines, main_branch="")
    assert found == [Push(feature, "origin/main"), Push(main, "origin/main", is_news=False)]


def test_pushed__variables_of_pre_commit__its_commit_or_its_branch_where_all_is_new(clone: ScratchRepository) -> None:
    feature = clone.git("rev-parse", "feature")
    repository = Repository(clone.root)
    around = {"PRE_COMMIT_REMOTE_NAME": "origin", "PRE_COMMIT_LOCAL_BRANCH": "refs/heads/main"}
    first = pushed(repository, {**around, "PRE_COMMIT_TO_REF": feature}, remote=None, lines=[], main_branch="")
    assert first == [Push(feature, "origin/main")]
    (second,) = pushed(repository, around, remote=None, lines=[], main_branch="")
    assert (second.head, second.is_news) == (clone.git("rev-parse", "main"), False)


def test_pushed__nobody_says_anything__what_is_checked_out(clone: ScratchRepository) -> None:
    (found,) = pushed(Repository(clone.root), {}, remote=None, lines=[], main_branch="")
    assert (found.head, found.base) == (clone.git("rev-parse", "HEAD"), "origin/main")


@pytest.mark.parametrize(
    ("remote", "main_branch", "base"),
    [
        ("origin", "origin/main", "origin/main"),
        ("origin", "trunk", None),
        ("https://forge.example/a.git", "", "origin/main"),
    ],
)
def test_pushed__main_of_the_remote__as_configured_or_none(
    clone: ScratchRepository, remote: str, main_branch: str, base: str
) -> None:
    line = f"refs/heads/feature {clone.git('rev-parse', 'feature')} refs/heads/feature {NONE}"
    (found,) = pushed(Repository(clone.root), {}, remote=remote, lines=[line], main_branch=main_branch)
    assert (found.base, found.is_news) == (base, True)
