"""The form that gives a regression a state: stored and shown for those who may write, refused for all others."""

from __future__ import annotations

import re

import pytest

from perfgate.document.history import Triage
from perfgate.judging.store.runs import record_runs
from tests.fakes.history import commit_of, main_runs, stepped
from tests.fakes.service import SERVER_TOKEN, Client, Service

PAGE, FORM = "/projects/demo/open.html", "/projects/demo/triage"
COMMIT = commit_of(8)
FIELDS = {"commit": COMMIT, "state": "acknowledged", "reason": "waits for\nthe kernel ", "author": "Mei"}


@pytest.fixture
def slower(service: Service) -> Service:
    record_runs(service.store, main_runs(9, shapes=("long",), operators=stepped(8, 1.5)), allow_dirty=False, now=None)
    return service


def browser(service: Service, token: str) -> Client:
    """A browser that opened the address with a token."""
    client = service.client()
    assert client.get(f"/?token={token}").status_code == 303
    return client


def key_of(client: Client) -> str | None:
    found = re.search(r'name="key" value="([0-9a-f]{64})"', client.get(PAGE).text)
    return found.group(1) if found else None


def test_form__token_typed_in__state_stored_shown_and_in_the_audit_log(slower: Service) -> None:
    client = browser(slower, SERVER_TOKEN)
    page = client.get(PAGE).text
    assert 'name="token" type="password"' in page
    assert "Content-Security-Policy" in page
    assert "form-action 'self'" in page
    answer = client.post(FORM, data={**FIELDS, "token": slower.token("demo")})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"open.html#commit-{COMMIT[:12]}")
    (triage,) = slower.store.entries("demo", Triage)
    assert (triage.commit, triage.state, triage.reason, triage.author) == (
        COMMIT,
        "acknowledged",
        "waits for the kernel",
        "Mei",
    )
    shown = client.get(PAGE).text
    assert f'id="commit-{COMMIT[:12]}"' in shown
    assert "waits for the kernel" in shown
    assert "waits for the kernel" in client.get("/projects/demo/index.html").text
    entry = slower.ledger.entries(project="demo", limit=1)[0]
    assert (entry.action, entry.subject) == ("regression triaged", f"acknowledged: {COMMIT}")
    assert entry.actor.startswith("token ")


def test_form__signed_in_with_a_token_that_writes__its_key_is_enough(slower: Service) -> None:
    client = browser(slower, slower.token("demo"))
    key = key_of(client)
    assert 'type="password"' not in client.get(PAGE).text
    assert client.post(FORM, data={**FIELDS, "key": key}).status_code == 303
    assert client.post(FORM, data={**FIELDS, "state": "expected", "key": key}).status_code == 303
    assert [triage.state for triage in slower.store.entries("demo", Triage)] == ["expected"]
    assert "no regression is open" in client.get(PAGE).text


@pytest.mark.parametrize(
    "sent", [{}, {"key": ""}, {"key": "0" * 64}, {"token": "perfgate_wrong"}, {"token": SERVER_TOKEN}]
)
def test_form__made_up_by_a_foreign_page__nothing_changes(slower: Service, sent: dict[str, str]) -> None:
    client = browser(slower, slower.token("demo"))
    answer = client.post(FORM, data={**FIELDS, **sent})
    assert (answer.status_code, "takes a token of this project with scope write" in answer.text) == (403, True)
    assert slower.store.entries("demo", Triage) == []


def test_form__token_of_another_project_or_for_reading__nothing_changes(slower: Service) -> None:
    reader = browser(slower, slower.token("demo", "read"))
    assert key_of(reader) is None
    for token in (slower.token("bank"), slower.token("demo", "read")):
        assert reader.post(FORM, data={**FIELDS, "token": token}).status_code == 403
    other = browser(slower, slower.token("bank"))
    assert other.post(FORM, data={**FIELDS, "token": slower.token("demo")}).status_code == 403
    assert slower.client().post(FORM, data={**FIELDS, "token": slower.token("demo")}).status_code == 401
    assert slower.store.entries("demo", Triage) == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"reason": "  "}, "give the reason for the state"),
        ({"author": "\0"}, "give the name of the person"),
        ({"reason": "x" * 1001}, "the reason may have 1000 characters"),
        ({"state": "closed"}, "names no commit or no state"),
        ({"commit": "<b>"}, "names no commit or no state"),
    ],
)
def test_form__field_that_cannot_be_stored__said_on_a_page(slower: Service, fields: dict[str, str], why: str) -> None:
    client = slower.client(slower.token("demo"))
    answer = client.post(FORM, data={**FIELDS, **fields})
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "text/html; charset=utf-8")
    assert why in re.sub(r"<[^>]+>", "", answer.text)
    assert slower.store.entries("demo", Triage) == []


def test_form__too_large_or_no_form__refused(slower: Service) -> None:
    client = slower.client(slower.token("demo"))
    assert client.post(FORM, data={**FIELDS, "reason": "x" * 20_000}).status_code == 413
    assert client.post(FORM, data=b"\xff\xfe&&&=").status_code == 422
    assert client.get(FORM).status_code == 404
