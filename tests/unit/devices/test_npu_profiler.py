"""How torch_npu's profiler is asked, and how its files are told complete: without torch_npu."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.backends import _npu_profiler
from perfgate.measuring.devices.backends._npu_profiler import call_supported, missing_from, require_msprof
from perfgate.trace.readers.ascend.archive import pack


# Signatures as torch_npu has them: branch v2.1.0-5.0.0, 6.0.0 and the 2.13.0 wheel.
def handler_5(dir_name=None, worker_name=None, use_gzip: bool = False):
    return dir_name


def handler_6(dir_name=None, worker_name=None, analyse_flag: bool = True):
    return dir_name, analyse_flag


def handler_13(dir_name=None, worker_name=None, analyse_flag: bool = True, async_mode: bool = False):
    return dir_name, analyse_flag


def analyse_5(profiler_path: str):
    return profiler_path


def analyse_6(profiler_path: str, max_process_number: int = 4):
    return profiler_path, max_process_number


def analyse_13(profiler_path: str, max_process_number: int = 4, export_type=None):
    return profiler_path, max_process_number


class Config5:
    def __init__(self, profiler_level=0, aic_metrics=None, l2_cache=False, data_simplification=None,
                 record_op_args=False):  # fmt: skip
        self.settings = profiler_level, aic_metrics, data_simplification


class Config13:
    def __init__(self, profiler_level=0, aic_metrics=0, l2_cache=False, msprof_tx=False, mstx=False,
                 data_simplification=True, record_op_args=False, op_attr=False, gc_detect_threshold=None,
                 export_type="text", host_sys=None, mstx_domain_include=None, mstx_domain_exclude=None, sys_io=False,
                 sys_interconnection=False):  # fmt: skip
        self.settings = profiler_level, aic_metrics, data_simplification


@pytest.mark.parametrize(
    ("function", "received"), [(handler_5, "d"), (handler_6, ("d", False)), (handler_13, ("d", False))]
)
def test_call_supported__trace_handler__only_what_the_version_knows(
    function: Callable[..., object], received: object
) -> None:
    assert call_supported(function, dir_name="d", analyse_flag=False) == received


@pytest.mark.parametrize(("function", "received"), [(analyse_5, "d"), (analyse_6, ("d", 2)), (analyse_13, ("d", 2))])
def test_call_supported__analyse__only_what_the_version_knows(
    function: Callable[..., object], received: object
) -> None:
    assert call_supported(function, profiler_path="d", max_process_number=2) == received


@pytest.mark.parametrize("config", [Config5, Config13])
def test_call_supported__settings__level_and_metrics_everywhere(config: type) -> None:
    made = call_supported(config, profiler_level=1, aic_metrics=2, data_simplification=False)
    assert made.settings == (1, 2, False)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording with everything there, laid out as torch_npu 2.13 does."""
    folder = tmp_path / "host_1_20261121010105123_ascend_pt"
    results = folder / "ASCEND_PROFILER_OUTPUT"
    results.mkdir(parents=True)
    for name in ("kernel_details.csv", "op_statistic.csv", "step_trace_time.csv", "operator_details.csv"):
        (results / name).write_text("Name\nAdd\n")
    (results / "trace_view.json").write_text(json.dumps([{"ph": "M"}]))
    (results / "analyse.done").touch()
    (folder / "profiler_info.json").write_text("{}")
    (folder / "profiler_metadata.json").write_text("{}")
    (folder / "PROF_000001").mkdir()
    (folder / "PROF_000001" / "raw.bin").write_bytes(b"\0" * 100)
    return folder


def test_missing_from__everything_there__nothing(recording: Path) -> None:
    assert missing_from(recording) == []


@pytest.mark.parametrize("name", ["kernel_details.csv", "op_statistic.csv", "step_trace_time.csv", "trace_view.json"])
def test_missing_from__a_file_is_not_there_though_analyse_done_is__named(recording: Path, name: str) -> None:
    (recording / "ASCEND_PROFILER_OUTPUT" / name).unlink()

    assert missing_from(recording) == [name]


def test_missing_from__timeline_cut_off__named(recording: Path) -> None:
    (recording / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text('[{"ph": "M"}, {"ph":')

    assert missing_from(recording) == ["trace_view.json"]


def test_missing_from__never_analysed__all_of_them(tmp_path: Path) -> None:
    assert len(missing_from(tmp_path)) == 4


def test_pack__recording__what_counts_and_no_raw_data(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.zip"
    pack(recording, path)

    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {
            "profiler_info.json",
            "profiler_metadata.json",
            *(f"ASCEND_PROFILER_OUTPUT/{file.name}" for file in (recording / "ASCEND_PROFILER_OUTPUT").iterdir()),
        }
    assert sorted(tmp_path.iterdir()) == sorted([recording, path])


def test_pack__folder_that_cannot_be_written__error_and_nothing_left(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="--out"):
        pack(recording, tmp_path / "nowhere" / "trace.zip")


def test_require_msprof__not_on_path__what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MeasuringError, match=r"msprof is not on PATH.*source set_env\.sh"):
        require_msprof()


PROGRAM = """
import subprocess, sys, time
sys.stdout.write("parsing\\n")
sys.stdout.flush()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
time.sleep(60)
"""


def test_analyse__takes_too_long__ended_with_all_it_started_and_what_it_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recording: Path
) -> None:
    (tmp_path / "slow_analysis.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(_npu_profiler, "_ANALYSIS", "slow_analysis")

    with pytest.raises(MeasuringError, match=r"longer than 1 s and was ended.*It printed: parsing"):
        _npu_profiler.analyse(tmp_path, [recording], seconds=1.0)


def test_analyse__loses_a_recording_once__analysed_again_and_only_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recording: Path
) -> None:
    (tmp_path / "forgetful_analysis.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        "with Path('asked').open('a') as asked: asked.write(' '.join(sys.argv[1:]) + '\\n')\n"
        "for path in sys.argv[1:]:\n"
        "    if path.endswith('_ascend_pt'): Path(path, 'ASCEND_PROFILER_OUTPUT', 'op_statistic.csv').write_text('x')\n"
    )
    lost = recording / "ASCEND_PROFILER_OUTPUT" / "op_statistic.csv"
    lost.unlink()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(_npu_profiler, "_ANALYSIS", "forgetful_analysis")

    assert _npu_profiler.analyse(tmp_path, [recording]) == [recording]
    assert (tmp_path / "asked").read_text().splitlines() == [str(tmp_path), str(recording)]


def test_why_incomplete__analysis_that_printed__its_words(tmp_path: Path, recording: Path) -> None:
    (recording / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").unlink()
    (tmp_path / "analysis.log").write_text("Start parsing\r|\n[ERROR] Task [CANNTimelineParser] run failed.\n")

    error = _npu_profiler.why_incomplete(tmp_path, recording)

    assert "kernel_details.csv is missing" in str(error)
    assert "Task [CANNTimelineParser] run failed." in str(error)
