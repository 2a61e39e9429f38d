"""What the kernel tells of a process from outside, held against what the process does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.conductor.workers.proc_stats import (
    cpu_ns,
    process_family,
    run_delay_ns,
    thread_settings,
    wait_asleep,
    waited_share,
)

# Works for 0.2 s of CPU time of its own, and lets a child do the same before it; then both wait.
PARENT = """
import subprocess, sys, time
work = "import time\\nwhile time.process_time() < 0.2: pass\\nprint('done', flush=True)\\ntime.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE)
child.stdout.readline()
while time.process_time() < 0.2: pass
print("done", flush=True)
time.sleep(60)
"""

# Answers every byte with a byte, works a little more, and waits for the next.
WORKER = """
import os
while os.read(0, 1):
    os.write(1, b"d")
    sum(range(20_000))
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        yield parent
        os.killpg(parent.pid, 9)


def test_cpu_ns__process_and_its_child__both_and_nothing_while_they_wait(family: subprocess.Popen[bytes]) -> None:
    while not all(map(_sleeps, process_family(family.pid))):
        time.sleep(0.01)
    used = cpu_ns(family.pid)
    assert used >= 400_000_000
    time.sleep(0.05)
    assert cpu_ns(family.pid) == used


def test_wait_asleep__worker_that_has_answered__sleeps() -> None:
    # Seen: most of a turn of 3 ms was booked after it, at the next tick, and an honest head "went on working".
    with subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        asleep = 0
        for _ in range(50):
            os.write(worker.stdin.fileno(), b"?")
            os.read(worker.stdout.fileno(), 1)
            wait_asleep(worker.pid)
            asleep += _sleeps(worker.pid)
        worker.stdin.close()
    # Where others want the CPUs, a worker may wait for one longer than we wait for it.
    assert asleep >= 25


def test_wait_asleep__process_that_never_sleeps_or_is_gone__returns() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        wait_asleep(busy.pid)
        busy.kill()
    wait_asleep(busy.pid)


def _sleeps(pid: int) -> bool:
    """Return whether a process waits for something (proc(5), /proc/pid/stat, the third field)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_outside__process_that_is_gone__no_error() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        ended.wait()
    assert cpu_ns(ended.pid) == 0
    assert thread_settings(ended.pid) == {}
    assert run_delay_ns(ended.pid) is None


def test_thread_settings__this_process__what_it_says_itself() -> None:
    settings = thread_settings(os.getpid())
    assert settings["allowed CPUs"] == ",".join(map(str, sorted(os.sched_getaffinity(0))))
    assert settings["nice value"] == str(os.getpriority(os.PRIO_PROCESS, 0))
    assert settings["scheduler"] == "other"


def test_waited_share__delay_over_what_the_step_took__none_where_the_kernel_does_not_say() -> None:
    assert waited_share(1_000, 761_000, 1_000_000) == 0.76
    assert waited_share(None, 1, 1_000) is None
    assert waited_share(1, None, 1_000) is None
