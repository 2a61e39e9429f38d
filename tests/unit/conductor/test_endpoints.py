"""The endpoints of a server: what it answers, and its counters in the text that vLLM writes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from perfgate.conductor.sides.server.endpoints import ServerEndpoints, parse_counters

Answering = Callable[[bytes], ServerEndpoints]

TEXT = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1200.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 800.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 5e+02
vllm:num_preemptions_total{engine="0",model_name="m"} NaN
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 64.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 900.0
"""


def test_parse__labels__are_summed_and_what_is_no_number_is_left_out() -> None:
    assert parse_counters(TEXT) == {"prefix_queries": 2000, "prefix_hits": 500, "iterations": 64}


def test_parse__anything_else__gives_none() -> None:
    assert parse_counters("<html>404</html>") == {}


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Start servers on this machine that send these bytes to every client."""
    sockets = []

    def start(answer: bytes) -> ServerEndpoints:
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:  # the test is over
                    return
                with client:
                    client.recv(4096)
                    client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return ServerEndpoints(f"http://127.0.0.1:{listening.getsockname()[1]}")

    yield start
    for listening in sockets:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "HTTP 503"),
        # What a server of TLS answers to a request in plain text.
        (b"\x15\x03\x01\x00\x02\x02\x46", "its answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", "its answer is not HTTP"),
        (b"", "Remote end closed connection without response"),
    ],
)
def test_obstacle__answer__why_the_server_is_not_ready(answering: Answering, answer: bytes, seen: str) -> None:
    obstacle = answering(answer).obstacle("/health")
    assert obstacle.startswith(seen)
    assert bool(obstacle) == bool(seen)


def test_counters__answer_that_is_cut_off_or_no_http__none(answering: Answering) -> None:
    cut_off = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    assert answering(cut_off).counters("/metrics") == {}
    assert answering(b"\x15\x03\x01").counters("/metrics") == {}
    with pytest.raises(OSError, match="not HTTP"):
        answering(b"\x15\x03\x01").post("/sleep", 5.0)


def test_obstacle__proxy_in_the_environment__is_not_asked(answering: Answering) -> None:
    """In a process of its own: Python looks for proxies once."""
    url = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").url
    asking = (
        f"from perfgate.conductor.sides.server.endpoints import ServerEndpoints as E; print(E({url!r}).obstacle('/'))"
    )
    proxy = {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""}
    printed = subprocess.run(
        [sys.executable, "-c", asking], env={**os.environ, **proxy}, capture_output=True, text=True, check=True
    ).stdout
    assert printed == "\n"
