"""Connections of clients that send nothing end; a client that waits for its answer is not disconnected."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvicorn
from fastapi.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from perfgate.service.connections import EndingConnection, allow_many_connections
from perfgate.service.server import listening


class ImpatientConnection(EndingConnection):
    idle_seconds = 0.05


class SlowAnswer:
    """Answers once ``may_answer`` is set."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        await run_in_threadpool(self.may_answer.wait)
        await PlainTextResponse("done")(scope, receive, send)


@pytest.fixture
def application() -> SlowAnswer:
    return SlowAnswer()


@pytest.fixture
def port(application: SlowAnswer) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(application, http=ImpatientConnection, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(30)


def sent_and_received(port: int, data: bytes) -> bytes:
    """What the service answers until it ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        answer = b""
        while part := client.recv(65536):
            answer += part
        return answer


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a", id="half of the headers"),
        pytest.param(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf", id="half of the body"),
    ],
)
def test_connection__the_client_stops_sending__ended(port: int, application: SlowAnswer, data: bytes) -> None:
    application.may_answer.set()
    answer = sent_and_received(port, data)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200")


def test_connection__the_answer_takes_longer_than_clients_may_be_idle__answered(
    port: int, application: SlowAnswer
) -> None:
    request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(sent_and_received, port, request)
        assert application.asked.wait(60)
        # Two connections that begin later are already ended.
        assert [sent_and_received(port, b""), sent_and_received(port, b"")] == [b"", b""]
        application.may_answer.set()
        assert answer.result(60).endswith(b"done")


def test_allow_many_connections__any_limit__never_lower_than_before() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_many_connections()
    raised, still_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert raised == resource.RLIM_INFINITY or raised >= soft
    assert still_hard == hard


def test_listener__accepted_connection__sends_a_second_packet_without_an_answer_to_the_first() -> None:
    """Else the body of each page waits for the 40 ms in which the client delays its ACK of the headers."""
    with (
        listening("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_listener__every_interface_of_ipv6__reached_by_ipv4_too() -> None:
    with listening("::", 0) as listener:
        _, port, *_ = listener.getsockname()
        socket.create_connection(("127.0.0.1", port)).close()
