"""What every forge that keeps our issue must do, against a fake that the official API descriptions judge where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from perfgate.document.trend import KnownChange, TrendState
from perfgate.errors import ForgeError
from perfgate.judging.forge.comment import MAX_CHARACTERS
from perfgate.judging.forge.forge import CiEvent, CiJob, ForgeHost, connect
from perfgate.judging.forge.issues import (
    LABEL,
    IssueForge,
    IssueState,
    compose,
    find_own,
    hidden_lines,
    issue_marker,
    keeps_issues,
    post_issue,
    read_state,
    text_budget,
)
from tests.fakes.forge import BOT, BOT_TOKEN, PERSON, PERSON_TOKEN, FakeForge, Reply
from tests.fakes.forge_dialects import GitHubDialect, GitLabDialect
from tests.fakes.forge_issues import StoredIssue

pytestmark = pytest.mark.official

FIRST = issue_marker("default")
HOSTILE = "--> <script> `x` /close | a--b"


def state(run: int = 5, attempt: int = 1, known: list[KnownChange] | None = None) -> IssueState:
    return IssueState(run=run, attempt=attempt, trend=TrendState(newest="2026-11-01T00:00:00Z", known=known or []))


@dataclass
class Stage:
    fake: FakeForge
    event: CiEvent

    def forge(self, token: str = BOT_TOKEN) -> IssueForge:
        return keeps_issues(connect(self.event, token, sleep=lambda _: None, clock=lambda: 1.8e9))

    def post(self, text: str = "text", *, run: int = 5, attempt: int = 1, news: str | None = None,
             token: str = BOT_TOKEN) -> str:  # fmt: skip
        forge = self.forge(token)
        found = find_own(forge, FIRST)
        return post_issue(
            forge, found, title="perfgate", text=text, state=state(run, attempt), first_line=FIRST, news=news
        )


@pytest.fixture(params=[GitHubDialect, GitLabDialect], ids=["github", "gitlab"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    dialect: Any = request.param()
    with FakeForge(dialect) as fake:
        event = CiEvent(
            forge=dialect.name,
            host=ForgeHost(api_url=fake.api_url, server_url=fake.url),
            repository=dialect.repository,
            project=dialect.project,
            job=CiJob(run_id="5", run_attempt=1),
            head_sha="a" * 40,
        )
        yield Stage(fake, event)
        assert fake.violations == []


@pytest.mark.recordings
def test_issue__judged_by_the_description__every_call_is_legal(stage: Stage) -> None:
    if stage.fake.slice is None:
        pytest.skip("no official API description of this forge is among the recordings")
    assert stage.post() == "created"
    stage.fake.issues[0].open = False
    assert stage.post("two", run=6, news="something moved") == "updated"
    assert {call.method for call in stage.fake.calls} >= {"GET", "POST"}
    assert stage.fake.violations == []


def test_issue__second_week__one_issue_with_the_new_text_label_and_old_title(stage: Stage) -> None:
    stage.post("first week")
    assert stage.post("second week", run=6) == "updated"
    (issue,) = stage.fake.issues
    assert (issue.title, issue.labels, issue.open) == ("perfgate", (LABEL,), True)
    assert "second week" in issue.body
    assert "first week" not in issue.body
    assert stage.fake.comments == {}


def test_issue__news__one_comment_below_it_and_none_when_the_job_is_repeated(stage: Stage) -> None:
    stage.post()
    stage.post("two", run=6, news="latency got worse\n/close")
    stage.post("two", run=6, news="latency got worse\n/close")
    (issue,) = stage.fake.issues
    (comment,) = stage.fake.comments[issue.number]
    assert comment.body == "latency got worse\n\u200b/close\n"


@pytest.mark.parametrize(("run", "attempt"), [(4, 9), (5, 1)])
def test_issue__older_run__changes_nothing(stage: Stage, run: int, attempt: int) -> None:
    stage.post("newer", run=5, attempt=2)
    assert stage.post("older", run=run, attempt=attempt, news="old news") == "kept"
    assert "newer" in stage.fake.issues[0].body
    assert stage.fake.comments == {}


def test_issue__marker_planted_by_another__is_left_alone(stage: Stage) -> None:
    planted = StoredIssue(3, "mine", f"{FIRST}\nall is well", PERSON, (LABEL,))
    stage.fake.issues.append(planted)
    assert stage.post() == "created"
    assert planted.body == f"{FIRST}\nall is well"
    assert len(stage.fake.issues) == 2


def test_issue__of_a_person_account__found_again(stage: Stage) -> None:
    stage.post(token=PERSON_TOKEN)
    assert stage.post("two", run=6, token=PERSON_TOKEN) == "updated"
    assert len(stage.fake.issues) == 1


def test_issue__on_the_second_page__found_again(stage: Stage) -> None:
    stage.post()
    stage.fake.issues += [StoredIssue(100 + n, "other", "text", BOT, (LABEL,)) for n in range(120)]
    assert stage.post("two", run=6) == "updated"


def test_issue__two_of_ours__the_older_is_kept_up(stage: Stage) -> None:
    stage.fake.issues += [StoredIssue(n, "perfgate", f"{FIRST}\nold", BOT, (LABEL,)) for n in (8, 9)]
    assert stage.post("new", run=6) == "updated"
    assert "new" in stage.fake.issues[0].body
    assert "old" in stage.fake.issues[1].body


@pytest.mark.parametrize(("theirs", "expected", "stands"), [(4, "updated", "ours"), (9, "kept", "theirs")])
def test_issue__another_job_opened_one_in_the_same_moment__the_older_number_stays(
    stage: Stage, theirs: int, expected: str, stands: str
) -> None:
    forge = stage.forge()
    nothing_yet = find_own(forge, FIRST)
    stage.post("theirs", run=theirs)
    posted = post_issue(
        forge, nothing_yet, title="perfgate", text="ours", state=state(5), first_line=FIRST, news="latency got worse"
    )
    assert posted == expected
    first, second = stage.fake.issues
    assert (first.open, second.open) == (True, False)
    assert stands in first.body
    assert second.body == f"perfgate opened two issues at once; it reports in #{first.number}.\n"
    assert stage.fake.comments == {}
    assert find_own(forge, FIRST) is not None


def test_issue__closed_by_people__opened_again_only_for_news(stage: Stage) -> None:
    stage.post()
    stage.fake.issues[0].open = False
    stage.post("two", run=6)
    assert stage.fake.issues[0].open is False
    stage.post("three", run=7, news="worse")
    assert stage.fake.issues[0].open is True


def test_issue__pull_requests_among_the_issues__passed_over(stage: Stage) -> None:
    stage.fake.issues.append(StoredIssue(2, "a change", f"{FIRST}\nx", BOT, (LABEL,), is_change=True))
    expected = "created" if stage.event.forge == "github" else "updated"
    assert stage.post() == expected


def test_issue__forge_refuses__clear_error(stage: Stage) -> None:
    stage.fake.script("POST", Reply(403, {"message": "Resource not accessible"}))
    with pytest.raises(ForgeError, match="HTTP 403"):
        stage.post()


def test_state__names_that_would_end_the_hidden_line__kept_and_hidden() -> None:
    known = [KnownChange("a" * 12, "b" * 12, "worse", "open", HOSTILE)]
    lines = hidden_lines(state(known=known), FIRST)
    assert lines[1].count("-->") == 1
    assert lines[1].endswith(" -->")
    body = compose("text", state(known=known), FIRST)
    read = read_state(body)
    assert read is not None
    assert read.trend.known == known


@pytest.mark.parametrize("line", ["", "<!-- perfgate:trend-state  -->", "<!-- perfgate:trend-state {} -->",
                                  "<!-- perfgate:trend-state [[[[ -->"])  # fmt: skip
def test_read_state__line_that_is_no_state__none(line: str) -> None:
    assert read_state(f"{FIRST}\n{line}\n") is None


def test_compose__text_over_the_limit__refused_before_it_is_sent() -> None:
    budget = text_budget(state(), FIRST)
    assert len(compose("x" * budget, state(), FIRST)) <= MAX_CHARACTERS
    with pytest.raises(ForgeError, match="characters"):
        compose("x" * MAX_CHARACTERS, state(), FIRST)


def test_keeps_issues__forge_without_issues__said() -> None:
    with pytest.raises(ForgeError, match=r"trend\.md"):
        keeps_issues(object())  # type: ignore[arg-type]
