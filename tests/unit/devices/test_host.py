"""Running a vendor's tool: what it printed, whatever its exit code; and never for ever."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.reading import read_telemetry
from perfgate.measuring.devices.host import Host, find_program, package_folder, package_version, run_tool

DATA = Path(__file__).parents[2] / "data" / "npu_smi"


def tool(folder: Path, script: str, name: str = "npu-smi") -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_run_tool__fails_with_words__both_streams_are_the_answer(folder: Path) -> None:
    tool(folder, 'echo "asked $*"; echo "dcmi module initialize failed. ret is -8005" >&2; exit 255')
    answer = run_tool(["npu-smi", "info", "-m"])
    assert answer == "asked info -m\ndcmi module initialize failed. ret is -8005\n"


def test_run_tool__not_there__where_it_was_looked_for(folder: Path) -> None:
    with pytest.raises(MeasuringError, match="no-such-smi is neither on PATH nor in /usr/local/bin"):
        run_tool(["no-such-smi"])


def test_run_tool__never_ends__refused_in_time(folder: Path) -> None:
    tool(folder, "exec sleep 60")
    with pytest.raises(MeasuringError, match=r"npu-smi info did not answer within 0\.2 s"):
        run_tool(["npu-smi", "info"], timeout=0.2)


def test_run_tool__not_a_program__refused(folder: Path) -> None:
    (folder / "npu-smi").write_bytes(b"\x7fELF nonsense")
    (folder / "npu-smi").chmod(0o755)
    with pytest.raises(MeasuringError, match="cannot be started"):
        run_tool(["npu-smi", "info"])


def test_run_tool__endless_words__cut(folder: Path) -> None:
    tool(folder, "head -c 3000000 /dev/zero")
    assert len(run_tool(["npu-smi"])) == 1 << 20


def test_read_telemetry__through_a_real_process__its_words(folder: Path) -> None:
    tool(
        folder,
        f"""case "$*" in
        "info -m") cat "{DATA}/map_a3.txt";;
        info) cat "{DATA}/info_a3.txt"; exit 1;;
        *) cat "{DATA}/help.txt"; exit 255;;
        esac""",
    )
    found = read_telemetry(2, environ={})
    assert (found.power, found.temperature, found.health) == (166.5, 37.0, "OK")


def test_find_program__environment__its_path_and_not_ours(folder: Path, tmp_path: Path) -> None:
    tool(folder, "true")
    assert find_program("npu-smi", {"PATH": str(folder)}) == folder / "npu-smi"
    assert find_program("npu-smi", {"PATH": "/nowhere"}) in (None, Path("/usr/local/bin/npu-smi"))


def test_packages__installed_or_not__version_and_folder() -> None:
    assert package_version("no-such-package") is None
    assert package_folder("no-such-package") is None
    assert (package_version("pytest") or "").count(".") >= 1
    assert str(package_folder("pytest")) in {str(Path(entry)) for entry in sys.path}


def test_host__below__under_its_root(tmp_path: Path) -> None:
    assert Host(root=tmp_path).below("/usr/local/Ascend") == tmp_path / "usr/local/Ascend"
