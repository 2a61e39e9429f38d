"""The clock of a GPU is locked while it is measured, and unlocked after every end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.measuring.devices.clock_lock import locked_clock
from perfgate.measuring.devices.monitors.cuda import FIELDS
from tests.waiting import wait_until

UUID = "GPU-5a1c"
# A stand-in that answers as nvidia-smi of driver 580 does, and writes what it was asked to do.
TOOL = """#!/bin/sh
case "$*" in
  *--query-gpu*) echo "{row}";;
  *--lock-gpu-clocks*) {lock};;
  *--reset-gpu-clocks*) echo "$*" >> {log}; echo "All done.";;
esac
"""
LOCKS = 'echo "$*" >> {log}; echo "GPU clocks set to \\"(gpuClkMin 1200, gpuClkMax 1200)\\" for GPU 00000000:1B:00.0"'
REFUSES = 'echo "The current user does not have permission to change clocks for GPU 00000000:1B:00.0."'
LOCKED = f"-i {UUID} --lock-gpu-clocks=1200,1200"
UNLOCKED = f"-i {UUID} --reset-gpu-clocks"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "asked"


def install(folder: Path, log: Path, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"index": "0", "uuid": UUID, "name": "GPU"}
    row = ", ".join(values.get(field, "[N/A]") for field in FIELDS)
    tool = folder / "nvidia-smi"
    tool.write_text(TOOL.format(row=row, log=log, lock=lock.format(log=log)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def asked(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_locked_clock__normal_end__unlocked(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, log, LOCKS, monkeypatch)
    notes: list[str] = []

    with locked_clock("cuda", 1200, say=notes.append):
        assert asked(log) == [LOCKED]

    assert asked(log) == [LOCKED, UNLOCKED]
    assert notes == []


def test_locked_clock__exception__unlocked(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, log, LOCKS, monkeypatch)

    with pytest.raises(KeyboardInterrupt), locked_clock("cuda", 1200, say=print):
        raise KeyboardInterrupt

    assert asked(log) == [LOCKED, UNLOCKED]


def test_locked_clock__process_is_killed__unlocked(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, log, LOCKS, monkeypatch)
    program = (
        "import time\n"
        "from perfgate.measuring.devices.clock_lock import locked_clock\n"
        "with locked_clock('cuda', 1200, say=print):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        process.send_signal(signal.SIGKILL)

    wait_until(lambda: asked(log) == [LOCKED, UNLOCKED])


def test_locked_clock__not_permitted__noted_and_measured_all_the_same(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, log, REFUSES, monkeypatch)
    notes: list[str] = []

    with locked_clock("cuda", 1200, say=notes.append):
        pass

    assert len(notes) == 1
    assert "does not have permission to change clocks" in notes[0]


@pytest.mark.parametrize("device", ["cpu", "npu", "card"])
def test_locked_clock__no_tool_fixes_it__noted(device: str) -> None:
    notes: list[str] = []

    with locked_clock(device, 1200, say=notes.append):
        pass

    assert notes == [f"the clock is not locked: no tool locks the clock of {device}"]


def test_locked_clock__not_configured__nothing_is_asked(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, log, LOCKS, monkeypatch)

    with locked_clock("cuda", 0, say=print):
        pass

    assert asked(log) == []
