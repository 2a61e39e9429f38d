"""Traces compressed with zstd or gzip: read as gzipped ones are, whole, cut off, damaged, and under the same limits."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.trace.readers import damaged
from perfgate.trace.scanner import chrome_events
from perfgate.trace.scanner.compressed import named

MODULE = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
zstd: Any = importlib.import_module(MODULE)
EVENTS = [
    {"ph": "X", "cat": "kernel", "name": f"k{n}", "pid": 0, "tid": 7, "ts": 10 * n, "dur": 4, "args": {"device": 0}}
    for n in range(2000)
]
KINETO = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": EVENTS}).encode()


def written(folder: Path, packed: bytes, name: str = "worker.pt.trace.json.zst") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed)
    return path


def names(recording: trace.Recording) -> list[str]:
    (timeline,) = recording.timelines
    return [timeline.events.names[code] for code in timeline.events.name.tolist()]


@pytest.mark.parametrize("frames", [1, 3])
def test_read__zstd_of_one_frame_or_several__as_the_plain_file(tmp_path: Path, frames: int) -> None:
    size = len(KINETO) // frames + 1
    packed = b"".join(zstd.compress(KINETO[at : at + size]) for at in range(0, len(KINETO), size))
    plain = trace.read(written(tmp_path, KINETO, "plain.json"))
    recording = trace.read(written(tmp_path, packed))
    assert recording.format == plain.format == "kineto"
    assert names(recording) == names(plain) == [event["name"] for event in EVENTS]


def test_read__folder_of_zstd_traces__each(tmp_path: Path) -> None:
    for rank in range(2):
        written(tmp_path, zstd.compress(KINETO), f"rank{rank}.pt.trace.json.zst")
    assert [timeline.rank for timeline in trace.read(tmp_path).timelines] == [0, 1]


def test_read__timeline_of_torch_npu_in_zstd__its_own_reader(tmp_path: Path) -> None:
    hardware = {"ph": "M", "name": "process_name", "pid": 3, "tid": 0, "args": {"name": "Ascend Hardware"}}
    kernel = {
        "ph": "X",
        "name": "MatMul",
        "pid": 3,
        "tid": 1,
        "ts": "10.5",
        "dur": 2.0,
        "args": {"Task Type": "AI_CORE"},
    }
    packed = zstd.compress(json.dumps([hardware, kernel]).encode())
    alone = trace.read(written(tmp_path, packed, "alone/trace_view.json.zst"))
    folder = trace.read(written(tmp_path, packed, "x_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json.zst").parents[1])
    assert (alone.format, folder.format) == ("ascend-trace-view", "ascend-pytorch")
    assert names(alone) == names(folder) == ["MatMul"]


@pytest.mark.parametrize(
    ("keep", "said"), [(0.0, "is an empty file"), (0.3, "cut off or damaged"), (0.999, "cut off or damaged")]
)
def test_read__zstd_cut_off__refused_and_salvaged(tmp_path: Path, keep: float, said: str) -> None:
    packed = zstd.compress(KINETO, options={zstd.CompressionParameter.checksum_flag: 1})
    path = written(tmp_path, packed[: int(len(packed) * keep)])
    with pytest.raises(DocumentError, match=said) as error:
        trace.read(path)
    assert path.name in str(error.value)
    if keep > 0.9:
        found = names(trace.salvage(path))
        assert found == [event["name"] for event in EVENTS][: len(found)]
    else:
        with pytest.raises(DocumentError):
            trace.salvage(path)


def test_salvage__second_frame_damaged__what_the_first_held(tmp_path: Path) -> None:
    middle = KINETO.index(b'"k700"') + 3
    first, second = (zstd.compress(part) for part in (KINETO[:middle], KINETO[middle:]))
    path = written(tmp_path, first + second[:8] + bytes(byte ^ 0x55 for byte in second[8:]))
    with pytest.raises(DocumentError, match="cut off or damaged"):
        trace.read(path)
    recording = trace.salvage(path)
    assert names(recording) == [event["name"] for event in EVENTS[:700]]
    assert recording.notes[0].code == "notes.cut-off"


def test_read__something_behind_the_last_frame__refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cut off or damaged"):
        trace.read(written(tmp_path, zstd.compress(KINETO) + b"more"))


@pytest.mark.parametrize("text", [b'{"traceEvents": [' + b" " * (1 << 21) + b"]}", bytes(1 << 21)])
def test_read__small_file_that_unpacks_to_more_than_the_limit__refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    """The limit is lowered for the test's sake, from 8 GiB."""
    for module in (chrome_events, damaged):
        monkeypatch.setattr(module, "MAX_TRACE_BYTES", 1 << 20)
    path = written(tmp_path, zstd.compress(text), "trace.json.zst")
    assert path.stat().st_size < 1 << 10
    with pytest.raises(DocumentError, match="more than 1048576 bytes of JSON; record fewer calls"):
        trace.read(path)
    with pytest.raises(DocumentError, match="more than 1048576 bytes of JSON; record fewer calls"):
        trace.salvage(path)


def test_read__window_of_a_gigabyte__refused_before_it_is_allocated(tmp_path: Path) -> None:
    window = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.enable_long_distance_matching: 1}
    compressor = zstd.ZstdCompressor(options=window)
    packed = compressor.compress(KINETO) + compressor.flush()
    with pytest.raises(DocumentError, match="cut off or damaged"):
        trace.read(written(tmp_path, packed))


def test_read__package_is_not_installed__says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, _, member = MODULE.partition(".")
    monkeypatch.setitem(sys.modules, MODULE, None)
    monkeypatch.delattr(sys.modules[package], member, raising=False)
    with pytest.raises(DocumentError, match=r"pip install 'perfgate\[zstd\]'"):
        trace.read(written(tmp_path, b"\x28\xb5\x2f\xfd"))


def test_named__pattern__with_each_end() -> None:
    assert named("*.pt.trace.json") == ("*.pt.trace.json", "*.pt.trace.json.gz", "*.pt.trace.json.zst")


def broken(packed: bytes) -> dict[str, bytes]:
    """What happens to gzipped files: cut off at any place, another byte, a sum of others."""
    return {
        "cut off in the header": packed[:5],
        "cut off": packed[: len(packed) // 2],
        "without its sum": packed[:-8],
        "another byte": packed[:40] + bytes([packed[40] ^ 255]) + packed[41:],
        "another sum": packed[:-8] + bytes(4) + packed[-4:],
        "something behind it": packed + b"no member",
    }


@pytest.mark.parametrize("library", ["isal", "zlib"])
@pytest.mark.parametrize("damage", broken(gzip.compress(KINETO)).keys())
def test_read__damaged_gzip__refused_alike_by_either_library(
    tmp_path: Path, library: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "isal":
        pytest.importorskip("isal")
    else:
        monkeypatch.setitem(sys.modules, "isal.igzip", None)
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    path = written(tmp_path, broken(gzip.compress(KINETO, mtime=0))[damage], "a.pt.trace.json.gz")
    with pytest.raises(DocumentError, match="compressed file is cut off or damaged"):
        trace.read(path)


@pytest.mark.parametrize("members", [1, 3])
def test_read__gzip_of_one_member_or_several__as_the_plain_file(tmp_path: Path, members: int) -> None:
    pytest.importorskip("isal")
    size = len(KINETO) // members + 1
    packed = b"".join(gzip.compress(KINETO[at : at + size]) for at in range(0, len(KINETO), size))
    plain = trace.read(written(tmp_path, KINETO, "plain.json"))
    assert names(trace.read(written(tmp_path, packed, "a.json.gz"))) == names(plain)
