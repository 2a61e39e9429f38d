"""The session: what it refuses to send, to follow, to read and to wait for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
from requests.auth import AuthBase

from perfgate.errors import ForgeError, ForgeUnansweredError
from perfgate.judging.forge import http
from perfgate.judging.forge.http import ForgeSession, Refusal, is_rate_limit, wait_after
from perfgate.judging.forge.session import BearerAuth, NoAuth
from perfgate.judging.forge.url import api_root, check_page_url, is_loopback
from tests.fakes.forge import BOT_TOKEN, PERSON, FakeForge, Reply, StoredChange
from tests.fakes.forge_dialects import GitHubDialect

NOW = 1_800_000_000.0
PATH = "/repos/team/model/issues/7/comments"


class Body(msgspec.Struct):
    id: int


@pytest.fixture
def fake() -> Iterator[FakeForge]:
    with FakeForge(GitHubDialect()) as forge:
        forge.changes.append(StoredChange(7, "team", "feature", "a" * 40))
        yield forge


def _session(fake: FakeForge, token: str = BOT_TOKEN, **doors: Any) -> ForgeSession:
    doors = {"sleep": lambda seconds: None, "clock": lambda: NOW, **doors}
    return ForgeSession(fake.api_url, token, accept="application/json", **doors)


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("https://api.github.com/", "https://api.github.com"),
        ("https://ghe.example/api/v3", "https://ghe.example/api/v3"),
        ("http://127.0.0.1:4010/api/v4", "http://127.0.0.1:4010/api/v4"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("http://localhost:1", "http://localhost:1"),
    ],
)
def test_api_root__https_or_loopback__accepted(url: str, root: str) -> None:
    assert api_root(url) == root


@pytest.mark.parametrize(
    "url",
    [
        "http://api.github.com",
        "ftp://127.0.0.1",
        "https://user:secret@host",
        "https://host?x=1",
        "https://",
        "host",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example",
        "https://host:99999",
    ],
)
def test_api_root__anything_else__refused_without_the_password(url: str) -> None:
    with pytest.raises(ForgeError) as caught:
        api_root(url)
    assert "secret" not in str(caught.value)


def test_is_loopback__other_host__is_not() -> None:
    assert is_loopback("http://127.9.9.9/x")
    assert not is_loopback("http://10.0.0.1/x")


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/api/v4/x?page=2",
        "http://forge.example/api/v4/x?page=2",
        "https://forge.example:8443/api/v4/x",
        "https://forge.example/other/x",
    ],
)
def test_check_page_url__leaves_the_api__refused(url: str) -> None:
    with pytest.raises(ForgeError, match="not followed"):
        check_page_url(url, "https://forge.example/api/v4")


@pytest.mark.parametrize("root", ["https://forge.example/api/v4", "https://Forge.example:443/api/v4"])
@pytest.mark.parametrize("host", ["forge.example", "forge.example:443", "FORGE.example"])
def test_check_page_url__its_own_host_written_otherwise__below_the_root(root: str, host: str) -> None:
    page = check_page_url(f"https://{host}/api/v4/projects/1/notes?page=2&per_page=100", root)
    assert page == f"{root}/projects/1/notes?page=2&per_page=100"


def test_pages__next_page_on_another_host__refused(fake: FakeForge) -> None:
    fake.script("GET", Reply(200, [], {"Link": '<https://evil.example/x?page=2>; rel="next"'}))
    with pytest.raises(ForgeError, match=r"evil\.example"):
        list(_session(fake).pages(PATH, Body))


def test_pages__many__all_are_read_in_order(fake: FakeForge) -> None:
    for number in range(75):
        fake.write(7, str(number), PERSON)
    ids = [body.id for body in _session(fake).pages(PATH, Body, query={"per_page": 10})]
    assert len(ids) == 75
    assert ids == sorted(ids)
    assert len(fake.calls) == 8


def test_pages__never_ending__stops(fake: FakeForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_PAGES", 3)
    endless = Reply(200, [], {"Link": f'<{fake.url}{PATH}?page=2>; rel="next"'})
    fake.script("GET", *[endless] * 9)
    with pytest.raises(ForgeError, match="more than 3 pages"):
        list(_session(fake).pages(PATH, Body))


@pytest.mark.parametrize(
    ("auth", "sent"),
    [(None, "Basic bWU6b3RoZXI="), (BearerAuth(BOT_TOKEN, scheme="Bearer"), f"Bearer {BOT_TOKEN}"), (NoAuth(), None)],
    ids=["nobody's", "the forge's", "the storage's"],
)
def test_auth__netrc_for_the_host__does_not_replace_ours(
    auth: AuthBase | None, sent: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a server on this machine no .netrc is read at all, so this is asked of requests itself.
    (tmp_path / "netrc").write_text("default login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    session = requests.Session()
    session.auth = auth
    prepared = session.prepare_request(requests.Request("GET", "https://api.example.com/x"))
    assert prepared.headers.get("Authorization") == sent


def test_send__proxy_in_the_environment__loopback_goes_direct(fake: FakeForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert list(_session(fake).pages(PATH, Body)) == []


def test_get__answer_too_large__refused(fake: FakeForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 100)
    fake.script("GET", Reply(200, [{"id": 1}] * 50))
    with pytest.raises(ForgeError, match="larger than 100 bytes"):
        list(_session(fake).pages(PATH, Body))


def test_get__redirect_with_a_large_text__is_not_read_to_its_end(
    fake: FakeForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 100)
    fake.script("GET", Reply(302, b"x" * 1000, {"Location": "https://forge.example"}))
    with pytest.raises(ForgeError, match="larger than 100 bytes"):
        _session(fake).get("/x", Body)


@pytest.mark.parametrize("answer", [b"<html>sign in</html>", b'{"id": "x"}', b"\xff\xfe", b"[" * 100_000, b""])
def test_get__not_the_api__refused(fake: FakeForge, answer: bytes) -> None:
    fake.script("GET", Reply(200, answer))
    with pytest.raises(ForgeError, match="not what the API documents"):
        _session(fake).get("/x", Body)


def test_send__request_too_large__is_not_sent(fake: FakeForge) -> None:
    with pytest.raises(ForgeError, match="too large"):
        _session(fake).send("POST", PATH, {"body": "x" * 2_000_000}, Body, expect=201, repeatable=False)
    assert fake.calls == []


def test_send__unexpected_success__is_an_error(fake: FakeForge) -> None:
    fake.script("POST", Reply(200, {"id": 1}))
    with pytest.raises(ForgeError, match="HTTP 200"):
        _session(fake).send("POST", PATH, {"body": "x"}, Body, expect=201, repeatable=False)


def test_send__server_gone__post_is_not_repeated_and_get_is(fake: FakeForge) -> None:
    slept: list[float] = []
    session = _session(fake, sleep=slept.append)
    fake.__exit__()
    with pytest.raises(ForgeError, match="may or may not have been carried out"):
        session.send("POST", PATH, {"body": "x"}, Body, expect=201, repeatable=False)
    assert slept == []
    with pytest.raises(ForgeError, match="after 5 tries"):
        session.get(PATH, Body)
    assert slept == [1.0, 2.0, 4.0, 8.0]
    fake.__enter__()


def test_send__forge_echoes_the_token__is_scrubbed(fake: FakeForge) -> None:
    fake.script("GET", Reply(400, {"message": f"bad token {BOT_TOKEN}\n::error::x"}))
    with pytest.raises(ForgeError) as caught:
        _session(fake).get("/x", Body)
    assert BOT_TOKEN not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_repr__session_and_auth__hide_the_token(fake: FakeForge) -> None:
    session = _session(fake)
    assert BOT_TOKEN not in repr(session) + repr(vars(session)) + repr(BearerAuth(BOT_TOKEN, scheme="Bearer"))


@pytest.mark.parametrize("token", ["", "  ", "a b", "a\nb", "a\x00b", "tök"])
def test_bearer_auth__no_token__refused_without_quoting_it(token: str) -> None:
    with pytest.raises(ForgeError, match="check the secret") as caught:
        BearerAuth(token, scheme="Bearer")
    assert "tök" not in str(caught.value)


def test_bearer_auth__trailing_newline_of_a_file__is_cut() -> None:
    assert BearerAuth("abc\n", scheme="Bearer").scrub("abc") == "***"


@pytest.mark.parametrize(
    ("status", "headers", "body", "expected"),
    [
        (429, {}, b"", True),
        (403, {"retry-after": "3"}, b"", True),
        (403, {"x-ratelimit-remaining": "0"}, b"", True),
        (403, {}, b'{"message": "You have exceeded a secondary rate limit"}', True),
        (403, {"x-ratelimit-remaining": "12"}, b'{"message": "Resource not accessible"}', False),
        (401, {"retry-after": "3"}, b"", False),
        (500, {}, b"", False),
    ],
)
def test_is_rate_limit__later_or_no__told_apart(
    status: int, headers: dict[str, str], body: bytes, expected: bool
) -> None:
    assert is_rate_limit(status, headers, body) is expected


@pytest.mark.parametrize(
    ("headers", "attempt", "seconds"),
    [
        ({"retry-after": "17"}, 3, 17.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:20 GMT"}, 0, 20.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0, 0.0),
        ({"retry-after": "soon"}, 1, 120.0),
        ({"retry-after": f"Fri, 15 Jan 2027 08:00:20 +{'9' * 30}"}, 1, 120.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000030"}, 0, 31.0),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "1800000030"}, 0, 31.0),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": "1800000030"}, 0, 60.0),
        ({}, 2, 240.0),
    ],
)
def test_wait_after__limited__in_the_documented_order(headers: dict[str, str], attempt: int, seconds: float) -> None:
    assert wait_after(Refusal("slow down", headers, limited=True), attempt, NOW) == seconds


@pytest.fixture
def drip() -> Iterator[str]:
    """An API that sends its answer a byte at a time and never ends: no timeout of a socket ends the wait for it."""
    stop = threading.Event()

    class Drip(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if "/body" in self.path:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "100000")
                self.end_headers()
            with contextlib.suppress(OSError):
                while not stop.wait(0.02):
                    self.wfile.write(b"[" if "/body" in self.path else b"H")
                    self.wfile.flush()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Drip) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        stop.set()
        server.shutdown()


@pytest.mark.parametrize("part", ["headers", "body"])
def test_request__answer_drips_a_byte_at_a_time__ends_by_the_timeout_of_the_whole(drip: str, part: str) -> None:
    session = ForgeSession(
        drip, BOT_TOKEN, accept="application/json", sleep=lambda seconds: None, clock=lambda: NOW, answer_timeout=0.3
    )
    with pytest.raises(ForgeError, match=r"did not end within 0\.3 s"):
        session.get(f"/{part}", Body)
    with pytest.raises(ForgeUnansweredError, match="may or may not have been carried out"):
        session.send("POST", f"/{part}", {}, Body, expect=201, repeatable=False)
