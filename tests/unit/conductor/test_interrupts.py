from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from perfgate.system.interrupts import SIGNALS, held_back, install, interrupt, safe_point


def test_held_back__ctrl_c_in_the_middle__work_goes_on_and_the_end_raises() -> None:
    done = []

    def work() -> None:
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("still here")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["still here"]


def test_safe_point__signal_has_arrived__raises_there_and_cleaning_up_is_not_disturbed() -> None:
    done = []

    def work() -> None:
        with held_back(), held_back():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                safe_point()
                done.append("not reached")
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                done.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["cleaned up"]


def test_held_back__nothing_happens__handlers_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with held_back():
        assert signal.getsignal(signal.SIGTERM) is not before
        safe_point()
    assert signal.getsignal(signal.SIGTERM) is before


def test_held_back__ignored_signal__stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        with held_back():
            os.kill(os.getpid(), signal.SIGHUP)
            safe_point()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_held_back__another_thread__does_nothing() -> None:
    found = []

    def work() -> None:
        with held_back():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


@pytest.fixture
def _handlers_put_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_handlers_put_back")
def test_held_back__interruption_was_swallowed_before__raised_at_the_entry() -> None:
    install()
    with suppress(KeyboardInterrupt):  # as an import with a fallback for everything would
        interrupt(signal.SIGTERM, None)
    entered = []
    with pytest.raises(KeyboardInterrupt), held_back():
        entered.append("not reached")
    assert entered == []


@pytest.mark.usefixtures("_handlers_put_back")
def test_held_back__interruption_on_its_way_out__cleaning_up_is_let_be() -> None:
    install()
    cleaned = []

    def work() -> None:
        try:
            interrupt(signal.SIGINT, None)
        finally:
            with held_back():
                cleaned.append("up")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned == ["up"]
