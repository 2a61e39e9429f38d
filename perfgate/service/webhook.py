"""The webhook: a signed message for each recorded run, sent by a separate thread so that no upload waits for it."""

from __future__ import annotations

import hashlib
import hmac
import queue
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import msgspec
import requests

from perfgate.document.run import RunDocument
from perfgate.errors import UsageError
from perfgate.judging.store.runs import workload_names
from perfgate.locale import sentence
from perfgate.system.loopback import is_loopback_host
from perfgate.version import __version__

SIGNATURE, DELIVERY = "X-Perfgate-Signature-256", "X-Perfgate-Delivery"
_SHORTEST_SECRET = 16
_MOST_WAITING = 1_000
_TIMEOUT = (10.0, 30.0)
# Seconds before another try.
WAITS = (1.0, 5.0, 25.0)
# A message that is being sent at the end of the service may take this much longer.
_SECONDS_TO_END = 5.0


class RecordedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a message identifies the run; its document is read from the service."""

    event: Literal["run recorded"] = "run recorded"
    project: str
    run_id: str
    session: str
    started_at: str
    commit: str | None
    branch: str | None
    device_kind: str
    fingerprint: str
    workloads: list[str]


@dataclass(frozen=True)
class WebhookTarget:
    """The address of the receiver, and the secret that both know. Raises UsageError if they are unsafe."""

    address: str
    secret: str

    def __post_init__(self) -> None:
        """Refuse an address that anyone on the way could read, and a secret that can be guessed."""
        parts = urlsplit(self.address)
        host = parts.hostname or ""
        if not host or (parts.scheme != "https" and not (parts.scheme == "http" and is_loopback_host(host))):
            raise UsageError(
                "the webhook {address!a} is not an https:// address (http:// is for this machine alone)",
                address=self.address,
            )
        if len(self.secret) < _SHORTEST_SECRET:
            raise UsageError(
                "the webhook needs a secret of {shortest} characters or more in PERFGATE_WEBHOOK_SECRET: its messages are "
                "signed with it",
                shortest=_SHORTEST_SECRET,
            )


class Webhook:
    """Sends messages one after another, each up to four times; ``warn`` hears of those that were not delivered."""

    def __init__(self, target: WebhookTarget, warn: Callable[[str], None], *, waits: Sequence[float] = WAITS) -> None:
        self._target, self._warn, self._waits = target, warn, waits
        self._waiting: queue.Queue[RecordedMessage | None] = queue.Queue(_MOST_WAITING)
        self._ending = threading.Event()
        self._sender = threading.Thread(target=self._send_all, name="webhook", daemon=True)
        self._sender.start()

    def recorded(self, run: RunDocument, run_id: str) -> None:
        """Queue the message of a run; it is dropped with a warning if too many wait."""
        message = RecordedMessage(
            project=run.project,
            run_id=run_id,
            session=run.session.id,
            started_at=run.session.started_at,
            commit=run.source.commit,
            branch=run.source.branch,
            device_kind=run.testbed.device_kind,
            fingerprint=run.testbed.fingerprint,
            workloads=workload_names(run),
        )
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self._warn(
                sentence(
                    "webhook: {most_waiting} messages wait already; the message of run {run_id} is dropped",
                    most_waiting=_MOST_WAITING,
                    run_id=run_id[:12],
                )
            )

    def close(self) -> None:
        """Stop after the message that is being sent."""
        self._ending.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._sender.join(_SECONDS_TO_END)

    def _send_all(self) -> None:
        while (message := self._waiting.get()) is not None and not self._ending.is_set():
            self._deliver(message)

    def _deliver(self, message: RecordedMessage) -> None:
        body = msgspec.json.encode(message)
        signature = hmac.new(self._target.secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"perfgate/{__version__}",
            SIGNATURE: f"sha256={signature}",
            # The same for every try, so that the receiver recognises a repetition.
            DELIVERY: secrets.token_hex(16),
        }
        why = self._try(body, headers)
        for wait in self._waits:
            if why is None or self._ending.wait(wait):
                break
            why = self._try(body, headers)
        if why is not None:
            self._warn(
                sentence(
                    "webhook: the message of run {run_id} is not delivered: {why}", run_id=message.run_id[:12], why=why
                )
            )

    def _try(self, body: bytes, headers: dict[str, str]) -> str | None:
        """Send once; the reason if it was not received."""
        try:
            response = requests.post(
                self._target.address, data=body, headers=headers, timeout=_TIMEOUT, allow_redirects=False, stream=True
            )
            with response:
                return None if response.ok and not response.is_redirect else f"HTTP {response.status_code}"
        except requests.RequestException as error:
            return type(error).__name__
