"""The webhook of a service: a signed message for each new run, repeated until it is received, and never waited for."""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perfgate.errors import UsageError
from perfgate.service.webhook import DELIVERY, SIGNATURE, Webhook, WebhookTarget
from tests.fakes.service import Listening, listening, serve_folder
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


def test_webhook__nobody_listens__warned_and_the_upload_is_stored(address: Listening, tmp_path: Path) -> None:
    warnings: queue.Queue[str] = queue.Queue()
    webhook = Webhook(WebhookTarget("http://127.0.0.1:9/hook", SECRET), warnings.put, waits=(0.0,))
    assert upload(serve_folder(address, tmp_path, webhook.recorded), minimal_run()).status_code == 201
    assert "is not delivered: ConnectionError" in warnings.get(timeout=60)
    webhook.close()


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
