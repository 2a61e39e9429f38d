"""Webhooks of a service: a signed message for each new run, repeated until it is received, and never waited for."""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perfgate.errors import UsageError
from perfgate.service.webhook import DELIVERY, SIGNATURE, Webhook, WebhookTarget
from tests.fakes.service import SERVER_TOKEN, Listening, listening, serve_folder
from tests.unit.document.minimal import minimal_run
from tests.unit.service.test_store_api import document, upload

SECRET = "a secret of this test"


class Message(NamedTuple):
    body: bytes
    signature: str
    delivery: str


class Receiver:
    """Answers with the statuses in turn, the last one again and again."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.messages: queue.Queue[Message] = queue.Queue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        self.messages.put(Message(body, request.headers[SIGNATURE], request.headers[DELIVERY]))
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        await Response(status_code=status, headers={"Location": "/elsewhere"} if status == 307 else {})(
            scope, receive, send
        )


@pytest.fixture(scope="module")
def hook() -> Iterator[Listening]:
    with listening() as found:
        yield found


def test_webhook__run_uploaded__one_signed_message_that_is_repeated_until_it_is_received(
    address: Listening, hook: Listening, tmp_path: Path
) -> None:
    hook.application = receiver = Receiver(500, 307, 204)
    webhook = Webhook(WebhookTarget(f"{hook.url}/hook", SECRET), pytest.fail, waits=(0.0, 0.0))
    service = serve_folder(address, tmp_path, webhook.recorded)
    assert [upload(service, minimal_run()).status_code for _ in range(2)] == [201, 200]
    messages = [receiver.messages.get(timeout=60) for _ in range(3)]
    webhook.close()
    assert receiver.messages.empty()
    assert len(set(messages)) == 1
    body = messages[0].body
    assert messages[0].signature == "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    said = json.loads(body)
    assert (said["event"], said["project"], said["run_id"]) == ("run recorded", "shop", document(minimal_run())[1])


@pytest.mark.parametrize(
    "address",
    ["https://", "https://[git.example", "https://git.example:99999/x", "https://.example", "http://git.example"],
)
def test_webhook_target__no_address_that_a_message_can_be_sent_to__refused(address: str) -> None:
    with pytest.raises(UsageError, match="is not an https:// address"):
        WebhookTarget(address, SECRET)


def test_webhook__nobody_listens__a_dead_letter_and_the_upload_is_stored(address: Listening, tmp_path: Path) -> None:
    warnings: queue.Queue[str] = queue.Queue()
    webhook = Webhook(WebhookTarget("http://127.0.0.1:9/secret-path", SECRET), warnings.put, waits=(0.0,))
    assert upload(serve_folder(address, tmp_path, webhook.recorded), minimal_run()).status_code == 201
    assert "messages are not delivered: ConnectionError" in warnings.get(timeout=60)
    webhook.close()
    state = webhook.state()
    assert (state.receiver, state.delivered, state.undelivered) == ("http://127.0.0.1:9", 0, 1)
    (letter,) = state.dead_letters
    assert (letter.project, letter.run_id, letter.reason) == ("shop", document(minimal_run())[1], "ConnectionError")


def test_webhook__answer_that_drips__a_dead_letter_in_time_and_no_second_try_beside_it() -> None:
    warnings: queue.Queue[str] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        webhook = Webhook(WebhookTarget(address, SECRET), warnings.put, waits=(0.0,), most_seconds=0.5)
        webhook.recorded(minimal_run(), "0" * 64)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Endless: ")
            assert "an earlier answer has not ended yet" in warnings.get(timeout=60)
    webhook.close()
    (letter,) = webhook.state().dead_letters
    assert letter.reason == "an earlier answer has not ended yet"


def test_webhooks__one_of_three_receivers_fails__the_others_get_every_message(hook: Listening) -> None:
    sent = 200
    warnings: queue.Queue[str] = queue.Queue()
    broken = Webhook(WebhookTarget("http://127.0.0.1:9/", SECRET), warnings.put, waits=(60.0,))
    hook.application = receiver = Receiver(204)
    others = [Webhook(WebhookTarget(f"{hook.url}/{number}", SECRET), pytest.fail) for number in range(2)]
    for number in range(sent):
        for webhook in (broken, *others):
            webhook.recorded(minimal_run(), f"{number:064x}")
    for _ in range(2 * sent):
        receiver.messages.get(timeout=60)
    for webhook in (*others, broken):
        webhook.close()
    assert [webhook.state().delivered for webhook in others] == [sent, sent]
    assert [webhook.state().undelivered for webhook in others] == [0, 0]
    assert broken.state().delivered == 0


def test_webhook__too_many_wait__the_further_ones_are_dead_letters_with_the_reason() -> None:
    warnings: list[str] = []
    webhook = Webhook(WebhookTarget("http://127.0.0.1:9/", SECRET), warnings.append, waits=(60.0,), most_waiting=3)
    for number in range(10):
        webhook.recorded(minimal_run(), f"{number:064x}")
    state = webhook.state()
    webhook.close()
    assert state.undelivered >= 6
    assert {letter.reason for letter in state.dead_letters} == {"3 messages wait already"}
    assert len(warnings) <= 2


def test_webhook_pages__dead_letters__shown_to_readers_of_all_projects(address: Listening, tmp_path: Path) -> None:
    warnings: queue.Queue[str] = queue.Queue()
    webhook = Webhook(WebhookTarget("http://127.0.0.1:9/secret-path", SECRET), warnings.put, waits=())
    service = serve_folder(address, tmp_path, webhook.recorded, webhooks=[webhook])
    upload(service, minimal_run())
    warnings.get(timeout=60)
    page = service.client(SERVER_TOKEN).get("/webhooks")
    assert page.status_code == 200
    assert document(minimal_run())[1] in page.text
    assert "secret-path" not in page.text
    (state,) = service.client(SERVER_TOKEN).get("/api/v1/webhooks").json()
    assert state["dead_letters"][0]["reason"] == "ConnectionError"
    assert service.client(service.token("shop")).get("/webhooks").status_code == 403
    webhook.close()


def test_webhook_pages__dead_letters_sent_again__delivered_once_with_an_audit_entry(
    address: Listening, hook: Listening, tmp_path: Path
) -> None:
    hook.application = receiver = Receiver(500, 204)
    warnings: queue.Queue[str] = queue.Queue()
    webhook = Webhook(WebhookTarget(f"{hook.url}/hook", SECRET), warnings.put, waits=())
    service = serve_folder(address, tmp_path, webhook.recorded, webhooks=[webhook])
    upload(service, minimal_run())
    warnings.get(timeout=60)
    assert "Send the dead letters again" in service.client(SERVER_TOKEN).get("/webhooks").text
    writer = service.ledger.create_token("ops", None, "write")
    answer = service.client(writer.secret).post("/webhooks")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/webhooks")
    bodies = [receiver.messages.get(timeout=60).body for _ in range(2)]
    webhook.close()
    assert bodies[0] == bodies[1]
    state = webhook.state()
    assert (state.delivered, state.undelivered, state.dead_letters) == (1, 0, [])
    assert "Send the dead letters again" not in service.client(SERVER_TOKEN).get("/webhooks").text
    entry = service.ledger.entries(limit=1)[0]
    assert (entry.action, entry.subject) == ("dead letters redelivered", f"1 to {hook.url}")
    assert entry.actor == f"token {writer.token.id} ops"


def test_webhook_pages__send_again_without_the_right_to_write_everywhere__refused(
    address: Listening, tmp_path: Path
) -> None:
    warnings: queue.Queue[str] = queue.Queue()
    webhook = Webhook(WebhookTarget("http://127.0.0.1:9/", SECRET), warnings.put, waits=())
    service = serve_folder(address, tmp_path, webhook.recorded, webhooks=[webhook])
    upload(service, minimal_run())
    warnings.get(timeout=60)
    reader = service.ledger.create_token("dashboard", None, "read").secret
    fields = [{}, {"key": "0" * 64}, {"token": "perfgate_wrong"}, {"token": reader}, {"token": service.token("shop")}]
    for sent in fields:
        assert service.client(reader).post("/webhooks", data=sent).status_code == 403, sent
    assert service.client(service.token("shop")).post("/webhooks").status_code == 403
    webhook.close()
    assert len(webhook.state().dead_letters) == 1
    assert "dead letters redelivered" not in {entry.action for entry in service.ledger.entries(limit=100)}


@pytest.mark.parametrize(
    ("url", "secret", "said"),
    [
        ("http://hooks.example/", SECRET, "not an https:// address"),
        ("ftp://hooks.example/", SECRET, "not an https:// address"),
        ("https://hooks.example/", "short", "a secret of 16 characters or more in PERFGATE_WEBHOOK_SECRET"),
    ],
)
def test_webhook_target__unsafe__refused(url: str, secret: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        WebhookTarget(url, secret)
