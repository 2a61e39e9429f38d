"""Item 5: a marker that a bot repeated is not ours, whatever account our own token has."""

from __future__ import annotations

import pytest

from perfgate.document.trend import TrendState
from perfgate.errors import ForgeError
from perfgate.judging.forge.comment import CommentState, compose
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import connect
from perfgate.judging.forge.issues import (
    LABEL,
    IssueForge,
    IssueState,
    find_own,
    hidden_lines,
    issue_marker,
    keeps_issues,
    post_issue,
)
from tests.end_to_end.publishing import MARKER, Job
from tests.fakes.forge import APP, APP_TOKEN, BOT, BOT_TOKEN, OTHER_BOT
from tests.fakes.forge_issues import StoredIssue

FIRST = issue_marker("default")
STATE = IssueState(run=5, attempt=1, trend=TrendState(newest="2026-11-01T00:00:00Z", known=[]))


def _planted(job: Job) -> str:
    """Return a comment that says PASS, and that it is of a run newer than any."""
    newest = CommentState(run=10**17, attempt=1, head=job.project.head, verdict="PASS", decided="PASS")
    return compose(" perfgate: PASS", newest, MARKER)


def _issues(job: Job, token: str) -> IssueForge:
    event = detect(job.environ)
    assert event is not None
    return keeps_issues(connect(event, token, sleep=lambda _: None, clock=lambda: 0.0))


def _post_issue(job: Job, token: str) -> str:
    forge = _issues(job, token)
    return post_issue(
        forge, find_own(forge, FIRST), title="perfgate", text="text", state=STATE, first_line=FIRST, news=None
    )


def test_item_5__another_bot_repeats_our_marker__neither_kept_nor_edited(github: Job) -> None:
    planted = github.fake.write(7, _planted(github), OTHER_BOT)
    before = planted.body
    github.measure(ops=64)
    assert github.publish().returncode == 1
    assert planted.body == before
    assert " perfgate: FAIL" in github.comment()
    assert github.statuses() == [(github.project.head, "failure")]


def test_item_5__another_bot_repeats_our_issue__left_alone(github: Job) -> None:
    planted = StoredIssue(3, "x", "\n".join(hidden_lines(STATE, FIRST)), OTHER_BOT, (LABEL,))
    github.fake.issues.append(planted)
    assert _post_issue(github, BOT_TOKEN) == "created"
    assert [issue.author for issue in github.fake.issues] == [OTHER_BOT, BOT]


def test_item_5__token_of_an_app_of_ones_own__finds_its_comment_by_what_the_forge_answers(github: Job) -> None:
    github.fake.write(7, _planted(github), OTHER_BOT)
    github.measure()
    assert github.publish(token=APP_TOKEN).returncode == 0
    github.measure(ops=64)
    assert github.publish(token=APP_TOKEN).returncode == 1
    ours = [one.body for one in github.fake.comments[7] if one.author == APP and one.body.startswith(MARKER + "\n")]
    assert len(ours) == 1
    assert " perfgate: FAIL" in ours[0]


def test_item_5__app_named_to_the_job__edits_and_writes_no_second(github: Job) -> None:
    github.environ["PERFGATE_LOGIN"] = APP.login
    github.measure()
    github.publish(token=APP_TOKEN)
    github.measure(ops=64)
    written = len(github.paths("POST"))
    github.publish(token=APP_TOKEN)
    # The reply that the verdict turned, and the status.
    assert len(github.paths("POST")) == written + 2
    assert "PATCH" in {call.method for call in github.fake.calls}


def test_item_5__issue_of_an_app_nobody_named__says_what_to_set(github: Job) -> None:
    with pytest.raises(ForgeError, match=r"'our-app\[bot\]'.*set PERFGATE_LOGIN"):
        _post_issue(github, APP_TOKEN)
    github.environ["PERFGATE_LOGIN"] = APP.login
    assert _post_issue(github, APP_TOKEN) == "updated"
    assert len(github.fake.issues) == 1
