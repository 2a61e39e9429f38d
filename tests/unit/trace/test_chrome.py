"""Plain Chrome traces: begun and ended spans nest, and a small file that unpacks to a huge one is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.trace.analysis.gaps import device_gaps
from perfgate.trace.model.events import DEVICE_KINDS
from perfgate.trace.readers.contradictions import contradictions
from perfgate.trace.readers.formats import chrome
from perfgate.trace.scanner import chrome_events
from tests.wording import text_of


def spans(folder: Path, events: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return start and duration in nanoseconds of every span, by name."""
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    (timeline,) = chrome.read(path).timelines
    table = timeline.events
    return {
        table.names[name]: (int(start), int(duration))
        for name, start, duration in zip(table.name, table.start, table.duration)
    }


def event(phase: str, at: int, name: str = "", thread: int = 1) -> dict[str, Any]:
    return {"ph": phase, "ts": at, "name": name, "pid": 1, "tid": thread, "cat": "cpu_op"}


def test_read__begun_and_ended_spans__an_end_closes_what_its_thread_began_last(tmp_path: Path) -> None:
    found = spans(
        tmp_path,
        [
            event("B", 0, "forward"),
            event("B", 10, "attention"),
            event("B", 12, "elsewhere", thread=2),
            event("B", 20, "softmax"),
            event("E", 25),
            event("E", 40),
            event("E", 50, thread=2),
            event("B", 60, "mlp"),
            event("E", 90),
            event("E", 100),
        ],
    )
    assert found == {
        "forward": (0, 100_000),
        "attention": (10_000, 30_000),
        "softmax": (20_000, 5_000),
        "mlp": (60_000, 30_000),
        "elsewhere": (12_000, 38_000),
    }


def test_read__begun_and_never_ended__left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([event("B", 0, "forward"), event("B", 5, "softmax"), event("E", 7)]))
    recording = chrome.read(path)
    assert text_of(recording.absent["spans"]) == "1 spans began but never ended, and are left out"


def test_event_lists__small_file_that_unpacks_to_more_than_the_limit__refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is lowered for the test's sake, from 8 GiB."""
    monkeypatch.setattr(chrome_events, "MAX_TRACE_BYTES", 1 << 20)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (1 << 21) + b"]}"))
    assert path.stat().st_size < 1 << 14
    refused = pytest.raises(DocumentError, match=r"more than 1048576 bytes of JSON; record fewer calls")
    with chrome_events.TraceText(path) as text, refused:
        list(chrome_events.event_lists(text, chrome_events.ChromeEvent, advice=None))


def test_event_lists__just_the_limit__read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [event("X", 1, "mm")]}))
    monkeypatch.setattr(chrome_events, "MAX_TRACE_BYTES", path.stat().st_size)
    with chrome_events.TraceText(path) as text:
        (events,) = chrome_events.event_lists(text, chrome_events.ChromeEvent, advice=None)
    assert [found.name for found in events] == ["mm"]


def test_read__category_npu_and_threads_named_after_streams__a_device(tmp_path: Path) -> None:
    """The format of the checklist's own traces: kernels have the category NPU, and their stream is the thread."""
    path = tmp_path / "trace.json"
    events = [
        {"ph": "X", "cat": "CPU", "name": "ProfilerStep#1", "pid": 0, "tid": 1, "ts": 0, "dur": 100},
        {"ph": "X", "cat": "NPU", "name": "MatMulV2", "pid": 0, "tid": 7, "ts": 10, "dur": 30},
        {"ph": "X", "cat": "NPU", "name": "hcom_allReduce__1_0_1", "pid": 0, "tid": 8, "ts": 45, "dur": 5},
        {"ph": "X", "cat": "NPU", "name": "MEMCPY_ASYNC", "pid": 0, "tid": 9, "ts": 55, "dur": 5},
    ]
    path.write_text(json.dumps({"traceEvents": events}))

    (timeline,) = trace.read(path).timelines

    (step,) = timeline.steps or ()
    assert (step.length_ns, step.computing_ns, step.exposed_communication_ns) == (60_000, 30_000, 5_000)
    assert (step.exposed_copies_ns, step.preparing_ns, step.free_ns) == (5_000, 10_000, 10_000)
    gaps = device_gaps(timeline.events)
    assert gaps is not None
    assert (gaps.busy_ns, len(gaps.gaps)) == (40_000, 2)
    run = run_from_profile(tmp_path, path, tmp_path / "out", lambda text: None, keep_files=False)
    assert run.checklist.counters[0].values["counters.kernels"] == 1


def test_read__devices_named_gpu0_and_gpu1__one_timeline_each(tmp_path: Path) -> None:
    """As rpd2tracing.py of rocmProfileData writes them: ids and times are texts, and the first event is empty."""
    events: list[dict[str, Any]] = [{}]
    for device in ("0", "1"):
        events.append({"ph": "M", "name": "process_name", "pid": device, "args": {"name": f"GPU{device}"}})
        kernel = {"ph": "X", "pid": device, "tid": "0", "name": "Cijk_Ailk", "ts": "110.500", "dur": "50.25"}
        events.append({**kernel, "args": {"desc": "gemm"}})
    events.append({"ph": "X", "pid": "42", "tid": "42", "name": "hipLaunchKernel", "ts": "100.0", "dur": "2.0"})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))

    timelines = trace.read(path).timelines

    assert [timeline.device for timeline in timelines] == [0, 1]
    for timeline in timelines:
        assert timeline.events.duration[timeline.events.is_work].tolist() == [50_250]


def of_xla(process: str, rows: dict[str, list[tuple[str, float, float]]]) -> list[dict[str, Any]]:
    """The rows of a device in microseconds, as xprof's trace viewer writes them."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 3, "args": {"name": process}}]
    for thread, (row, spans_of_row) in enumerate(rows.items()):
        events.append({"ph": "M", "name": "thread_name", "pid": 3, "tid": thread, "args": {"name": row}})
        for name, start, duration in spans_of_row:
            events.append({"ph": "X", "name": name, "pid": 3, "tid": thread, "ts": start, "dur": duration})
    return events


def test_top__rows_derived_from_a_stream_of_xla__are_no_work(tmp_path: Path) -> None:
    """Modelled on TraceLens' tests/traces/mi300/jax_conv_minimal_08, converted by xprof 2.24."""
    rows: dict[str, list[tuple[str, float, float]]] = {
        "Stream #16(Kernel)": [("Cijk_Alik.kd", 10, 5), ("Im3d2Col.kd", 20, 2)],
        "Framework Name Scope - from #16": [("jit", 10, 90)],
        "Framework Ops - from #16": [("conv_general_dilated", 10, 12)],
        "XLA Modules - from #16": [("jit_forward_3d_conv", 10, 92)],
        "XLA Ops - from #16": [("cudnn-conv.1", 10, 12)],
        "Source code - from #16": [("generate_conv_trace.py:23", 10, 90)],
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": of_xla("/device:GPU:0", rows)}))

    (timeline,) = chrome.read(path).timelines

    totals = {row.name: row.total_ns for row in trace.top(timeline, by="type", host=False).rows}
    assert totals == {"Cijk_Alik.kd": 5000, "Im3d2Col.kd": 2000}


def test_top__loop_of_a_tpu_and_operations_of_nanoseconds__the_operations_count(tmp_path: Path) -> None:
    ops = [("while.1", 10.0, 8.0), ("fusion.2", 10.5, 3.0), ("bitcast.3", 14.0, 0.002), ("copy.4", 30.0, 1.0)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": of_xla("/device:TPU:0", {"XLA Ops": ops})}))

    (timeline,) = chrome.read(path).timelines

    totals = {row.name: row.total_ns for row in trace.top(timeline, by="type", host=False).rows}
    assert totals == {"fusion.2": 3000, "bitcast.3": 2, "copy.4": 1000}
    assert contradictions(timeline) == []


def test_read__timeline_of_tensorflow_1__work_of_the_streams_alone(tmp_path: Path) -> None:
    """Modelled on tensorflow/python/client/timeline.py: a process for the device, for all its streams and for each."""
    task = "/job:localhost/replica:0/task:0"
    processes = (f"{task}/device:CPU:0", f"{task}/device:GPU:0", "/device:GPU:0/stream:all", "/device:GPU:0/stream:13")
    events: list[dict[str, Any]] = []
    for pid, name in enumerate(processes):
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"{name} Compute"}})
        events.append({"ph": "X", "cat": "Op", "name": "MatMul", "pid": pid, "tid": 0, "ts": 100 + pid, "dur": 50})
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps({"traceEvents": events}))

    (timeline,) = trace.read(path).timelines

    assert timeline.device == 0
    work = timeline.events.select(timeline.events.is_work)
    assert [
        (timeline.events.tracks[track], start) for track, start in zip(work.track.tolist(), work.start.tolist())
    ] == [(("3", "0"), 103_000)]


def test_read__folder_of_traces_with_any_names__all_of_them(tmp_path: Path) -> None:
    for name in ("first.json", "second.json"):
        (tmp_path / name).write_text(json.dumps({"traceEvents": [{**event("X", 10, "a"), "cat": "render", "dur": 5}]}))
    (tmp_path / "settings.json").write_text('{"traces": 2}')

    assert len(trace.read(tmp_path).timelines) == 2


def test_read__logdir_of_jax__the_trace_in_its_only_folder(tmp_path: Path) -> None:
    """As jax.profiler.trace writes it: a profile of XLA and a trace, below plugins/profile and the date."""
    folder = tmp_path / "plugins" / "profile" / "2026_11_30_10_28_12"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(b"\x0a\x10")
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": [{**event("X", 10, "train"), "dur": 5}, {}]})
    (folder / "host.trace.json.gz").write_bytes(gzip.compress(text.encode()))

    (timeline,) = trace.read(tmp_path).timelines

    assert timeline.events.names[timeline.events.name[0]] == "train"
    other = folder.with_name("2026_11_30_10_30_00")
    other.mkdir()
    (other / "host.trace.json.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DocumentError, match=r"several folders .* plugins/profile/2026_11_30_10_28_12, plugins/"):
        trace.read(tmp_path)


def test_read__folder_in_which_one_trace_lost_ends__said_with_its_name(tmp_path: Path) -> None:
    whole = {**event("X", 10, "a"), "cat": "render", "dur": 5}
    (tmp_path / "first.json").write_text(json.dumps({"traceEvents": [whole]}))
    (tmp_path / "second.json").write_text(json.dumps({"traceEvents": [whole, {**whole, "ph": "B", "ts": 20}]}))

    absent = trace.read(tmp_path).absent

    assert {part: reason.code for part, reason in absent.items()} == {
        "device": "notes.no-device-named",
        "spans of second.json": "notes.unended-spans",
    }


def test_read__no_row_named_after_a_device__said(tmp_path: Path) -> None:
    """Modelled on MindSpore's ascend_timeline_display_1.json: stream 519 of device 1, both without a name."""
    path = tmp_path / "ascend_timeline_display_1.json"
    path.write_text(json.dumps([{"name": "MatMul-op19", "ph": "X", "tid": "519", "ts": 6042.5, "dur": 3.1, "pid": 1}]))

    recording = trace.read(path)

    assert text_of(recording.absent["device"]).startswith("no process or thread of the trace is named after a device")


def test_read__gpu_process_of_a_browser__runs_on_the_host(tmp_path: Path) -> None:
    """Modelled on catapult's tracing/test_data/lthi_cats.json.gz."""
    name = {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "GPU Process"}}
    task = {**event("X", 10, "MessageLoop::RunTask"), "cat": "toplevel", "dur": 5}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [name, task]}))

    (timeline,) = chrome.read(path).timelines

    assert timeline.device is None
    assert not timeline.events.is_kind(*DEVICE_KINDS).any()


@pytest.mark.parametrize(("last", "codes"), [({}, []), ({"ph": "Z", "ts": 20}, ["notes.unknown-phases"])])
def test_read__empty_event_at_the_end_of_the_list__is_no_loss(
    tmp_path: Path, last: dict[str, Any], codes: list[str]
) -> None:
    """JAX ends its list with {}, behind a comma."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{**event("X", 10, "a"), "dur": 5}, last]}))

    (timeline,) = chrome.read(path).timelines

    assert [note.code for note in timeline.losses] == codes
