"""Signs of loss in files that can be read: numbers, launches, nesting and arrows of events that are not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.flows.trace.diff import trace_diff
from perfgate.flows.trace.gathering import Place, trace_reduce
from perfgate.flows.trace.ranks import trace_ranks
from perfgate.flows.trace.trace import Choice
from perfgate.trace.model.events import CALL
from perfgate.trace.readers.contradictions import contradictions, possible_losses
from perfgate.trace.scanner import library

STEPS, OPERATORS = 4, 3
Event = dict[str, Any]


def kineto(*, pid: int = 100, first: int = 0) -> list[Event]:
    """Steps of an operator, its launch and its kernel, as torch.profiler writes them."""
    events: list[Event] = []
    number = first
    for step in range(STEPS):
        begin = 1000.0 * step + 0.125
        span = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": pid, "tid": pid}
        events.append({**span, "ts": begin, "dur": 900, "args": {"Ev Idx": len(events) // 4 + 1000}})
        for place in range(OPERATORS):
            at = begin + 200 * place
            index = OPERATORS * step + place
            number += 1
            linked = {"correlation": number, "External id": number}
            thread = {"ph": "X", "pid": pid, "tid": pid}
            operator = {**thread, "cat": "cpu_op", "name": f"aten::mm_{place}", "ts": at + 1, "dur": 100}
            events.append({**operator, "args": {"External id": number, "Ev Idx": index}})
            launch = {**thread, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 2, "dur": 5}
            events.append({**launch, "args": linked})
            kernel = {"ph": "X", "cat": "kernel", "name": f"gemm_{place}", "pid": 0, "tid": 7, "ts": at + 20, "dur": 50}
            events.append({**kernel, "args": {**linked, "device": 0, "stream": 7}})
    for event in events:
        # The steps are numbered behind the operators.
        if event["cat"] == "user_annotation":
            event["args"]["Ev Idx"] = STEPS * OPERATORS + int(event["name"].partition("#")[2])
    return events


def codes_of(path: Path, events: list[Event]) -> list[str]:
    """The codes of the contradictions in a file of these events."""
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (timeline,) = trace.read(path).timelines
    return [note.code for note in contradictions(timeline)]


def chosen(events: list[Event], category: str, number: int) -> int:
    places = [place for place, event in enumerate(events) if event["cat"] == category]
    return places[number]


def test_losses__intact_file__none(tmp_path: Path) -> None:
    assert codes_of(tmp_path / "t.pt.trace.json", kineto()) == []


@pytest.mark.parametrize(
    ("category", "codes"),
    [
        ("cpu_op", ["notes.indices-differ", "notes.operators-missing"]),
        ("kernel", ["notes.launches-unmatched"]),
        ("cuda_runtime", ["notes.launches-unmatched"]),
    ],
)
def test_losses__an_event_is_gone__said(category: str, codes: list[str], tmp_path: Path) -> None:
    events = kineto()
    del events[chosen(events, category, 4)]

    assert codes_of(tmp_path / "t.pt.trace.json", events) == codes


def test_losses__any_operator_call_or_kernel_but_those_of_the_ends__said_if_it_is_gone_or_twice(tmp_path: Path) -> None:
    events = kineto()
    inner = [event for event in events if event["cat"] != "user_annotation"][3:-3]
    for event in inner:
        without = [other for other in events if other is not event]
        assert codes_of(tmp_path / "gone.pt.trace.json", without) != [], event
        if event["cat"] != "cuda_runtime":
            assert codes_of(tmp_path / "twice.pt.trace.json", [*events, event]) != [], event


def test_losses__an_event_twice__said(tmp_path: Path) -> None:
    events = kineto()
    operator = chosen(events, "cpu_op", 4)
    kernel = chosen(events, "kernel", 6)

    assert codes_of(tmp_path / "a.pt.trace.json", [*events, events[operator]]) == [
        "notes.indices-differ",
        "notes.events-repeated",
    ]
    assert codes_of(tmp_path / "b.pt.trace.json", [*events, events[kernel]]) == [
        "notes.overlapping-work",
        "notes.launches-repeated",
        "notes.events-repeated",
    ]


def test_losses__an_operator_with_the_whole_microseconds_of_its_caller__none(tmp_path: Path) -> None:
    """aten::zeros called aten::zeros in 2022, and both took 4 us (modelled on HTA's trace_diff/control.json.gz)."""
    events = kineto()
    inner = json.loads(json.dumps(events[chosen(events, "cpu_op", 4)]))
    inner["args"]["External id"] = 400
    for event in [*events, inner]:
        event["ts"] = int(event["ts"])
        event["args"].pop("Ev Idx", None)

    assert codes_of(tmp_path / "t.pt.trace.json", [*events, inner]) == []


def test_losses__an_operator_of_any_library_lasts_into_the_next__said(tmp_path: Path) -> None:
    events = kineto()
    for event in events:
        event["name"] = event["name"].replace("aten::", "fbgemm::")
    events[chosen(events, "cpu_op", 4)]["dur"] = 250

    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.operators-cross"]


def test_losses__an_operator_starts_before_its_predecessor__said(tmp_path: Path) -> None:
    """torch numbers the operators of a thread by their start (recorded samples cpu-torch2.13, cuda-hta)."""
    events = kineto()
    operator = events[chosen(events, "cpu_op", 4)]
    operator["ts"] -= 205
    operator["dur"] = 3

    codes = codes_of(tmp_path / "t.pt.trace.json", events)
    assert codes == ["notes.operators-out-of-order", "notes.calls-outside"]


def test_losses__an_operator_without_a_duration_among_exact_times__said(tmp_path: Path) -> None:
    events = kineto()
    for number, event in enumerate(events):
        if event["cat"] == "cpu_op":
            event["dur"] = 100 + number / 1000
    events[chosen(events, "cpu_op", 4)]["dur"] = 0

    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.calls-outside", "notes.operators-untimed"]


def test_read__kernels_without_a_category__are_work_as_they_name_a_stream(tmp_path: Path) -> None:
    events = kineto()
    for event in events:
        if event["cat"] == "kernel":
            del event["cat"]
    path = tmp_path / "t.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    (timeline,) = trace.read(path).timelines

    assert int(timeline.events.is_kind("compute").sum()) == STEPS * OPERATORS


def native_npu() -> list[Event]:
    """Launches with the names of their kernels, both without numbers, and the arrow between them (torch_npu with mspti)."""
    events: list[Event] = []
    for number in range(5):
        at = 100.0 * number + 0.125
        launch = {
            "ph": "X",
            "cat": "privateuse1_runtime",
            "name": f"Cast_{number}",
            "pid": 100,
            "tid": 101,
            "ts": at,
            "dur": 0,
        }
        kernel = {"ph": "X", "cat": "kernel", "name": f"Cast_{number}", "pid": 0, "tid": 47, "ts": at + 20, "dur": 1.5}
        arrow = {"cat": "ac2g", "name": "ac2g", "id": number}
        events += [launch, {**arrow, "ph": "s", "pid": 100, "tid": 101, "ts": at}]
        events += [{**kernel, "args": {"streamId": 47, "type": "KERNEL_AIVEC"}}]
        events += [{**arrow, "ph": "f", "bp": "e", "pid": 0, "tid": 47, "ts": at + 20}]
    return events


def test_losses__launch_with_the_name_of_its_kernel_has_none__said(tmp_path: Path) -> None:
    events = native_npu()
    # Of the third launch, the kernel and the end of its arrow.
    events.pop(10)
    events.pop(10)

    assert codes_of(tmp_path / "whole.pt.trace.json", native_npu()) == []
    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.launches-unmatched"]


def with_arrows(count: int = 30) -> list[Event]:
    """Launches with a correlation and their kernels, the arrow directly behind each, as libkineto writes them."""
    events: list[Event] = []
    for number in range(1, count + 1):
        at = 100.0 * number + 0.125
        arguments = {"correlation": number, "stream": 7}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at, "dur": 5}
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 20, "dur": 30.5}
        arrow = {"cat": "ac2g", "name": "ac2g", "id": number}
        events += [{**kernel, "args": arguments}, {**arrow, "ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": at + 20}]
        events += [{**launch, "args": arguments}, {**arrow, "ph": "s", "pid": 1, "tid": 1, "ts": at}]
    events.append({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}})
    return events


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (43, 46),  # a launch without its arrow
        (44, 47),  # an arrow behind that of another event
        (43, 47),  # behind a launch, the arrow of the next
    ],
)
def test_losses__run_of_events_with_half_of_a_launch__said(begin: int, end: int, tmp_path: Path) -> None:
    """Modelled on cuda-hta/a100_alexnet without a run of events."""
    events = with_arrows()
    del events[begin:end]

    assert "notes.arrows-missing" in codes_of(tmp_path / "t.pt.trace.json", events)


def test_losses__call_that_lost_its_number_before_an_arrow__said(tmp_path: Path) -> None:
    events = with_arrows()
    events[42] = {**events[42], "name": "cudaDriverGetVersion", "args": {"External id": 14}}
    del events[40:42]

    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.arrows-missing"]


@pytest.mark.parametrize("key", ["pid", "tid"])
def test_losses__operator_without_a_process_or_a_thread__said(key: str, tmp_path: Path) -> None:
    events = [*kineto()]
    del events[chosen(events, "cpu_op", 2)][key]

    assert "notes.without-thread" in codes_of(tmp_path / "t.pt.trace.json", events)


def test_losses__last_kernels_before_the_host_waited_for_the_device_are_gone__said(tmp_path: Path) -> None:
    """Modelled on cuda-hta/mi250_rocm62 without its last kernels."""
    wait = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "hipDeviceSynchronize",
        "pid": 1,
        "tid": 1,
        "ts": 4000.5,
        "dur": 9,
    }
    events = [*with_arrows(), {**wait, "args": {"correlation": 99}}]
    rest = [event for event in events if event.get("pid") or event["ts"] < 1000]

    assert codes_of(tmp_path / "whole.pt.trace.json", events) == []
    assert codes_of(tmp_path / "t.pt.trace.json", rest) == ["notes.launches-unmatched"]


def test_losses__call_with_the_arrow_of_another__said(tmp_path: Path) -> None:
    events = with_arrows()
    number = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1, "dur": 5, "name": "cudaMalloc"}
    call = {**number, "ts": 50.125, "args": {"correlation": 90}}
    arrow = {"cat": "ac2g", "name": "ac2g", "id": 91, "ph": "f", "pid": 1, "tid": 1, "ts": 50.125}

    assert codes_of(tmp_path / "t.pt.trace.json", [call, {**arrow, "id": 90}, *events]) == []
    assert codes_of(tmp_path / "t.pt.trace.json", [call, arrow, *events]) == ["notes.arrows-missing"]


def test_losses__operator_of_another_process_or_event_without_a_name__said(tmp_path: Path) -> None:
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 27187, "tid": 27187, "dur": 5}
    operators = [{**host, "ts": 10.125 * number, "args": {"External id": number}} for number in range(1, 201)]
    damaged = {**operators[100], "pid": 271887}

    assert codes_of(tmp_path / "whole.pt.trace.json", operators) == []
    assert codes_of(tmp_path / "t.pt.trace.json", [*operators[:100], damaged, *operators[101:]]) == [
        "notes.operators-astray"
    ]
    for metadata in ({"ph": "M", "pid": 1}, {"ph": "M", "pid": 1, "name": "ac2g"}):
        assert codes_of(tmp_path / "t.pt.trace.json", [metadata, *operators]) == ["notes.nameless"]


@pytest.mark.parametrize(
    ("alter", "code"),
    [
        ({"ts": 500.125}, "notes.arrows-missing"),  # an arrow that begins before the launch that it follows
        ({"cat": ""}, "notes.nameless"),
    ],
)
def test_losses__arrow_of_another_event_by_time_or_kind__said(alter: Event, code: str, tmp_path: Path) -> None:
    events = with_arrows()
    place = next(place for place in range(60, len(events)) if events[place]["ph"] == "s")
    damaged = {**events[place], **alter}
    if not damaged["cat"]:
        del damaged["cat"]
    events[place] = damaged

    assert codes_of(tmp_path / "t.pt.trace.json", events) == [code]


def test_losses__call_without_the_number_of_its_work__said(tmp_path: Path) -> None:
    """Modelled on cuda-hta/a100_alexnet with a hole from the arguments of one event to those of another."""
    events = [event for event in with_arrows(60) if event["ph"] == "X"]
    query = {"ph": "X", "cat": "cuda_runtime", "name": "cudaEventRecord", "pid": 1, "tid": 1, "ts": 7000.5, "dur": 0.5}

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []
    assert codes_of(tmp_path / "t.pt.trace.json", [*events, query]) == ["notes.unlike-their-kind"]
    # Profilers that number few calls lost none.
    assert codes_of(tmp_path / "t.pt.trace.json", [*events, *[{**query, "ts": 7000.5 + n} for n in range(9)]]) == []


@pytest.mark.parametrize(
    "damaged",
    [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "args": {"correlation": 900}},  # no duration
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "dur": 0.5, "args": {"correlation": 900}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "gemm", "pid": 0, "tid": 7, "dur": 0.5, "args": {"correlation": 60}},
    ],
)
def test_losses__event_with_what_another_kind_has__said(damaged: Event, tmp_path: Path) -> None:
    """Modelled on cuda-hta: a hole joins two events, or a byte of a key is another."""
    events = [event for event in with_arrows(200) if event["ph"] == "X"]
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 2, "dur": 5}
    events += [{**operator, "ts": 10.125 * number} for number in range(200)]
    damaged = {"pid": 1, "tid": 1, "ts": 6055.5, **damaged}

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []
    assert codes_of(tmp_path / "t.pt.trace.json", [*events, damaged])[0] == "notes.unlike-their-kind"


def test_losses__synchronization_without_its_call__said(tmp_path: Path) -> None:
    events: list[Event] = []
    for number in range(1, 11):
        wait = {"ph": "X", "pid": 1, "tid": 1, "ts": 10.125 * number, "dur": 5, "args": {"correlation": number}}
        events.append({**wait, "cat": "cuda_runtime", "name": "cudaStreamSynchronize"})
        events.append({**wait, "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7})

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []
    assert codes_of(tmp_path / "t.pt.trace.json", events[:8] + events[9:]) == ["notes.unlike-their-kind"]


def test_losses__copy_is_gone_from_between_others__said(tmp_path: Path) -> None:
    """Modelled on cuda-hta/sampled_rank-0; a memset may have nothing to do."""
    events = [event for event in with_arrows() if event["ph"] == "X"]
    copies: list[Event] = []
    for number in range(100, 106):
        call = {"ph": "X", "pid": 1, "tid": 1, "ts": 905.5 + number, "dur": 0.5, "args": {"correlation": number}}
        copies.append({**call, "cat": "cuda_runtime", "name": "cudaMemcpyAsync"})
        copies.append({**call, "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 9})
    memset = {**copies[0], "name": "cudaMemsetAsync", "ts": 1111.5, "args": {"correlation": 106}}

    assert codes_of(tmp_path / "t.pt.trace.json", [*events, *copies, memset]) == []
    assert codes_of(tmp_path / "t.pt.trace.json", [*events, *copies[:5], *copies[6:]]) == ["notes.launches-unmatched"]


def test_losses__call_on_the_track_of_a_stream__said(tmp_path: Path) -> None:
    """Modelled on cuda-hta/mi250_rocm62 with a hole from the name of a call to that of a kernel."""
    events = [event for event in with_arrows() if event["ph"] == "X"]
    joined = {"ph": "X", "cat": "cuda_runtime", "name": "hipDeviceSyncambda()", "pid": 0, "tid": 7, "ts": 9000.5}

    damaged = [*events, {**joined, "dur": 8, "args": {"correlation": 124}}]
    assert codes_of(tmp_path / "t.pt.trace.json", damaged) == ["notes.unlike-their-kind"]


@pytest.mark.parametrize("place", ["kineto", "chrome", "view"])
@pytest.mark.parametrize("filler", [b" ", b"0"])
@pytest.mark.parametrize("offset", [0, 1, 255, 300])
def test_losses__sector_of_one_byte_from_name_to_name__said(
    place: str, filler: bytes, offset: int, tmp_path: Path
) -> None:
    """Modelled on torch-native-privateuse1: what lies between two strings is gone, and the rest is JSON."""
    operator = {"ph": "X", "cat": "cpu_op" if place == "kineto" else "", "pid": 1, "tid": 1, "dur": 5}
    events = [{**operator, "name": "n" * 40, "ts": 10.125 * number} for number in range(100)]
    begin = b"[" if place == "view" else b'{"traceEvents": ['
    text = begin + b" " * offset + json.dumps(events)[1:].encode() + (b"" if place == "view" else b"}")
    path = tmp_path / ("trace_view.json" if place == "view" else "t.pt.trace.json")
    first, last = text.index(b'"nnnn', 1000) + 8, text.index(b'"nnnn', 1600) + 8
    damaged = text[:first] + filler * (last - first) + text[last:]
    assert last - first > 512
    for scanner in ("compiled", "decoder"):
        path.write_bytes(text)
        assert _lost(path, scanner) == []
        path.write_bytes(damaged)
        (note,) = _lost(path, scanner)
        assert note.code == "notes.overwritten"
        assert 256 <= note.values["bytes"] <= last - first


def _lost(path: Path, scanner: str) -> list[Message]:
    with pytest.MonkeyPatch.context() as patch:
        if scanner == "decoder":
            patch.setattr(library, "load", lambda: None)
        return [note for timeline in trace.read(path).timelines for note in possible_losses(timeline)]


@pytest.mark.parametrize("first", [10, 16])
def test_losses__first_kernels_and_last_launches_are_gone__said(first: int, tmp_path: Path) -> None:
    """Modelled on cuda-hta/mi250_rocm62 without a run of events from its calls to its kernels."""
    late = [event for event in with_arrows() if event.get("args", {}).get("correlation", 0) >= first]
    kernels = [event for event in late if event["cat"] == "kernel"]
    launches = [event for event in with_arrows(15) if event.get("cat") == "cuda_runtime"]

    assert codes_of(tmp_path / "t.pt.trace.json", [*launches, *kernels]) == ["notes.launches-unjoined"]


def test_losses__arrows_behind_their_events_or_all_at_the_end__none(tmp_path: Path) -> None:
    """Modelled on TraceLens' sglang_decode, whose arrows are at the end of the file."""
    events = with_arrows()
    arrows = [event for event in events if event["ph"] in "sf"]
    others = [event for event in events if event["ph"] not in "sf"]

    assert codes_of(tmp_path / "whole.pt.trace.json", events) == []
    assert codes_of(tmp_path / "sorted.pt.trace.json", [*others, *arrows]) == []


def test_losses__an_event_of_no_known_phase__said(tmp_path: Path) -> None:
    events = kineto()
    events[chosen(events, "kernel", -1)]["ph"] = "Z"

    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.unknown-phases"]


@pytest.mark.parametrize("tick", [0.042, 0.1])
def test_losses__short_operators_of_a_coarse_clock__none(tick: float, tmp_path: Path) -> None:
    """Modelled on traces of a Mac (kernelforge) and of Windows (GPU-Profiling-Setup): aten::resolve_conj takes 0 or 1 tick."""
    events = kineto()
    operators = [event for event in events if event["cat"] == "cpu_op"]
    for number, event in enumerate(operators):
        short = {**event, "name": "aten::resolve_conj", "ts": event["ts"] + 120, "dur": tick * (number % 2)}
        events.append({**short, "args": {"External id": 500 + number}})

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []


def test_losses__work_names_an_operator_that_is_gone__said(tmp_path: Path) -> None:
    """The last operators of a thread are gone, so none is missing among their numbers."""
    events = kineto()
    for event in events:
        event["args"].pop("Ev Idx", None)
    del events[chosen(events, "cpu_op", -1)]

    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.operators-missing"]


def test_losses__a_launch_outside_of_its_operator__said(tmp_path: Path) -> None:
    """A launch lies in the operator that it names (8,647 of 8,647 in the samples nccl_data and mi250 of cuda-hta)."""
    events = kineto()
    events[chosen(events, "cpu_op", 4)]["dur"] = 2

    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.calls-outside"]


def test_diff__file_with_operators_before_kernels_is_cut_off__kernels_are_not_called_removed(tmp_path: Path) -> None:
    order = ["user_annotation", "cpu_op", "cuda_runtime", "kernel"]
    events = sorted(kineto(), key=lambda event: order.index(event["cat"]))
    whole, cut = tmp_path / "whole.pt.trace.json", tmp_path / "cut.pt.trace.json"
    whole.write_text(json.dumps({"traceEvents": events}))
    for place in (chosen(events, "kernel", STEPS), chosen(events, "kernel", 0), chosen(events, "cuda_runtime", 0)):
        text = json.dumps({"traceEvents": events[:place]})
        cut.write_text(text.removesuffix("]}"))
        with pytest.raises(DocumentError, match=r"is cut off at byte .* no step of it is known to be complete"):
            trace_diff([whole], [cut], Choice())


def end_of_file(begin: float, duration: float) -> list[Event]:
    """The events that torch writes behind all others: the span of the recording, and an instant at each end of it."""
    mark = {"ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler"}
    span = {"ph": "X", "cat": "Trace", "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"}
    return [
        {**span, "ts": begin, "dur": duration, "args": {"Op count": 0}},
        {**mark, "name": "Iteration Start: PyTorch Profiler", "ts": begin, "cat": ""},
        {**mark, "name": "Record Window End", "ts": begin + duration + 10, "cat": ""},
    ]


@pytest.mark.parametrize(
    ("category", "change"),
    [
        ("cpu_op", {"ts": 9_000_000}),
        ("kernel", {"ts": 9_000_000}),
        ("kernel", {"dur": 5_000_000}),
        ("user_annotation", {"dur": 5_000_000}),
        ("cuda_runtime", {"ts": 0}),
    ],
)
def test_losses__work_outside_of_the_recording__said(category: str, change: Event, tmp_path: Path) -> None:
    events = [*kineto(), *end_of_file(0.0, 4000.0)]
    for event in events:
        event["ts"] += 1000
    events[chosen(events, category, 2)] |= change

    assert "notes.outside-recording" in codes_of(tmp_path / "t.pt.trace.json", events)


def test_losses__work_that_begins_before_the_recording_or_ends_after_it__none(tmp_path: Path) -> None:
    """A profiler that is started and stopped by time keeps such work (libkineto, CuptiActivityProfiler::outOfRange)."""
    events = [*kineto(), *end_of_file(5.0, 3435.0)]

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []


def test_losses__profiler_is_stopped_within_a_step__none(tmp_path: Path) -> None:
    """Modelled on HTA's triton_example: the last mark lasts 13 s, until the recording of 0.36 s was written."""
    events = [*kineto(), *end_of_file(0.0, 4000.0)]
    marks = [event for event in events if event.get("cat") == "user_annotation"]
    last = max(marks, key=lambda mark: mark["ts"])
    last["dur"] = 13_000_000

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []


def test_losses__engine_records_before_the_span_of_the_recording__none(tmp_path: Path) -> None:
    """Modelled on HTA's mtia_inference_trace: 293 of 1,313 events of its engines end before the profiler's span begins."""
    engine = {"ph": "X", "cat": "mtia_ccp_events", "name": "dma_request", "pid": 0, "tid": 3672, "dur": 5.25}
    early = [{**engine, "ts": 100.0 * number + 0.5, "args": {"stream": 105}} for number in range(4)]
    events = [*kineto(), *end_of_file(0.0, 4000.0)]
    for event in events:
        event["ts"] += 1000

    assert codes_of(tmp_path / "t.pt.trace.json", [*early, *events]) == []


@pytest.mark.parametrize("place", [-3, -2, -1])
def test_losses__a_mark_of_the_recording_is_gone__said(place: int, tmp_path: Path) -> None:
    events = [*kineto(), *end_of_file(0.0, 4000.0)]
    del events[place]

    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.marks-missing"]


@pytest.mark.parametrize("duration", [850, 250])
def test_losses__an_operator_lasts_into_the_next__said(duration: int, tmp_path: Path) -> None:
    events = kineto()
    events[chosen(events, "cpu_op", 4)]["dur"] = duration

    assert codes_of(tmp_path / "t.pt.trace.json", events) == ["notes.operators-cross"]


def test_losses__excerpt_of_a_recording__none(tmp_path: Path) -> None:
    """A file with a few of the events that its profiler numbered, such as HTA's samples, has lost nothing."""
    events = kineto()
    for event in events:
        if "Ev Idx" in event["args"]:
            event["args"]["Ev Idx"] *= 50

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []


def test_losses__launches_before_and_after_the_recording__none(tmp_path: Path) -> None:
    """The first kernels were launched before the recording began, the last launches ran after it ended."""
    events = kineto()
    del events[chosen(events, "cuda_runtime", 0)]
    del events[chosen(events, "kernel", -1)]

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []


def test_from_profile__kernel_with_a_name_of_5160_characters__is_counted(tmp_path: Path) -> None:
    """As long as the longest name in recordings of MI300; the kernel runs in one step more often than in the others."""
    events = kineto()
    for event in events:
        if event["name"] == "gemm_2":
            event["name"] = "gemm<" + "int," * 1288 + ">"
    events[chosen(events, "kernel", 1)]["name"] = events[chosen(events, "kernel", 2)]["name"]
    path = tmp_path / "t.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    run = run_from_profile(tmp_path, path, tmp_path / "out", lambda text: None, keep_files=False)

    assert [len(metric) for metric in run.checklist.counters[0].ranges if metric.startswith("ops.count:gemm<")] == [
        5168
    ]


def test_losses__launches_into_a_graph__none(tmp_path: Path) -> None:
    events = kineto()
    kernel = chosen(events, "kernel", 4)
    capture = {**events[chosen(events, "cuda_runtime", 0)], "name": "cudaStreamBeginCapture", "args": {}}
    events[kernel] = capture

    assert codes_of(tmp_path / "t.pt.trace.json", events) == []


def test_diff__a_kernel_is_gone__its_step_is_left_out(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.pt.trace.json", tmp_path / "cut.pt.trace.json"
    events = kineto()
    whole.write_text(json.dumps({"traceEvents": events}))
    del events[chosen(events, "kernel", 4)]
    cut.write_text(json.dumps({"traceEvents": events}))

    document = trace_diff([whole], [cut], Choice())

    assert [row.change for timeline in document.timelines for row in timeline.rows] == []
    assert "notes.steps-left-out" in [note.code for note in document.notes]


@pytest.mark.parametrize("mark", ["ProfilerStep#", CALL])
def test_diff__slow_first_step_lost_a_kernel__left_out_of_both_sides(mark: str, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.pt.trace.json", tmp_path / "cut.pt.trace.json"
    events = kineto()
    for event in events:
        if event["cat"] == "user_annotation" and mark == CALL:
            event["name"] = CALL
        if event["cat"] == "kernel" and event["ts"] < 1000:
            event["dur"] += 100
    whole.write_text(json.dumps({"traceEvents": events}))
    del events[chosen(events, "kernel", 1)]
    cut.write_text(json.dumps({"traceEvents": events}))

    document = trace_diff([whole], [cut], Choice())

    (timeline,) = document.timelines
    assert (timeline.units, timeline.rows) == ((3, 3), [])
    assert "notes.same-steps-left-out" in [note.code for note in document.notes]


def test_diff__mark_of_the_slow_first_step_is_damaged__left_out_of_both_sides(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.pt.trace.json", tmp_path / "cut.pt.trace.json"
    events = kineto()
    for event in events:
        if event["cat"] == "kernel" and event["ts"] < 1000:
            event["dur"] += 100
    text = json.dumps({"traceEvents": events})
    whole.write_text(text)
    cut.write_text(text.replace("ProfilerStep#0", 'ProfilerStep"0'))

    document = trace_diff([whole], [cut], Choice())

    (timeline,) = document.timelines
    assert (timeline.units, timeline.rows) == ((3, 3), [])


def test_diff__a_kernel_is_gone_from_the_only_step__refused(tmp_path: Path) -> None:
    events = [event for event in kineto() if event["ts"] < 1000]
    whole, cut = tmp_path / "whole.pt.trace.json", tmp_path / "cut.pt.trace.json"
    whole.write_text(json.dumps({"traceEvents": events}))
    del events[chosen(events, "kernel", 1)]
    cut.write_text(json.dumps({"traceEvents": events}))

    with pytest.raises(DocumentError, match="cannot be compared"):
        trace_diff([whole], [cut], Choice())


@pytest.mark.parametrize(("first", "code"), [(0, "notes.correlations-repeat"), (500, "notes.processes-merged")])
def test_notes__two_processes_without_labels__named(first: int, code: str, tmp_path: Path) -> None:
    path = tmp_path / "merged.json"
    other = kineto(pid=200, first=first)
    for event in other:
        # The second rank used the second device.
        if event["cat"] == "kernel":
            event["pid"] = event["args"]["device"] = 1
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*kineto(), *other]}))

    assert code in [note.code for note in trace.read(path).notes]


def ascend() -> list[Event]:
    """Calls of CANN, the arrows to their tasks, the tasks, and the profiler's own analysis of them."""
    events: list[Event] = []
    for pid, name in ((1, "Python"), (2, "CANN"), (3, "Ascend Hardware"), (4, "Overlap Analysis")):
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
    for number in range(6):
        at = 100.0 * number + 0.125
        call = {"ph": "X", "name": "Node@launch", "pid": 2, "tid": 9, "ts": f"{at:.3f}", "dur": 5, "args": {}}
        task = {"ph": "X", "name": f"MatMul{number}", "pid": 3, "tid": 2, "ts": f"{at + 20:.3f}", "dur": 40}
        events += [call, {**task, "args": {"Task Type": "AI_CORE"}}]
        arrow = {"cat": "HostToDevice", "name": f"HostToDevice{number}", "id": str(number)}
        events.append({**arrow, "ph": "s", "pid": 2, "tid": 9, "ts": f"{at + 1:.3f}"})
        events.append({**arrow, "ph": "f", "bp": "e", "pid": 3, "tid": 2, "ts": f"{at + 20:.3f}"})
        events.append({"ph": "X", "name": "Computing", "pid": 4, "tid": 0, "ts": f"{at + 20:.3f}", "dur": 40})
    return events


def codes_of_view(path: Path, events: list[Event]) -> list[str]:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(events))
    (timeline,) = trace.read(path).timelines
    return [note.code for note in contradictions(timeline)]


def test_losses__intact_view__none(tmp_path: Path) -> None:
    assert codes_of_view(tmp_path / "trace_view.json", ascend()) == []


def test_losses__level_2_records_the_call_within_the_launch__none(tmp_path: Path) -> None:
    """Modelled on msinsight's test/data/pytorch/text/level2: arrows begin in the calls within Node@launch."""
    events = ascend()
    for event in ascend():
        if event["name"] == "Node@launch":
            start = float(event["ts"])
            events.append({**event, "name": "Runtime@KernelLaunch", "ts": f"{start + 0.5:.3f}", "dur": 2})

    assert codes_of_view(tmp_path / "trace_view.json", events) == []


def test_losses__a_task_is_gone__arrow_and_analysis_say_so(tmp_path: Path) -> None:
    events = [event for event in ascend() if event["name"] != "MatMul3"]

    assert codes_of_view(tmp_path / "trace_view.json", events) == [
        "notes.arrows-unmatched",
        "notes.analysis-differs",
        "notes.launches-unmatched",
    ]


def test_losses__an_arrow_has_one_end__said(tmp_path: Path) -> None:
    events = [event for event in ascend() if (event["ph"], event.get("id")) != ("s", "3")]

    assert "notes.arrows-unmatched" in codes_of_view(tmp_path / "trace_view.json", events)


def test_losses__arrow_between_an_operator_and_a_task__begins_at_the_operator(tmp_path: Path) -> None:
    """Both ends of every such arrow are at the begin of an event (recorded samples msinsight-910B-alexnet-2501)."""
    operator = {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 1, "tid": 9, "ts": "90.125", "dur": 8}
    arrow = {"cat": "async_npu", "name": "async_npu", "id": "7"}
    ends = [
        {**arrow, "ph": "s", "pid": 1, "tid": 9, "ts": "90.125"},
        {**arrow, "ph": "f", "bp": "e", "pid": 3, "tid": 2, "ts": "120.125"},
    ]

    assert codes_of_view(tmp_path / "whole" / "trace_view.json", [*ascend(), operator, *ends]) == []
    assert codes_of_view(tmp_path / "cut" / "trace_view.json", [*ascend(), *ends]) == ["notes.arrows-bare"]


def test_losses__a_task_is_longer_than_its_analysis__said(tmp_path: Path) -> None:
    events = ascend()
    for event in events:
        if event["name"] == "MatMul3":
            event["dur"] = 55

    assert codes_of_view(tmp_path / "trace_view.json", events) == ["notes.analysis-differs"]


def test_ranks__a_rank_lost_a_kernel__said_as_by_top(tmp_path: Path) -> None:
    for rank in range(2):
        events = kineto()
        if rank:
            del events[chosen(events, "kernel", 4)]
        (tmp_path / f"rank-{rank}.pt.trace.json").write_text(json.dumps({"traceEvents": events}))

    (note,) = trace_ranks([Place(tmp_path)], say=print, workers=1).document.notes
    reduced = trace_reduce([Place(tmp_path)], say=print, workers=1, on=None, out=None)
    again = trace_ranks([Place(tmp_path)], say=print, workers=1).document

    doubt = Message("notes.launches-unmatched", {"launches": 1, "work": 0})
    assert note == Message("verdict.about", {"place": str(tmp_path / "rank-1.pt.trace.json"), "what": doubt})
    assert reduced.notes == again.notes == [note]


def test_losses__work_of_two_devices_launched_by_one_process__every_launch_has_its_kernel(tmp_path: Path) -> None:
    events = []
    for number in range(8):
        arguments = {"correlation": number, "device": number % 2, "stream": 7}
        begin = {"ph": "X", "ts": 100 * number, "dur": 5, "args": arguments}
        events.append({**begin, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1})
        events.append({**begin, "cat": "kernel", "name": "gemm", "pid": number % 2, "tid": 7, "ts": 100 * number + 10})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    timelines = trace.read(path).timelines

    assert [possible_losses(timeline) for timeline in timelines] == [[], []]


def test_losses__second_kernel_of_a_launch_and_a_span_without_category__noted(tmp_path: Path) -> None:
    events = kineto()
    kernel = events[chosen(events, "kernel", 2)]
    damaged = {**kernel, "ts": kernel["ts"] + 1, "pid": 100, "tid": 100}
    bare = {"ph": "X", "name": "aten::mm", "pid": 100, "tid": 100, "ts": 9000, "dur": 5}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*events, damaged, bare]}))

    recording = trace.read(path)

    codes = {note.code for note in possible_losses(recording.timelines[0])}
    assert {"notes.launches-repeated", "notes.work-on-threads"} <= codes
    (unknown,) = (note for note in recording.notes if note.code == "notes.unknown-categories")
    assert unknown.values["what"] == "none (1)"
