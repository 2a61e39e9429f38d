from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from perfgate.measuring.counting.profile import ENOUGH_STALLS, locate_stalls
from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.devices.registry import open_device

ROOT = Path(__file__).parent


def test_locate_stalls__a_call_in_five_sleeps__its_line_and_enough_of_them() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            time.sleep(0.03)

    line = f"{Path(__file__).name}:{call.__code__.co_firstlineno + 4}"
    before = signal.getsignal(signal.SIGALRM)
    samples = locate_stalls(call, open_device("cpu"), SourceLines(ROOT), longer_than=0.01, calls=1000, seconds=60.0)
    assert max(samples, key=lambda name: samples[name]) == line
    assert calls == 5 * ENOUGH_STALLS
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_locate_stalls__calls_that_only_waited_for_a_cpu__no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device("cpu")
    # As if all of the time were such a wait.
    monkeypatch.setattr(device, "timer_ns", lambda: 0)
    samples = locate_stalls(
        lambda: time.sleep(0.03), device, SourceLines(ROOT), longer_than=0.01, calls=5, seconds=60.0
    )
    assert samples == {}


def test_locate_stalls__no_call_is_slow__no_sample() -> None:
    made = []
    samples = locate_stalls(
        lambda: made.append(1), open_device("cpu"), SourceLines(ROOT), longer_than=30.0, calls=50, seconds=60.0
    )
    assert samples == {}
    assert len(made) == 50
