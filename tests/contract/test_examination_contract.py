"""What every examination must do, on machines that have nothing, something and everything of its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.errors import MeasuringError
from perfgate.measuring.devices import monitors
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.registry import device_kinds, examine_device, monitored_kinds
from perfgate.plugins import load_member

# A CPU has nothing to examine.
pytestmark = pytest.mark.parametrize("kind", [kind for kind in monitored_kinds() if kind != "cpu"])


def host(root: Path, *programs: str, answer: str = "") -> Host:
    return Host(
        environ={},
        root=root,
        run=lambda command: answer,
        version=lambda name: None,
        package_folder=lambda name: None,
        find_program=lambda name, environ: root / name if name in programs else None,
    )


def test_member__its_module__is_named_by_its_kind_and_has_a_backend(kind: str) -> None:
    member = load_member(monitors, kind)
    assert kind == member.KIND
    assert kind in device_kinds()


def test_examine__nothing_there__one_line_says_so(kind: str, tmp_path: Path) -> None:
    (check,) = examine_device(kind, host(tmp_path))
    assert (check.name, check.status, check.remedy) == (f"device {kind}", "unavailable", None)


@pytest.mark.parametrize("answer", ["", "Usage: smi", "\0\0|,:", "0, 1, 2\n" * 1000, "| 0 | 1 |\n" * 1000])
def test_examine__tool_that_talks_nonsense__checks_and_never_ok_for_it(kind: str, tmp_path: Path, answer: str) -> None:
    found = examine_device(kind, host(tmp_path, "npu-smi", "nvidia-smi", answer=answer))
    assert {check.name: check.status for check in found}[f"{kind} card"] == "unavailable"


def test_examine__tool_that_does_not_run__unavailable(kind: str, tmp_path: Path) -> None:
    def run(command: object) -> str:
        raise MeasuringError("the tool did not answer within 20 s")

    machine = host(tmp_path, "npu-smi", "nvidia-smi")
    found = examine_device(kind, Host(environ={}, root=tmp_path, run=run, version=machine.version,
                                      package_folder=machine.package_folder, find_program=machine.find_program))  # fmt: skip
    (card,) = [check for check in found if check.name == f"{kind} card"]
    assert (card.status, card.seen) == ("unavailable", "the tool did not answer within 20 s")


def test_examine__this_very_machine__every_complaint_has_a_remedy(kind: str) -> None:
    for check in examine_device(kind, Host()):
        assert check.remedy if check.status in ("attention", "unfit") else check.seen
