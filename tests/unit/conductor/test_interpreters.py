"""The probe's process and what becomes of its answer; interpreters that answer otherwise are scripts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perfgate.conductor.workers.interpreters import explain_closed, is_absent, probe_device
from perfgate.document.doctor import FitnessCheck
from tests.wording import text_of

UNFIT = FitnessCheck(name="npu libraries", status="unfit", seen="no libhccl.so", remedy="source set_env.sh")
ABSENT = FitnessCheck(name="device npu", status="unavailable", seen="no Ascend device")
OK = FitnessCheck(name="npu blocking", status="ok", seen="not set")


def interpreter(folder: Path, script: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_probe_device__this_interpreter__its_checks(tmp_path: Path) -> None:
    assert probe_device(Path(sys.executable), "cpu", dict(os.environ), cwd=tmp_path) == []
    found = probe_device(Path(sys.executable), "npu", dict(os.environ), cwd=tmp_path)
    assert found
    assert all("npu" in check.name for check in found)


def test_probe_device__words_around_the_answer__the_last_line_counts(tmp_path: Path) -> None:
    python = interpreter(tmp_path, """echo '[1]'; echo '[{"name":"a","status":"ok","seen":"b"}]'; echo noise >&2""")
    assert probe_device(python, "npu", {}, cwd=tmp_path) == [FitnessCheck(name="a", status="ok", seen="b")]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'ModuleNotFoundError: No module named msgspec' >&2; exit 1", "No module named msgspec"),
        ("echo '[]'; echo goodbye", "goodbye"),
        ("kill -9 $$", "the probe of npu failed"),
    ],
)
def test_probe_device__no_answer__unavailable_with_the_reason(tmp_path: Path, script: str, words: str) -> None:
    (check,) = probe_device(interpreter(tmp_path, script), "npu", {"PATH": "/bin"}, cwd=tmp_path)
    assert check.status == "unavailable"
    assert words in text_of(check.seen)


def test_probe_device__no_interpreter__unavailable(tmp_path: Path) -> None:
    (check,) = probe_device(tmp_path / "gone", "npu", {}, cwd=tmp_path)
    assert (check.name, check.status) == ("probe npu", "unavailable")


def test_explain_closed__something_in_the_way__below_the_first_line() -> None:
    text = explain_closed("cannot import torch\nTraceback:\n  …", "npu:1", [OK, UNFIT])
    assert text == (
        "cannot import torch\nwhat stands in the way of device 'npu:1':\n"
        "- npu libraries: no libhccl.so; source set_env.sh\nTraceback:\n  …"
    )


def test_explain_closed__device_not_there_or_nothing_wrong__said_or_unchanged() -> None:
    assert explain_closed("no", "npu:1", [ABSENT]).splitlines()[-1] == "- device npu: no Ascend device"
    assert explain_closed("no\nmore", "npu", [OK]) == "no\nmore"


def test_is_absent__kind_of_an_indexed_device__told() -> None:
    assert is_absent("npu:3", [ABSENT])
    assert not is_absent("npu", [OK, UNFIT])
