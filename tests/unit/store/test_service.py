"""The store of a service: which addresses and tokens it takes, and what it says if the service does not answer as it should."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from perfgate.errors import SessionKeptError, StoreError, StoreRefusedError, UnfitRunError
from perfgate.judging.store.backends.service import ServiceStore, open_backend
from perfgate.judging.store.runs import record_run, stored_runs
from perfgate.judging.store.store import Page, StorePlace
from tests.fakes.service import Listening, listening, serve_folder
from tests.unit.document.minimal import minimal_run

TOKEN = "perfgate_of-this-test"


class Answers:
    """Answers with the given responses in turn, and keeps the requests."""

    def __init__(self, *responses: Response) -> None:
        self._responses = list(responses)
        self.requests: list[Request] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests.append(Request(scope))
        await self._responses.pop(0)(scope, receive, send)


@pytest.fixture(scope="module")
def address() -> Iterator[Listening]:
    with listening() as found:
        yield found


def answering(
    address: Listening, *responses: Response, token: str | None = TOKEN
) -> tuple[ServiceStore, Answers, list[float]]:
    address.application = answers = Answers(*responses)
    slept: list[float] = []
    return ServiceStore(address.url, token, is_local=True, sleep=slept.append), answers, slept


def error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("http://perf.example", "would carry the token unencrypted"),
        ("https://user:secret@perf.example", r"\*\*\*@perf.example is not an address of a service; give https://HOST"),
        ("https://perf.example?token=secret", r"token=\*\*\* is not an address of a service"),
        ("https://", "is not an address of a service"),
        ("https://perf.example:port", "is not an address of a service"),
    ],
)
def test_open_backend__unsafe_address__refused_without_its_secrets(tmp_path: Path, location: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as refusal:
        open_backend(location, StorePlace(tmp_path, {}))
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({"PERFGATE_TOKEN": TOKEN}, f"Bearer {TOKEN}"),
        ({"PERFGATE_TOKEN": "ghp_of_a_forge", "PERFGATE_STORE_TOKEN": TOKEN}, f"Bearer {TOKEN}"),
        ({"PERFGATE_TOKEN": "ghp_of_a_forge"}, None),
        ({}, None),
    ],
)
def test_requests__token__of_a_service_only(
    address: Listening, tmp_path: Path, environ: dict[str, str], sent: str | None
) -> None:
    address.application = answers = Answers(JSONResponse([]))
    assert open_backend(address.url, StorePlace(tmp_path, environ)).projects() == []
    assert answers.requests[0].headers.get("Authorization") == sent


def test_record__service_that_is_away_for_a_moment__repeated(address: Listening) -> None:
    store, answers, slept = answering(
        address, PlainTextResponse("a proxy", 502), error(503, "locked"), JSONResponse("id", 201)
    )
    record_run(store, minimal_run())
    assert [request.method for request in answers.requests] == ["PUT"] * 3
    assert slept == [0.5, 1.0]


@pytest.mark.parametrize(
    ("retry_after", "waited"), [("3", 3.0), ("86400", 10.0), ("Sun, 29 Nov 2026 10:00:00 GMT", 0.5)]
)
def test_record__service_says_when_to_try_again__waits_so_long_within_bounds(
    address: Listening, retry_after: str, waited: float
) -> None:
    away = error(503, "the database is down")
    away.headers["Retry-After"] = retry_after
    store, _, slept = answering(address, away, JSONResponse("id", 201))
    record_run(store, minimal_run())
    assert slept == [waited]


def test_record__nobody_listens__said_after_five_tries() -> None:
    slept: list[float] = []
    store = ServiceStore("http://127.0.0.1:9", TOKEN, is_local=True, sleep=slept.append)
    with pytest.raises(StoreRefusedError, match=r"cannot be reached, after 5 tries: .*repeat the command later"):
        record_run(store, minimal_run())
    assert slept == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("response", "kind", "said"),
    [
        (
            error(401, "a token is needed"),
            StoreRefusedError,
            "knows no such token; put a valid one into PERFGATE_STORE_TOKEN",
        ),
        (error(403, "for another project"), StoreRefusedError, "answers HTTP 403: for another project"),
        (error(409, "session 's1' is already stored"), SessionKeptError, "session 's1' is already stored"),
        (error(413, "more than 5 bytes"), StoreRefusedError, "answers HTTP 413: more than 5 bytes"),
        (error(422, "the head of a change"), UnfitRunError, "the head of a change"),
        (PlainTextResponse("oops", 500), StoreRefusedError, "answers HTTP 500: no reason"),
        (
            Response(status_code=302, headers={"Location": "https://evil.example"}),
            StoreRefusedError,
            "answers HTTP 302",
        ),
    ],
)
def test_record__refused__said_at_once(
    address: Listening, response: Response, kind: type[StoreError], said: str
) -> None:
    store, answers, _ = answering(address, response)
    with pytest.raises(kind, match=said) as refusal:
        record_run(store, minimal_run())
    assert len(answers.requests) == 1
    assert TOKEN not in str(refusal.value)


def test_runs__page_of_something_else__said(address: Listening) -> None:
    store, _, _ = answering(address, PlainTextResponse("<html>", 200))
    with pytest.raises(StoreRefusedError, match="not the answer of a perfgate service"):
        stored_runs(store, "shop")


def test_prune__through_a_service__refused(address: Listening) -> None:
    store, _, _ = answering(address)
    with pytest.raises(StoreError, match="run `perfgate baseline remove` or `prune` with --store and --project on the"):
        store.remove("shop", ["0" * 64])


class OtherTime(BaseHTTPRequestHandler):
    """Answers from a machine whose clock is ahead by so many minutes, behind by so many, or has none."""

    minutes: int | None = 0

    def do_GET(self) -> None:
        self.send_response_only(200)
        if self.minutes is not None:
            there = datetime.now(timezone.utc) + timedelta(minutes=self.minutes)
            self.send_header("Date", format_datetime(there, usegmt=True))
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("minutes", [30, -30, None])
def test_clock_ahead__date_of_the_answer__compared_with_our_own_clock(
    monkeypatch: pytest.MonkeyPatch, minutes: int | None
) -> None:
    monkeypatch.setattr(OtherTime, "minutes", minutes)
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherTime) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        store = ServiceStore(f"http://127.0.0.1:{server.server_address[1]}", TOKEN, is_local=True)
        assert store.clock_ahead() == timedelta()
        stored_runs(store, "shop", Page(limit=1))
        server.shutdown()
        thread.join()
    assert abs(store.clock_ahead() - timedelta(minutes=minutes or 0)) < timedelta(minutes=5)


def test_record__below_a_path_that_the_proxy_removes__stored_and_listed(address: Listening, tmp_path: Path) -> None:
    service = serve_folder(address, tmp_path)
    application = address.application
    assert application is not None

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"].startswith("/perfgate/api/")
        await application({**scope, "path": scope["path"].removeprefix("/perfgate")}, receive, send)

    address.application = proxy
    environ = {"PERFGATE_STORE_TOKEN": service.token("shop")}
    store = open_backend(f"{service.url}/perfgate", StorePlace(tmp_path, environ))
    run_id = record_run(store, minimal_run())
    assert [run.id for run in stored_runs(store, "shop")] == [run_id]
