"""Webhooks: a signed message for each recorded run, sent by a thread for each receiver.

No upload waits for a receiver, and no receiver for another. A message that is not
delivered is listed as a dead letter.
"""

from __future__ import annotations

import hashlib
import hmac
import queue
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
import requests
from urllib3.exceptions import HTTPError

from perfgate.document.run import RunDocument
from perfgate.document.served import DeadLetter, ServedWebhook
from perfgate.errors import UsageError
from perfgate.judging.store.runs import workload_names
from perfgate.judging.store.store import utc_now
from perfgate.locale import sentence
from perfgate.service.trouble_log import TroubleLog
from perfgate.system.loopback import is_loopback_host
from perfgate.version import __version__

SIGNATURE, DELIVERY = "X-Perfgate-Signature-256", "X-Perfgate-Delivery"
_SHORTEST_SECRET = 16
# Limits of each receiver; a message takes about 1 kB.
MOST_WAITING = 10_000
MOST_DEAD_LETTERS = 1_000
# The part of an answer that is read, so that its connection can be used again.
_MOST_ANSWER = 64 * 1024
# To connect, and to wait for the next byte.
_TIMEOUT = (10.0, 30.0)
# A receiver that sends a byte now and then would otherwise never end.
_MOST_SECONDS = 40.0
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


class _Dead(NamedTuple):
    """A dead letter with its message."""

    letter: DeadLetter
    message: RecordedMessage


@dataclass(frozen=True)
class WebhookTarget:
    """The address of the receiver, and the secret that both know.

    Raises UsageError if they are unsafe.
    """

    address: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse an address that no message can be sent to or that anyone on the way
        could read, and a secret that can be guessed.
        """
        if not _is_safe(self.address):
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

    @property
    def receiver(self) -> str:
        """The scheme and host, for people; the path of an address may be a secret."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _is_safe(address: str) -> bool:
    try:
        requests.Request("POST", address).prepare()
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError:  # requests.exceptions.InvalidURL is one too
        return False
    if parts.scheme == "http":
        return is_loopback_host(host)
    return parts.scheme == "https" and bool(host)


class Webhook:
    """Sends the messages of one receiver one after another, each up to four times;
    ``warn`` hears of failures.
    """

    def __init__(
        self,
        target: WebhookTarget,
        warn: Callable[[str], None],
        *,
        waits: Sequence[float] = WAITS,
        most_waiting: int = MOST_WAITING,
        most_seconds: float = _MOST_SECONDS,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._target = target
        self._waits = waits
        self._clock = clock
        self._most_seconds = most_seconds
        self._trying: threading.Thread | None = None
        self._troubles = TroubleLog(warn)
        self._waiting: queue.Queue[RecordedMessage | None] = queue.Queue(most_waiting)
        self._dead: deque[_Dead] = deque(maxlen=MOST_DEAD_LETTERS)
        self._delivered = 0
        self._undelivered = 0
        self._redelivering = threading.Lock()
        self._ending = threading.Event()
        self._sender = threading.Thread(
            target=self._send_all, name="webhook", daemon=True
        )
        self._sender.start()

    def recorded(self, run: RunDocument, run_id: str) -> None:
        """Queue the message of a run; it is a dead letter if too many wait."""
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
            self._bury(
                message,
                sentence("{most} messages wait already", most=self._waiting.maxsize),
            )

    def state(self) -> ServedWebhook:
        """The numbers of messages, and the newest dead letters, newest first."""
        return ServedWebhook(
            receiver=self._target.receiver,
            waiting=self._waiting.qsize(),
            delivered=self._delivered,
            undelivered=self._undelivered,
            dead_letters=[dead.letter for dead in reversed(self._dead)],
        )

    def redeliver(self) -> int:
        """Queue the dead letters again, oldest first, and return their number."""
        queued = 0
        with self._redelivering:
            for _ in range(len(self._dead)):
                try:
                    self._waiting.put_nowait(self._dead[0].message)
                except queue.Full:
                    break
                self._dead.popleft()
                queued += 1
            self._undelivered -= queued
        return queued

    def close(self) -> None:
        """Stop after the message that is being sent."""
        self._ending.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._sender.join(_SECONDS_TO_END)

    def _send_all(self) -> None:
        with requests.Session() as session:
            # The proxies and certificates of the environment, read once: for each
            # message it would take longer than sending it. The password of the
            # receiver's host in ~/.netrc is not sent.
            settings = session.merge_environment_settings(
                self._target.address, {}, True, None, None
            )
            session.trust_env = False
            request = session.prepare_request(
                requests.Request(
                    "POST",
                    self._target.address,
                    headers={
                        "Content-Type": "application/json",
                        "User-Agent": f"perfgate/{__version__}",
                    },
                )
            )
            # Without the redirects and cookies of a session, which would take as long
            # as sending.
            send = partial(
                session.get_adapter(self._target.address).send,
                timeout=_TIMEOUT,
                stream=True,
                verify=settings["verify"] or True,
                cert=settings["cert"],
                proxies=settings["proxies"],
            )
            while (
                message := self._waiting.get()
            ) is not None and not self._ending.is_set():
                self._deliver(send, request, message)

    def _deliver(
        self,
        send: Callable[[requests.PreparedRequest], requests.Response],
        request: requests.PreparedRequest,
        message: RecordedMessage,
    ) -> None:
        body = msgspec.json.encode(message)
        signature = hmac.new(
            self._target.secret.encode(), body, hashlib.sha256
        ).hexdigest()
        request = request.copy()
        request.body = body
        request.headers["Content-Length"] = str(len(body))
        request.headers[SIGNATURE] = f"sha256={signature}"
        # The same for every try, so that the receiver recognises a repetition.
        request.headers[DELIVERY] = secrets.token_hex(16)
        why = self._try(send, request)
        for wait in self._waits:
            if not why or self._ending.wait(wait):
                break
            why = self._try(send, request)
        if why:
            self._bury(message, why)
        else:
            self._delivered += 1

    def _try(
        self,
        send: Callable[[requests.PreparedRequest], requests.Response],
        request: requests.PreparedRequest,
    ) -> str:
        """Send once; the reason if the message was not received in time, else empty.

        A thread whose answer does not end cannot be stopped. Until it ends by itself,
        every try fails, so that there is never more than one.
        """
        if self._trying is not None and self._trying.is_alive():
            return sentence("an earlier answer has not ended yet")
        reasons: list[str] = []
        self._trying = threading.Thread(
            target=lambda: reasons.append(_send(send, request)), daemon=True
        )
        self._trying.start()
        self._trying.join(self._most_seconds)
        if not reasons:
            return sentence(
                "the answer did not end within {seconds:g} s",
                seconds=self._most_seconds,
            )
        return reasons[0]

    def _bury(self, message: RecordedMessage, why: str) -> None:
        self._undelivered += 1
        at = self._clock().isoformat(timespec="seconds")
        letter = DeadLetter(
            at=at, project=message.project, run_id=message.run_id, reason=why
        )
        self._dead.append(_Dead(letter, message))
        self._troubles.note(
            sentence(
                "webhook {receiver}: messages are not delivered: {why}; the page /webhooks lists them",
                receiver=self._target.receiver,
                why=why,
            )
        )


def _send(
    send: Callable[[requests.PreparedRequest], requests.Response],
    request: requests.PreparedRequest,
) -> str:
    """Send once; the reason if it was not received, else empty."""
    try:
        with send(request) as response:
            response.raw.read(_MOST_ANSWER)
            if response.ok and not response.is_redirect:
                return ""
            return f"HTTP {response.status_code}"
    except (requests.RequestException, HTTPError) as error:
        return type(error).__name__
