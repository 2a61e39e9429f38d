"""The contract of a forge, against a fake that the official API descriptions judge where they are.

A test module of a forge imports all of this and defines ``stage``, a fixture with the forge's dialect: ``on_stage(dialect)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from perfgate.errors import ForgeError, ForgeGoneError, ForgeSettingError, ForgeUnansweredError
from perfgate.judging.forge.comment import CommentState, Posted, marker, post
from perfgate.judging.forge.forge import (
    CiEvent,
    CiJob,
    CommitStatus,
    Forge,
    ForgeHost,
    connect,
    find_token,
    line_address,
)
from tests.fakes.forge import (
    BOT,
    BOT_TOKEN,
    OTHER_BOT,
    PERSON,
    PERSON_TOKEN,
    FakeForge,
    Fault,
    Reply,
    StoredChange,
)
from tests.fakes.meddled import Meddled

HEAD, OTHER_SHA = "a" * 40, "b" * 40
MARKER = marker("default")
DOUBLE = "the other one has the numbers"
START = 1_800_000_000.0


class Time:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = START
        self.slept: list[float] = []
        # What others do while somebody sleeps.
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.meanwhile()
        self.now += seconds

    def clock(self) -> float:
        return self.now


@dataclass
class Stage:
    fake: FakeForge
    time: Time
    event: CiEvent

    def forge(self, token: str = BOT_TOKEN, **changes: Any) -> Forge:
        return connect(replace(self.event, **changes), token, sleep=self.time.sleep, clock=self.time.clock)

    @property
    def edits(self) -> str:
        """The method that edits a comment here."""
        return "PUT" if self.event.forge == "gitlab" else "PATCH"

    def bodies(self) -> list[str]:
        return [comment.body for comment in self.fake.comments.get(7, [])]

    def post(
        self,
        text: str,
        *,
        run: int = 1,
        attempt: int = 1,
        verdict: Any = "PASS",
        token: str = BOT_TOKEN,
        before: Callable[[str], None] = lambda call: None,
    ) -> Posted:
        decided = verdict if verdict in ("PASS", "FAIL") else None
        state = CommentState(run=run, attempt=attempt, head=HEAD, verdict=verdict, decided=decided)
        forge = Meddled(self.forge(token), before)
        return post(forge, 7, text, state, MARKER, sleep=self.time.sleep, turned="{} → {}".format, double=DOUBLE)


@contextmanager
def on_stage(dialect: Any) -> Iterator[Stage]:
    """Change request 7 on a fake of a dialect, which finds no illegal call in the end."""
    with FakeForge(dialect) as fake:
        fake.changes.append(StoredChange(7, "team", "feature", HEAD))
        event = CiEvent(
            forge=dialect.name,
            host=ForgeHost(api_url=fake.api_url, server_url=fake.url),
            repository=dialect.repository,
            project=dialect.project,
            job=CiJob(run_id="1", run_attempt=1),
            head_sha=HEAD,
            change_request=7,
        )
        yield Stage(fake, Time(), event)
        assert fake.violations == []


def test_line_address__file_of_the_head__its_page_at_that_commit(stage: Stage) -> None:
    pages = stage.fake.dialect.pages  # type: ignore[attr-defined]
    root = f"{stage.event.host.server_url}/{stage.event.repository}/{pages}/{HEAD}"
    assert line_address(stage.event, "src/model.py", 88) == f"{root}/src/model.py#L88"
    odd = line_address(stage.event, "a b/(c)#d?.py", 1)
    assert odd == f"{root}/a%20b/%28c%29%23d%3F.py#L1"


@pytest.fixture
def judged(stage: Stage) -> Stage:
    if stage.fake.slice is None:
        pytest.skip("no official API description of this forge is among the recordings")
    return stage


def test_connect__repository_without_an_owner__is_a_setting_that_cannot_be_right(stage: Stage) -> None:
    if stage.event.forge == "gitlab":
        pytest.skip("a GitLab project is named by a number too")
    with pytest.raises(ForgeSettingError, match="reads OWNER/NAME, found 'model'"):
        stage.forge(project="model")
    assert stage.fake.calls == []


def test_find_token__several_variables__the_first_that_holds_one() -> None:
    environ = {"PERFGATE_TOKEN": "", "GITHUB_TOKEN": "theirs"}
    assert find_token("github", environ) == "theirs"
    assert find_token("github", {**environ, "PERFGATE_TOKEN": "ours"}) == "ours"
    assert find_token("gitlab", environ) is None


@pytest.mark.recordings
def test_forge__judged_by_the_official_description__every_call_is_legal(judged: Stage) -> None:
    forge = judged.forge()
    judged.post("one", verdict="PASS")
    judged.post("two", run=2, verdict="FAIL")
    judged.fake.membership = "developer"
    forge.set_status(CommitStatus(HEAD, "failure", "perfgate", "slower", "https://forge.example/run"))
    assert forge.find_change_request() is not None
    assert len(judged.fake.calls) >= 8
    assert judged.fake.violations == []


def test_post__no_comment_yet__creates_one_with_marker_first(stage: Stage) -> None:
    assert stage.post("text") == "created"
    (body,) = stage.bodies()
    assert body.splitlines()[0] == MARKER
    assert body.splitlines()[2] == "text"


def test_post__comment_there__edits_it_in_place(stage: Stage) -> None:
    stage.post("one")
    assert stage.post("two", run=2) == "updated"
    (body,) = stage.bodies()
    assert "two" in body
    assert "one" not in body


def test_post__comment_of_a_person_account__found_again(stage: Stage) -> None:
    stage.post("one", token=PERSON_TOKEN)
    stage.post("two", run=2, token=PERSON_TOKEN)
    assert len(stage.bodies()) == 1


def test_post__marker_planted_by_another__is_left_alone(stage: Stage) -> None:
    planted = stage.fake.write(7, f"{MARKER}\nPASS, really", PERSON)
    assert stage.post("text") == "created"
    assert planted.body == f"{MARKER}\nPASS, really"
    assert len(stage.bodies()) == 2


def test_post__marker_not_on_the_first_line__is_not_ours(stage: Stage) -> None:
    stage.fake.write(7, f"> quoted\n{MARKER}", BOT)
    assert stage.post("text") == "created"


def test_post__comment_on_a_later_page__is_found(stage: Stage) -> None:
    for number in range(120):
        stage.fake.write(7, f"chatter {number}", PERSON)
    stage.post("one")
    for number in range(120):
        stage.fake.write(7, f"more {number}", OTHER_BOT)
    assert stage.post("two", run=2) == "updated"
    assert len(stage.bodies()) == 241


def test_post__two_of_ours__the_first_is_edited_and_the_other_deleted(stage: Stage) -> None:
    first = stage.fake.write(7, f"{MARKER}\nold", BOT)
    stage.fake.write(7, f"{MARKER}\nnew", BOT)
    planted = stage.fake.write(7, f"{MARKER}\nPASS, really", PERSON)
    assert stage.post("text") == "updated"
    assert "text" in first.body
    assert stage.fake.comments[7] == [first, planted]


def test_post__the_newest_of_ours_is_of_a_later_run__its_text_moves_into_the_first(stage: Stage) -> None:
    stage.post("later", run=10)
    later = stage.bodies()[0]
    stage.fake.comments[7].clear()
    stage.fake.write(7, f"{MARKER}\nold", BOT)
    stage.fake.write(7, later, BOT)
    assert stage.post("ours", run=9) == "kept"
    assert stage.bodies() == [later]


def test_post__second_of_ours_may_not_be_deleted__points_to_the_first(stage: Stage) -> None:
    stage.fake.write(7, f"{MARKER}\nold", BOT)
    stage.fake.write(7, f"{MARKER}\nnew", BOT)
    stage.fake.faults.append(Fault("DELETE", "/", Reply(403, {"message": "no"})))
    stage.post("text")
    first, second = stage.bodies()
    assert "text" in first
    assert second == "the other one has the numbers\n"
    assert stage.post("again", run=2) == "updated"
    assert len(stage.bodies()) == 2


def test_post__deleted_by_a_person_before_the_edit__is_written_anew(stage: Stage) -> None:
    stage.post("one")
    first = stage.fake.comments[7][0]

    def person_deletes(call: str) -> None:
        if call == "edit_comment":
            stage.fake.remove(first.id)

    assert stage.post("two", run=2, before=person_deletes) == "created"
    (body,) = stage.bodies()
    assert "two" in body


@pytest.mark.parametrize("done", [True, False], ids=["written", "not-written"])
@pytest.mark.parametrize("reply", [None, Reply(502, {"message": "bad gateway"})], ids=["dropped", "502"])
def test_post__no_word_of_the_new_comment__looks_before_writing_again(
    stage: Stage, reply: Reply | None, done: bool
) -> None:
    stage.fake.faults.append(
        Fault("POST", "/notes" if stage.event.forge == "gitlab" else "/comments", reply, done=done)
    )
    assert stage.post("text") == "created"
    (body,) = stage.bodies()
    assert "text" in body
    methods = [call.method for call in stage.fake.calls]
    assert methods.count("POST") == (1 if done else 2)
    assert methods[methods.index("POST") + 1] == "GET"


@pytest.mark.parametrize("done", [True, False], ids=["written", "not-written"])
def test_post__no_word_of_an_edit__looks_before_editing_again_and_tells_the_turn_once(stage: Stage, done: bool) -> None:
    stage.post("one")
    stage.fake.faults.append(Fault(stage.edits, "/", None, done=done))
    assert stage.post("two", run=2, verdict="FAIL") == "updated"
    comment, reply = stage.bodies()
    assert "two" in comment
    assert "PASS → FAIL" in reply
    methods = [call.method for call in stage.fake.calls]
    assert methods[methods.index(stage.edits) + 1] == "GET"


def test_post__told_to_wait_with_an_edit__what_a_newer_run_wrote_meanwhile_stands(stage: Stage) -> None:
    stage.post("one")
    comment = stage.fake.comments[7][0]
    newer = comment.body.replace('"run":1', '"run":9')
    stage.fake.script(stage.edits, Reply(429, {"message": "slow down"}, {"Retry-After": "300"}))
    stage.time.meanwhile = lambda: setattr(comment, "body", newer)
    assert stage.post("two", run=2) == "kept"
    assert stage.bodies() == [newer]
    assert stage.time.slept == [300.0]


def test_post__always_told_to_wait_with_an_edit__gives_up(stage: Stage) -> None:
    stage.post("one")
    stage.fake.script(stage.edits, *[Reply(429, {"message": "slow down"})] * 9)
    with pytest.raises(ForgeUnansweredError, match="slow down"):
        stage.post("two", run=2)
    assert stage.time.slept == [60.0, 60.0, 60.0]


def test_post__never_a_word__gives_up_after_three_tries(stage: Stage) -> None:
    stage.fake.faults += [Fault("POST", "/", None)] * 9
    with pytest.raises(ForgeUnansweredError, match="may or may not have been carried out"):
        stage.post("text")
    assert [call.method for call in stage.fake.calls].count("POST") == 3


def test_post__reply_without_a_word__stands_once(stage: Stage) -> None:
    stage.post("one")
    stage.fake.faults.append(Fault("POST", "/", None, done=True))
    assert stage.post("two", run=2, verdict="FAIL") == "updated"
    assert len(stage.bodies()) == 2


def test_post__run_numbers_of_other_lengths__are_compared_as_numbers(stage: Stage) -> None:
    stage.post("nine", run=9)
    assert stage.post("ten", run=10) == "updated"
    assert stage.post("nine again", run=9, attempt=2) == "kept"
    assert "ten" in stage.bodies()[0]


def test_post__somebody_quotes_our_comment__is_left_alone(stage: Stage) -> None:
    stage.post("one")
    quoted = "\n".join("> " + line for line in stage.bodies()[0].splitlines())
    copy, quote = stage.fake.write(7, stage.bodies()[0], PERSON), stage.fake.write(7, quoted, PERSON)
    stage.post("two", run=2)
    assert [comment.body for comment in (copy, quote)] == [copy.body, quoted]
    assert "one" in copy.body
    assert len(stage.bodies()) == 3


def test_post__one_hundred_and_one_comments__one_of_ours_in_the_end(stage: Stage) -> None:
    for number in range(101):
        stage.fake.write(7, f"chatter {number}", PERSON)
    stage.post("one")
    assert stage.post("two", run=2) == "updated"
    assert len(stage.bodies()) == 102


@pytest.mark.parametrize(("run", "attempt"), [(4, 9), (5, 1)])
def test_post__older_run_or_attempt__never_overwrites(stage: Stage, run: int, attempt: int) -> None:
    stage.post("newest", run=5, attempt=2)
    assert stage.post("stale", run=run, attempt=attempt, verdict="FAIL") == "kept"
    (body,) = stage.bodies()
    assert "newest" in body


def test_post__verdict_turns__replies_once(stage: Stage) -> None:
    stage.post("one", verdict="PASS")
    assert stage.post("two", run=2, verdict="INCONCLUSIVE") == "updated"
    assert stage.post("three", run=3, verdict="FAIL") == "updated"
    assert stage.post("four", run=4, verdict="FAIL") == "updated"
    assert stage.post("five", run=5, verdict="PASS") == "updated"
    comment, to_fail, to_pass = stage.bodies()
    assert "five" in comment
    assert "PASS → FAIL" in to_fail
    assert "FAIL → PASS" in to_pass


def test_comments__written_by_the_forge_itself__left_out(stage: Stage) -> None:
    stage.fake.write(7, f"{MARKER}\nadded 1 commit", BOT, system=True)
    found = [comment for comment in stage.forge().comments(7) if comment.body.startswith(MARKER)]
    assert len(found) == (0 if stage.event.forge == "gitlab" else 1)


@pytest.mark.parametrize("state", ["success", "failure", "error", "pending"])
def test_set_status__every_state__stands_in_the_forges_own_word(stage: Stage, state: Any) -> None:
    if not stage.fake.dialect.states:  # type: ignore[attr-defined]
        with pytest.raises(ForgeError, match=r"cannot set a commit status on (Gitee|GitCode)"):
            stage.forge().set_status(CommitStatus(HEAD, state, "perfgate", "x"))
        assert stage.fake.calls == []
        return
    stage.fake.membership = "developer"
    stage.forge().set_status(CommitStatus(HEAD, state, "perfgate", "x" * 400, "https://forge.example/run"))
    (status,) = stage.fake.statuses
    assert status.state == stage.fake.dialect.states[state]  # type: ignore[attr-defined]
    assert (status.sha, status.name, status.url) == (HEAD, "perfgate", "https://forge.example/run")
    assert len(status.description) in (140, 255)


def test_set_status__same_again__is_no_error(stage: Stage) -> None:
    if not stage.fake.dialect.states:  # type: ignore[attr-defined]
        pytest.skip("this forge has no commit status")
    stage.fake.membership = "developer"
    for _ in range(2):
        stage.forge().set_status(CommitStatus(HEAD, "success", "perfgate", "fine"))
    assert stage.fake.statuses[0].state == "success"


def test_set_status__role_below_developer__says_which_one_it_takes(stage: Stage) -> None:
    if stage.event.forge not in ("github", "gitlab"):
        pytest.skip("nobody has tried the roles of this forge")
    stage.fake.rights.remove("statuses")
    words = (
        "role Reporter for notes and issues, Developer for" if stage.event.forge == "gitlab" else "write permission for"
    )
    with pytest.raises(ForgeError, match=f"HTTP 403: the token may not do this; .*{words}"):
        stage.forge().set_status(CommitStatus(HEAD, "success", "perfgate", "fine"))
    assert stage.fake.statuses == []
    # What else it may do stays.
    assert stage.post("text") == "created"


def test_set_status__commit_that_the_forge_does_not_know__said(stage: Stage) -> None:
    if not stage.fake.dialect.states:  # type: ignore[attr-defined]
        pytest.skip("this forge has no commit status")
    stage.fake.membership = "developer"
    with pytest.raises(ForgeError, match=r"HTTP (404: not found|422: the forge found the request invalid)"):
        stage.forge().set_status(CommitStatus("e" * 40, "success", "perfgate", "fine"))


def test_add_comment__change_request_that_is_not_there__said(stage: Stage) -> None:
    with pytest.raises(ForgeGoneError, match="HTTP 404: not found"):
        stage.forge().add_comment(8, "text")


def test_add_comment__nothing_to_say__refused_with_the_forges_words(stage: Stage) -> None:
    with pytest.raises(ForgeError, match=r"HTTP 4(00|22)"):
        stage.forge().add_comment(7, " ")
    assert stage.bodies() == []


def test_add_comment__orders_alone_on_gitlab__are_obeyed_and_no_note(stage: Stage) -> None:
    """So no line of ours may begin with a slash: tests/attacks holds that."""
    if stage.event.forge != "gitlab":
        pytest.skip("only GitLab obeys what a token writes")
    with pytest.raises(ForgeError, match="interpreted the whole text as quick actions and stored nothing"):
        stage.forge().add_comment(7, "/merge\n")
    assert stage.fake.orders == [(BOT.login, "/merge")]
    assert stage.bodies() == []


@pytest.mark.parametrize("status", [429, 403])
def test_add_comment__forge_asks_to_wait__waits_as_long_and_posts_once(stage: Stage, status: int) -> None:
    stage.fake.script("POST", Reply(status, {"message": "slow down"}, {"Retry-After": "17"}))
    stage.post("text")
    assert stage.time.slept == [17.0]
    assert len(stage.bodies()) == 1


def test_comments__limit_used_up__waits_for_the_reset(stage: Stage) -> None:
    prefix = "RateLimit" if stage.event.forge == "gitlab" else "X-RateLimit"
    limit = {f"{prefix}-Remaining": "0", f"{prefix}-Reset": str(int(START) + 40)}
    stage.fake.script("GET", Reply(429, {"message": "slow down"}, limit))
    stage.forge().comments(7)
    assert stage.time.slept == [41.0]


def test_add_comment__always_limited__gives_up(stage: Stage) -> None:
    stage.fake.script("POST", *[Reply(429, {"message": "slow down"})] * 9)
    with pytest.raises(ForgeError, match="slow down"):
        stage.post("text")
    # One minute, doubled each time, until ten minutes would be exceeded.
    assert stage.time.slept == [60.0, 120.0, 240.0]


def test_add_comment__server_error__is_not_sent_twice(stage: Stage) -> None:
    stage.fake.script("POST", Reply(502, {"message": "bad gateway"}))
    with pytest.raises(ForgeUnansweredError, match="502"):
        stage.forge().add_comment(7, "text")
    assert [call.method for call in stage.fake.calls].count("POST") == 1


def test_comments__server_error__is_asked_again(stage: Stage) -> None:
    stage.fake.script("GET", Reply(503, {"message": "later"}), Reply(500, {"message": "later"}))
    assert stage.forge().comments(7) == []
    assert stage.time.slept == [1.0, 2.0]


def test_add_comment__not_permitted__says_so_without_waiting(stage: Stage) -> None:
    stage.fake.script("POST", Reply(403, {"message": "Resource not accessible by integration"}))
    with pytest.raises(ForgeError, match=r"the token may not do this; give .*Resource not accessible"):
        stage.post("text")
    assert stage.time.slept == []


def test_add_comment__redirected__is_not_followed(stage: Stage) -> None:
    stage.fake.script("POST", Reply(302, {}, {"Location": "https://elsewhere.example/steal?x=1"}))
    with pytest.raises(ForgeError, match=r"redirect to https://elsewhere\.example/steal, is not followed"):
        stage.post("text")


def test_any_call__wrong_token__names_the_cause_and_not_the_token(stage: Stage) -> None:
    with pytest.raises(ForgeError, match="401: the token is not valid") as caught:
        stage.forge("wrong-token-99887766").comments(7)
    assert "wrong-token-99887766" not in str(caught.value)


def test_post__far_too_long__keeps_marker_and_title(stage: Stage) -> None:
    for run in (1, 2):
        stage.post("## perfgate: FAIL\n" + "x" * 200_000, run=run)
    (body,) = stage.bodies()
    assert len(body) < 1000
    assert max(len(call.body) for call in stage.fake.calls) < 2000
    assert body.splitlines()[0] == MARKER
    assert "## perfgate: FAIL" in body


def test_post__line_with_a_slash__is_no_command(stage: Stage) -> None:
    stage.post("fine\n/approve\n  /merge")
    (body,) = stage.bodies()
    assert not any(line.lstrip(" ").startswith("/") for line in body.splitlines())


def test_post__text_already_has_the_marker__stands_once(stage: Stage) -> None:
    stage.post(f"{MARKER}\ntext")
    (body,) = stage.bodies()
    assert body.count(MARKER) == 1


def test_find_change_request__named_by_the_event__found(stage: Stage) -> None:
    found = stage.forge().find_change_request()
    assert found is not None
    assert (found.number, found.head_sha) == (7, HEAD)


def test_find_change_request__none_named_and_none_with_the_head__none(stage: Stage) -> None:
    assert stage.forge(change_request=None, head_sha=OTHER_SHA).find_change_request() is None


def test_delete_comment__gone_already__is_no_error(stage: Stage) -> None:
    ours = stage.fake.write(7, "text", BOT)
    for _ in range(2):
        stage.forge().delete_comment(7, ours.id)
    assert stage.bodies() == []


def test_edit_comment__gone__says_so(stage: Stage) -> None:
    with pytest.raises(ForgeGoneError, match="404"):
        stage.forge().edit_comment(7, 4711, "text")


def test_any_call__token__stands_in_a_header_only(stage: Stage) -> None:
    stage.post("one")
    stage.post("two", run=2)
    addresses = " ".join(f"{call.path} {call.query}" for call in stage.fake.calls)
    assert BOT_TOKEN not in addresses
    assert {call.headers["authorization"] for call in stage.fake.calls} == {f"{stage.fake.dialect.scheme} {BOT_TOKEN}"}
