"""The fake's GitCode dialect, driven by an SDK that others wrote (PyPI gitcode-api): their reading of the API is ours too."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fake_dialects import GitCodeDialect
from gitcode_api import GitCode

from perfgate.judging.forge.comment import (
    CommentState,
    Posted,
    marker,
    post,
    read_state,
)
from perfgate.judging.forge.forge import CiEvent, CiJob, Forge, ForgeHost, connect
from tests.fakes.forge import BOT_TOKEN, PERSON, PERSON_TOKEN, FakeForge, StoredChange

HEAD = "a" * 40
MARKER = marker("default")


@pytest.fixture
def fake() -> Iterator[FakeForge]:
    with FakeForge(GitCodeDialect()) as forge:
        forge.changes.append(StoredChange(7, "team", "feature", HEAD))
        yield forge
        assert forge.violations == []


def _sdk(fake: FakeForge, token: str = BOT_TOKEN) -> GitCode:
    # A client of its own, so that proxies and certificates of this machine's environment play no part.
    client = httpx.Client(trust_env=False, timeout=30)
    return GitCode(
        api_key=token,
        owner="team",
        repo="model",
        base_url=fake.api_url,
        http_client=client,
    )


def _ours(fake: FakeForge) -> Forge:
    event = CiEvent(
        forge="gitcode",
        host=ForgeHost(fake.api_url, fake.url),
        repository="team/model",
        project="team/model",
        job=CiJob("1", 1),
        head_sha=HEAD,
        change_request=7,
    )
    return connect(event, BOT_TOKEN, sleep=lambda seconds: None, clock=lambda: 0.0)


def _post(fake: FakeForge, text: str, run: int) -> Posted:
    state = CommentState(run=run, attempt=1, head=HEAD, verdict="PASS", decided="PASS")
    return post(
        _ours(fake),
        7,
        text,
        state,
        MARKER,
        sleep=lambda seconds: None,
        turned="{} → {}".format,
        double="double",
    )


def test_sdk__what_it_writes_edits_and_deletes__is_what_we_read(
    fake: FakeForge,
) -> None:
    with _sdk(fake) as client:
        assert client.users.me().login == "github-actions[bot]"
        client.pulls.create_comment(number=7, body="first")
        client.pulls.create_comment(number=7, body="second")
        first, second = client.pulls.list_comments(number=7)
        client.pulls.update_comment(comment_id=first.id, body="first, edited")
        client.pulls.delete_comment(comment_id=second.id)
        assert client.pulls.get_comment(comment_id=first.id).body == "first, edited"
        assert client.pulls.get(number=7).head.sha == HEAD
    (comment,) = _ours(fake).comments(7)
    assert (comment.body, comment.own) == ("first, edited", True)


def test_sdk__what_we_write__it_reads_on_every_page(fake: FakeForge) -> None:
    for number in range(101):
        fake.write(7, f"chatter {number}", PERSON)
    assert _post(fake, "one", 1) == "created"
    assert _post(fake, "two", 2) == "updated"
    with _sdk(fake, PERSON_TOKEN) as client:
        pages = [
            client.pulls.list_comments(number=7, page=page, per_page=50)
            for page in (1, 2, 3, 4)
        ]
    assert [len(page) for page in pages] == [50, 50, 2, 0]
    body = pages[2][-1].body
    state = read_state(body)
    assert body.splitlines()[0] == MARKER
    assert state is not None
    assert state.run == 2


def test_sdk__it_deletes_our_comment__we_write_anew(fake: FakeForge) -> None:
    _post(fake, "one", 1)
    with _sdk(fake) as client:
        client.pulls.delete_comment(
            comment_id=client.pulls.list_comments(number=7)[0].id
        )
    assert _post(fake, "two", 2) == "created"
    assert len(fake.comments[7]) == 1


def test_both__the_same_calls__are_the_same_requests(fake: FakeForge) -> None:
    with _sdk(fake) as client:
        client.pulls.create_comment(number=7, body="text")
        number = client.pulls.list_comments(number=7, page=1, per_page=100)[0].id
        client.pulls.update_comment(comment_id=number, body="other")
        client.pulls.delete_comment(comment_id=number)
    theirs = [
        (call.method, call.path, call.headers["authorization"]) for call in fake.calls
    ]
    fake.calls.clear()
    forge = _ours(fake)
    forge.add_comment(7, "text")
    number = forge.comments(7)[0].id
    forge.edit_comment(7, number, "other")
    forge.delete_comment(7, number)
    ours = {
        (call.method, call.path.rpartition("/")[0], call.headers["authorization"])
        for call in fake.calls
    }
    assert {
        (method, path.rpartition("/")[0], token) for method, path, token in theirs
    } <= ours
