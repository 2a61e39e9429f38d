"""Workers and fork servers that a signal stops: it is seen, and costs no more than the pair in which it happens."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from perfgate import protocol
from perfgate.conductor.workers import worker as workers
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import ServerKey
from perfgate.conductor.workers.worker import ForkServer, WorkerError
from perfgate.document.message import as_message
from perfgate.system.processes import is_stopped

TESTBED = protocol.TestbedRequest(device="cpu", threads=1)


def server_of(bench: Bench) -> ForkServer:
    return bench.servers.get(ServerKey())


def test_times_stopped__stopped_for_a_moment__is_known(bench: Bench) -> None:
    with bench.own_worker(None, "stopped") as worker:
        worker.ask(TESTBED, protocol.TestbedReply, timeout=120, doing="asking")
        assert worker.times_stopped() == 0
        deadline = time.monotonic() + 60
        os.kill(worker.pid, signal.SIGSTOP)
        while not is_stopped(worker.pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(worker.pid, signal.SIGCONT)
        while not worker.times_stopped() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert worker.times_stopped() >= 1
        worker.ask(TESTBED, protocol.TestbedReply, timeout=120, doing="asking")


def test_ask__worker_stopped_for_good__ended_and_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STOPPED_SECONDS", 1.0)
    with bench.own_worker(None, "stopped") as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(WorkerError, match="a signal stopped the worker"):
            worker.ask(TESTBED, protocol.TestbedReply, timeout=600, doing="asking")


def test_fork__server_is_stopped__ended_and_no_other_takes_its_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = server_of(bench)
    with monkeypatch.context() as patched:
        patched.setattr(workers, "FORK_SECONDS", 1.0)
        os.kill(stopped.process.pid, signal.SIGSTOP)
        with pytest.raises(WorkerError) as raised, bench.own_worker(None, "stopped"):
            pass
    message = as_message(raised.value.detail.message)
    assert (message.code, message.values["state"]) == ("worker.server-silent", " (state T (stopped))")
    assert not Path(f"/proc/{stopped.process.pid}").exists()
    refuses_workers(bench)


def test_fork__server_was_killed__ended_by_name_even_where_a_new_one_is_due(bench: Bench) -> None:
    os.kill(server_of(bench).process.pid, signal.SIGKILL)
    server_of(bench).process.wait()
    bench.servers.redraw(hash_seed=1)
    refuses_workers(bench)


def refuses_workers(bench: Bench) -> None:
    with pytest.raises(WorkerError) as raised:
        bench.testbed()
    message = as_message(raised.value.detail.message)
    assert (message.code, message.values["signal"]) == ("worker.server-killed", "SIGKILL")
