from __future__ import annotations

import platform
from pathlib import Path

import pytest

from perfgate.document import testbed
from perfgate.document.doctor import DoctorDocument, FitnessCheck, PlantedOutcome, PlantedResult
from perfgate.errors import UsageError
from perfgate.flows.doctor.doctor import (
    choose_changes,
    exit_code,
    judge_closed,
    judge_versions,
    only_attention,
    read_device,
    read_gate,
)
from perfgate.flows.doctor.planted import CHANGES
from tests.wording import text_of


def _document(status: str = "ok", *outcomes: PlantedOutcome) -> DoctorDocument:
    planted = [
        PlantedResult(
            name="leak", title="", expected="FAIL", metric="memory.kept", verdict="FAIL", exit_code=1, fired=[],
            line=None, outcome=outcome, reason=None, seconds=1.0,
        )
        for outcome in outcomes
    ]  # fmt: skip
    fitness = [FitnessCheck(name="cpus", status=status, seen="")]  # type: ignore[arg-type]
    return DoctorDocument(perfgate_version="0", fitness=fitness, planted=planted)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (_document(), 0),
        (_document("ok", "agrees", "agrees"), 0),
        (_document("attention", "agrees"), 0),
        (_document("unavailable", "agrees"), 0),
        (_document("ok", "agrees", "differs"), 1),
        (_document("ok", "agrees", "too_busy"), 3),
        (_document("ok", "too_busy", "differs"), 1),
        (_document("unfit"), 4),
    ],
)
def test_exit_code__of_what_was_found__documented(document: DoctorDocument, code: int) -> None:
    assert exit_code(document) == code


def test_choose_changes__two_names__those_in_the_order_they_run() -> None:
    assert [change.name for change in choose_changes(("leak", "no-change"))] == ["no-change", "leak"]
    assert choose_changes(()) == CHANGES


def test_choose_changes__unknown_name__refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"no planted change 'leek'; there are no-change, work-3-percent"):
        choose_changes(("leek",))


def test_read_gate__project__its_gate_table(tmp_path: Path) -> None:
    (tmp_path / "perfgate.toml").write_text('workload = "w.py:w"\n[gate]\naa_pairs = 9\n')
    assert read_gate(tmp_path).aa_pairs == 9


@pytest.mark.parametrize(
    ("device", "required", "status"), [("cpu", True, "unfit"), ("npu", False, "unavailable"), ("npu:1", True, "unfit")]
)
def test_judge_closed__device__must_open_where_it_is_required(device: str, required: bool, status: str) -> None:
    found = judge_closed(device, "torch is not installed", required=required)
    assert (found.name, found.status, text_of(found.seen)) == (f"device {device}", status, "torch is not installed")
    assert (found.remedy is None) == (status == "unavailable")


def test_judge_closed__error_with_the_probe_in_it__not_said_twice() -> None:
    assert judge_closed("npu", "cannot import\nwhat stands in the way: …", required=True).seen == "cannot import"


@pytest.mark.parametrize(
    ("toml", "variable", "device"),
    [(None, None, "cpu"), (None, "npu:1", "npu:1"), ('device = "npu"', None, "npu"), ('device = "cuda"', "npu", "npu")],
)
def test_read_device__project_and_environment__as_a_gate_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toml: str | None, variable: str | None, device: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if variable is None:
        monkeypatch.delenv("PERFGATE_DEVICE", raising=False)
    else:
        monkeypatch.setenv("PERFGATE_DEVICE", variable)
    if toml is not None:
        (tmp_path / "perfgate.toml").write_text(f'workload = "w.py:w"\n{toml}\n')
    assert read_device(None) == device


def test_only_attention__unfit__not_for_a_device_that_opens_or_that_nobody_asks_for() -> None:
    unfit = FitnessCheck(name="npu nodes", status="unfit", seen="gone", remedy="mount them")
    assert text_of(only_attention(unfit, opens=True).seen) == "gone (the device opens nevertheless)"
    assert (only_attention(unfit, opens=False).status, only_attention(unfit, opens=False).seen) == ("attention", "gone")
    ok = FitnessCheck(name="npu nodes", status="ok", seen="all there")
    assert only_attention(ok, opens=True) == ok


@pytest.mark.parametrize(
    ("comparable", "status", "words"),
    [
        ({"python": platform.python_version(), "torch": "2.13.0"}, "ok", "torch 2.13.0"),
        ({"python": platform.python_version()}, "attention", "torch missing"),
        ({"python": "2.7.18", "torch": "2.13.0"}, "attention", "Python 2.7.18"),
        ({"python": platform.python_version(), "torch": "2", "device.driver": "25.0.rc1"}, "ok", "driver 25.0.rc1"),
    ],
)
def test_judge_versions__as_the_worker_sees_them__status(comparable: dict[str, str], status: str, words: str) -> None:
    found = judge_versions("cpu", testbed.Testbed(fingerprint="f", device_kind="cpu", comparable=comparable))
    assert found.status == status
    assert words in text_of(found.seen)
