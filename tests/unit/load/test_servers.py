"""Targets against a real server in a thread, and the ways in which it fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perfgate.conductor.load.generator import run_load, send_load
from perfgate.conductor.load.http import KEEP_ALIVE, HttpTarget
from perfgate.conductor.load.openai import OpenAITarget
from perfgate.conductor.load.plan import LoadPlan, PlannedRequest
from perfgate.conductor.load.record import Clock, Exchange
from perfgate.conductor.sides.server.programs import FunctionTarget
from perfgate.errors import ConfigError, MeasuringError
from tests.fakes.openai_server import FakeOpenAI, Fault, serving
from tests.waiting import wait_until

REQUEST = PlannedRequest(at=0.0, prompt='say "hi"\nto all', output_tokens=4, id="perfgate-1-00000")
PLAN = LoadPlan((REQUEST,), 1)


def exchange_with(server: FakeOpenAI, **settings: object) -> Exchange:
    with serving(server):
        target = OpenAITarget(**{"url": server.url, "model": "tiny", "timeout": 5.0, **settings})  # type: ignore[arg-type]
        return run_load(PLAN, target).exchanges[0]


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("fault", ["none", "split"])
def test_openai__four_tokens__arrivals_counts_and_text(api: str, fault: Fault) -> None:
    server = FakeOpenAI(fault=fault, seconds=0.005)
    exchange = exchange_with(server, api=api)
    assert exchange.error == ""
    assert exchange.status == 200
    assert exchange.text == "w0 w1 w2 w3 "
    assert (exchange.input_tokens, exchange.output_tokens) == (4, 4)
    assert len(exchange.tokens) == 4
    assert exchange.first == exchange.tokens[0]
    assert exchange.last == exchange.tokens[3]
    assert exchange.at == exchange.sent < exchange.tokens[0]
    assert list(exchange.tokens) == sorted(exchange.tokens)  # on a busy machine several may arrive together


def test_openai__body__greedy_seeded_streamed_and_of_the_planned_length() -> None:
    server = FakeOpenAI()
    exchange_with(server, extra={"top_k": 1})
    ((body, headers),) = server.received
    assert body == {
        "model": "tiny",
        "prompt": 'say "hi"\nto all',
        "max_tokens": 4,
        "ignore_eos": True,
        "temperature": 0,
        "seed": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_k": 1,
    }
    assert headers["X-Request-Id"] == "perfgate-1-00000"


def test_openai__server_that_knows_no_ignore_eos__is_not_told() -> None:
    server = FakeOpenAI()
    exchange_with(server, ignore_eos=False)
    assert "ignore_eos" not in server.received[0][0]


@pytest.mark.parametrize("make", [OpenAITarget, HttpTarget])
def test_target__server_closes_a_kept_connection__the_request_is_sent_once_more_and_counts_from_its_start(
    make: Callable[..., OpenAITarget | HttpTarget],
) -> None:
    options = {"model": "tiny"} if make is OpenAITarget else {"path": "/echo/", "body": "{}"}
    plan = LoadPlan((REQUEST, replace(REQUEST, id="b")), 1)
    with serving(FakeOpenAI(closes=True)) as server:
        kept = run_load(plan, make(server.url, timeout=5.0, **options)).exchanges
        new = run_load(plan, make(server.url, timeout=5.0, without=frozenset({KEEP_ALIVE}), **options)).exchanges
    assert [(one.error, one.status, one.resent) for one in kept] == [("", 200, False), ("", 200, True)]
    assert [(one.error, one.resent) for one in new] == [("", False), ("", False)]
    assert kept[1].at == kept[1].sent < kept[1].last
    assert [headers.get("Connection") for _, headers in server.received] == [None, "close", "close", "close"]


def test_target__get__a_closed_connection_that_the_library_replaces_itself__is_noted() -> None:
    with serving(FakeOpenAI(closes=True)) as server:
        target = HttpTarget(server.url, path="/echo/", timeout=5.0)
        exchanges = run_load(LoadPlan((REQUEST, replace(REQUEST, id="b")), 1), target).exchanges
    assert [(one.error, one.resent) for one in exchanges] == [("", False), ("", True)]


def test_openai__connection_breaks_after_the_first_byte__is_not_sent_again() -> None:
    with serving(FakeOpenAI(fault="truncated")) as server:
        target = OpenAITarget(server.url, "tiny", timeout=5.0)
        exchanges = run_load(LoadPlan((REQUEST, replace(REQUEST, id="b")), 1), target).exchanges
    assert [one.resent for one in exchanges] == [False, False]
    assert len(server.received) == 2


REFUSALS = (
    "Unexpected fields in the request: {{'{field}'}}",
    '{{"detail": [{{"type": "extra_forbidden", "loc": ["body", "{field}"], "input": true}}]}}',
    '{{"error": {{"message": "Unrecognized request argument supplied: {field}", "code": 400}}}}',
)


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("name", ["ignore_eos", "seed", "temperature", "stream_options"])
def test_openai__server_rejects_a_field_of_ours__it_is_named_and_can_be_left_out(name: str, refusal: str) -> None:
    server = FakeOpenAI(rejects=frozenset({name}), refusal=refusal)
    exchange = exchange_with(server)
    assert (exchange.status, exchange.rejected) == (422, name)
    without = exchange_with(server, without=frozenset({name}))
    assert (without.error, without.rejected) == ("", "")
    assert server.received[0][0].keys() - server.received[1][0].keys() == {name}


def test_openai__refusal_that_names_no_field_of_ours__is_a_failure() -> None:
    echo = '{{"loc": ["body", "{field}"], "input": {{"ignore_eos": true, "temperature": 0, "seed": 0}}}}'
    assert exchange_with(FakeOpenAI(rejects=frozenset({"model"}), refusal=echo)).rejected == ""
    own = exchange_with(FakeOpenAI(rejects=frozenset({"seed"})), extra={"seed": 3})
    assert (own.status, own.rejected) == (422, "")
    assert exchange_with(FakeOpenAI(fault="status")).rejected == ""


@pytest.mark.parametrize(
    ("fault", "status", "error", "arrived"),
    [
        ("status", 500, 'HTTP 500: {"error": {"message": "out of memory", "code": 500}}', 0),
        ("hang", 200, "no complete answer within 0.3 s", 2),
        ("truncated", 200, "the event stream ended within an event: it was cut off", 2),
        ("content_type", 200, "expected text/event-stream, received application/json: HTTP 200: data: ", 0),
        ("json", 200, "a chunk of the answer is malformed: ", 1),
        ("in_stream", 200, "the server reports an error in the stream: ", 1),
        ("after_done", 200, "the event stream goes on after [DONE]", 4),
    ],
)
def test_openai__fault__error_and_what_arrived_before_it(fault: Fault, status: int, error: str, arrived: int) -> None:
    exchange = exchange_with(FakeOpenAI(fault=fault), timeout=0.3 if fault == "hang" else 5.0)
    assert exchange.error.startswith(error)
    assert exchange.status == status
    assert len(exchange.tokens) == arrived


def test_openai__no_usage__tokens_are_not_counted_by_chunks() -> None:
    exchange = exchange_with(FakeOpenAI(fault="no_usage"))
    assert exchange.error == ""
    assert exchange.output_tokens is None
    assert len(exchange.tokens) == 4


def test_openai__chunks_without_text__no_first_token_and_the_last_chunk_counts() -> None:
    exchange = exchange_with(FakeOpenAI(fault="silent"))
    assert exchange.error == ""
    assert exchange.first is None
    assert exchange.output_tokens == 4
    assert exchange.last > exchange.sent


def test_openai__other_api_than_asked_for__is_malformed() -> None:
    with serving(FakeOpenAI()) as server:
        target = OpenAITarget(server.url, "tiny", api="chat", timeout=5.0)
        completions = OpenAITarget(server.url, "tiny", timeout=5.0)
        assert run_load(PLAN, target).exchanges[0].error == ""
        assert run_load(PLAN, completions).exchanges[0].error == ""
        wrong = OpenAITarget(server.url + "/nowhere", "tiny", timeout=5.0)
        assert run_load(PLAN, wrong).exchanges[0].error == "HTTP 404: 404: Not Found"


_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "ServerDisconnectedError"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "ClientResponseError"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "ClientResponseError"),
        (_OK + b"Content-Length: 100\r\n\r\ndata: ", "ClientPayloadError"),
        (_OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "ClientResponseError"),
        (_OK + b"\r\n", "the event stream ended without [DONE] or a finish_reason: it was cut off"),
        (_OK + b"\r\ndata: [DONE]", "the event stream ended within an event: it was cut off"),
        (_OK + b"\r\ndata: {}\n\n", "a chunk of the answer has neither choices nor usage"),
        (_OK + b"\r\ndata: " + b"[" * 100_000 + b"\n\n", "a chunk of the answer is malformed"),
        (_OK + b"\r\n" + b"x" * 2**21, "a line of the event stream is longer than"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "HTTP 302: "),
    ],
)
def test_openai__hostile_answer__an_error_that_names_it_and_is_bounded(answer: bytes, error: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answering = threading.Thread(target=answer_once, args=(listening, answer))
        answering.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        exchange = run_load(PLAN, OpenAITarget(url, "tiny", timeout=5.0)).exchanges[0]
        answering.join()
    assert error in exchange.error
    assert len(exchange.error) <= 501


def answer_once(listening: socket.socket, answer: bytes) -> None:
    connection, _ = listening.accept()
    with connection, contextlib.suppress(OSError):
        connection.recv(2**16)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(2**16):
            pass


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


@pytest.mark.parametrize("open_loop", [True, False])
def test_openai__connection_refused__an_error_for_every_request(open_loop: bool) -> None:
    target = OpenAITarget(f"http://127.0.0.1:{closed_port()}", "tiny", timeout=5.0)
    load = run_load(LoadPlan((REQUEST, REQUEST), None if open_loop else 1), target)
    assert len(load.exchanges) == 2
    for exchange in load.exchanges:
        assert "ClientConnectorError" in exchange.error
        assert exchange.status == 0
        assert exchange.first is None


def test_openai__address_is_none__an_error() -> None:
    assert "InvalidUrl" in run_load(PLAN, OpenAITarget("nonsense", "tiny", timeout=5.0)).exchanges[0].error


def test_openai__cancelled_in_mid_stream__the_server_sees_its_connection_end() -> None:
    server = FakeOpenAI(fault="hang")

    async def cancel_soon() -> None:
        clock = Clock()
        async with OpenAITarget(server.url, "tiny", timeout=5.0).connect(clock) as send:
            turn = asyncio.create_task(send_load(LoadPlan((REQUEST,) * 3, 3), send, clock))
            await until(lambda: server.open_streams == 3)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn

    async def until(holds: object) -> None:
        end = time.monotonic() + 10
        while not holds():  # type: ignore[operator]
            assert time.monotonic() < end
            await asyncio.sleep(0.005)

    with serving(server):
        asyncio.run(cancel_soon())
        asyncio.run(until(lambda: server.open_streams == 0))


def test_http__template__prompt_escaped_for_the_path_and_for_json() -> None:
    with serving(FakeOpenAI()) as server:
        target = HttpTarget(
            server.url, path="/echo/$id?q=$prompt", body='{"text": "$prompt", "n": $output_tokens}', timeout=5.0
        )
        load = run_load(PLAN, target)
        ((sent, headers),) = server.received
    exchange = load.exchanges[0]
    assert exchange.error == ""
    assert exchange.text == sent["body"] == '{"text": "say \\"hi\\"\\nto all", "n": 4}'
    assert sent["method"] == "POST"
    assert sent["path"].startswith("/echo/perfgate-1-00000?q=say%20%22hi%22")
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Request-Id"] == "perfgate-1-00000"
    assert exchange.first is not None
    assert exchange.sent < exchange.first <= exchange.last == load.seconds


def test_http__get__no_body_and_a_failure_named() -> None:
    with serving(FakeOpenAI(fault="status")) as server:
        exchange = run_load(PLAN, HttpTarget(server.url, path="/echo/", timeout=5.0)).exchanges[0]
    assert server.received[0][0]["body"] == ""
    assert exchange.error == "HTTP 503: "
    assert exchange.status == 503


@pytest.mark.parametrize("body", ["$promt", "costs 5 $", "${"])
def test_http__template_that_cannot_be_filled_in__says_what_it_may_hold(body: str) -> None:
    with pytest.raises(ConfigError, match=r"it may hold \$prompt"):
        HttpTarget("http://127.0.0.1", body=body, timeout=5.0)


FUNCTIONS = """
import asyncio, threading
def shout(url, request):
    return f"{url} {request.id} {request.output_tokens} {request.prompt.upper()}"
async def whisper(url, request):
    await asyncio.sleep(0)
    return request.prompt.lower()
def fail(url, request):
    raise ValueError("no weights")
def hang(url, request):
    threading.Event().wait()
def leave(url, request):
    import os
    os._exit(3)
"""


@pytest.fixture
def function(tmp_path: Path) -> Iterator[Callable[..., FunctionTarget]]:
    """Start the process of a function, as a side does, and return what requests are sent to."""
    (tmp_path / "client.py").write_text(FUNCTIONS)
    clients: list[subprocess.Popen[bytes]] = []

    def start(name: str, **options: float) -> FunctionTarget:
        address = tmp_path / name
        command = [sys.executable, "-m", "perfgate.measuring.request_client", f"client.py:{name}", str(address)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        clients.append(subprocess.Popen(command, cwd=tmp_path, env=environment))
        wait_until(lambda: address.exists() or clients[-1].poll() is not None)
        return FunctionTarget(str(address), "http://there", **options)

    yield start
    for client in clients:
        client.kill()
        client.wait()


@pytest.mark.parametrize(
    ("name", "text"), [("shout", 'http://there perfgate-1-00000 4 SAY "HI"\nTO ALL'), ("whisper", 'say "hi"\nto all')]
)
def test_function__returns__its_text_and_end(function: Callable[..., FunctionTarget], name: str, text: str) -> None:
    target = function(name)
    for _ in range(2):  # turn after turn
        exchange = run_load(PLAN, target).exchanges[0]
        assert (exchange.text, exchange.error) == (text, "")
        assert exchange.first == exchange.last > exchange.sent


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("fail", "ValueError: no weights"),
        ("hang", "no complete answer within 0.2 s"),
        ("leave", "the process of the function has ended"),
    ],
)
def test_function__fails__an_error_that_says_how(
    function: Callable[..., FunctionTarget], name: str, error: str
) -> None:
    target = function(name, timeout=0.2 if name == "hang" else 60.0)
    for _ in range(2):  # turn after turn
        assert run_load(PLAN, target).exchanges[0].error == error


def test_openai__aiohttp_missing__says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(MeasuringError, match=r"pip install 'perfgate\[serving\]'"):
        run_load(PLAN, OpenAITarget("http://127.0.0.1:1", "tiny", timeout=5.0))
