"""``perfgate.turn()`` in processes of its own, and the socket that it talks to."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import perfgate
from perfgate.conductor.sides.ranks.rendezvous import Peer, Rendezvous
from perfgate.system.turns import MAX_LINE, TURN_VARIABLE

LOOP = """
import perfgate, sys
assert "torch" not in sys.modules
for step in range(1000):
    perfgate.turn(loss=step / 3, samples=5)
print("the loop is over", flush=True)
assert "torch" not in sys.modules
"""


@pytest.fixture
def rendezvous(tmp_path: Path) -> Iterator[Rendezvous]:
    opened = Rendezvous(str(tmp_path))
    yield opened
    opened.close()


def start(address: str) -> subprocess.Popen[str]:
    environment = {**os.environ, TURN_VARIABLE: address, "RANK": "3"}
    return subprocess.Popen([sys.executable, "-c", LOOP], env=environment, stdout=subprocess.PIPE, text=True)


def next_line(rendezvous: Rendezvous) -> tuple[Peer, bytes | None]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for peer, line in rendezvous.lines(0.2):
            return peer, line
    raise AssertionError("nothing came")


def test_turn__no_variable__nothing_happens_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TURN_VARIABLE, raising=False)
    began = time.perf_counter()
    for step in range(10_000):
        perfgate.turn(loss=step, samples=1)
    assert time.perf_counter() - began < 1


def test_turn__no_variable__the_loop_goes_through() -> None:
    with start("") as process:
        assert process.communicate()[0] == "the loop is over\n"
    assert process.returncode == 0


def test_turn__nobody_listens__ends_without_a_word(tmp_path: Path) -> None:
    with start(str(tmp_path / "nothing")) as process:
        assert process.communicate()[0] == ""
    assert process.returncode == 0


def test_turn__granted_steps__reports_them_and_waits(rendezvous: Rendezvous) -> None:
    with start(rendezvous.address) as process:
        peer, line = next_line(rendezvous)
        assert msgspec.json.decode(line or b"") == {"rank": 3, "pid": process.pid}
        for first in (1, 4):
            peer.grant(3, trace=None)
            report = msgspec.json.decode(next_line(rendezvous)[1] or b"")
            assert len(report["steps"]) == 3
            assert report["losses"] == [(step / 3).hex() for step in range(first, first + 3)]
            assert (report["rank"], report["samples"], report["on_device"]) == (3, 15, False)
        assert list(rendezvous.lines(0.1)) == []
        rendezvous.close()
        assert process.communicate(timeout=20)[0] == ""
    assert process.returncode == 0


def test_exit_code__killed__its_signal(rendezvous: Rendezvous) -> None:
    with start(rendezvous.address) as process:
        peer, _ = next_line(rendezvous)
        peer.pid = process.pid
        process.send_signal(signal.SIGKILL)
        assert next_line(rendezvous) == (peer, None)
        assert peer.exit_code() == -9
        process.wait()
        assert peer.exit_code() == (-9 if _tells_of_the_reaped() else None)


def _tells_of_the_reaped() -> bool:
    """Whether the kernel is of Linux 6.15 or newer."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 15)


def test_lines__one_without_an_end__is_refused(rendezvous: Rendezvous) -> None:
    with socket.socket(socket.AF_UNIX) as hostile:
        hostile.connect(rendezvous.address)
        hostile.settimeout(0.2)
        refused = None
        for _ in range(100):
            with suppress(OSError):
                hostile.send(b"x" * (MAX_LINE // 8))
            refused = next(iter(rendezvous.lines(0.2)), refused)
            if refused:
                break
        assert refused is not None
        assert refused[1] is None


@pytest.mark.parametrize("is_all_long", [False, True])
def test_address__folder_of_a_long_name__still_one_that_can_be_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_all_long: bool
) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    if is_all_long:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
    rendezvous = Rendezvous(str(folder))
    assert Path(rendezvous.address).is_socket()
    rendezvous.close()
    assert not Path(rendezvous.address).parent.exists()
