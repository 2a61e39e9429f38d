"""trace_view.json: kinds by process and name, devices by label, launches by arrows; shapes as in the samples named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.trace.model.events import KINDS
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.readings import CORE_CLOCK, MEMORY_READ, MEMORY_WRITE
from perfgate.trace.readers.ascend.kinds import task_kind
from tests.each import each

from .ascend import groups, kinds, written


def process(pid, name, label=None):
    named = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}]
    return named + (
        [{"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}}] if label else []
    )


def thread(pid, tid, name):
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def span(name, pid, tid, ts, dur, cat=None, **args):
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
    return event if cat is None else {**event, "cat": cat}


def arrow(ph, number, pid, tid, ts):
    return {
        "ph": ph,
        "cat": "HostToDevice",
        "name": f"HostToDevice{number}",
        "id": number,
        "pid": pid,
        "tid": tid,
        "ts": ts,
    }


def view(folder, *events, name="trace_view.json"):
    return trace.read(
        written(folder, name, json.dumps([e for one in events for e in (one if isinstance(one, list) else [one])]))
    )


def by_name(timeline):
    events = timeline.events
    return {events.names[name]: KINDS[kind] for name, kind in zip(events.name.tolist(), events.kind.tolist())}


def test_view__python_events__operators_apart_from_ranges(tmp_path: Path) -> None:
    # Names of msinsight-910B-alexnet-2501; record_function and operators share the category cpu_op.
    names = [
        "aten::add",
        "aclnnMuls",
        "AddmmBackward0",
        "empty_tensor",
        "Conv2D",
        "ProfilerStep#50",
        "perfgate.call",
        "my range",
    ]
    events = [span(name, 7, 7, f"{number}.000", 1.0, "cpu_op") for number, name in enumerate(names)]
    queue = [span("Enqueue", 7, 7, "20.000", 1, "enqueue"), span("Dequeue@Conv2D", 7, 8, "21.000", 1, "dequeue")]
    inputs = span("scaled", 7, 7, "30.0", 1, "cpu_op", **{"Input Dims": "4,4"})
    (timeline,) = view(tmp_path, process(7, "Python", "CPU"), events, queue, inputs).timelines

    assert by_name(timeline) == {
        "aten::add": "host_op", "aclnnMuls": "host_op", "AddmmBackward0": "host_op", "empty_tensor": "host_op",
        "Conv2D": "host_op", "scaled": "host_op", "ProfilerStep#50": "annotation", "perfgate.call": "annotation",
        "my range": "annotation", "Enqueue": "runtime", "Dequeue@Conv2D": "runtime",
    }  # fmt: skip
    assert timeline.steps[0].number == 50


@each(
    "task, name, kind",
    [
        ("AI_CORE", "Conv2D1", "compute"), ("MIX_AIV", "aclnnMm", "compute"), ("DSA_SQE", "DSARandom", "compute"),
        ("Other", "trans_Cast_0", "compute"), ("AI_CPU", "Unique", "compute"), ("KERNEL_AIVEC", "x", "compute"),
        ("PCIE_DMA_SQE", "MEMCPY_ASYNC", "copy"), ("SDMA_SQE", "MEMCPY_ASYNC", "copy"), ("AI_CPU", "MEMCPY_ASYNC", "copy"),
        ("SDMA", "SDMA", "other"), ("EVENT_RECORD_SQE", "EVENT_RECORD", "other"), ("Notify Wait", "Notify Wait", "other"),
        ("PLACE_HOLDER_SQE", "PROFILING_ENABLE", "other"), ("Write Value", "Write Value", "other"),
    ],
)  # fmt: skip
def test_task_kind__types_of_every_generation(task: str, name: str, kind: str) -> None:
    assert task_kind(task, name) == kind


@each(
    "name, kind",
    [
        ("aclnnAddmm_MatMulCommon_MatMulV2", "MatMulV2"), ("trans_TransData_12", "TransData"), ("trans_Cast_0", "Cast"),
        ("trans_TransData_3_MemSet", "MemSet"), ("Conv2DBackpropFilter6_MemSet", "MemSet"), ("Conv2D1", "Conv2D"),
        ("MaxPoolWithArgmaxV11", "MaxPoolWithArgmaxV1"), ("MatMulV2", "MatMulV2"),
        ("hcom_allReduce__586_0_1", "hcom_allReduce_"),
        ("hcom_broadcast__483_0", "hcom_broadcast_"), ("GatherV2", "GatherV2"), ("a/b_3", "a/b_3"), ("", ""),
    ],
)  # fmt: skip
def test_type_by_name__every_scheme_of_names(name: str, kind: str) -> None:
    assert type_by_name(name) == kind


def hardware(pid, label, *, start, number=None):
    events = [span("Conv2D1", pid, 2, start, 5.0, **{"Task Type": "AI_CORE"})]
    return [*process(pid, "Ascend Hardware", label), thread(pid, 2, "Stream 2"), *events] + (
        [arrow("f", number, pid, 2, start)] if number else []
    )


def test_view__launch__innermost_call_around_the_arrow(tmp_path: Path) -> None:
    # As in msinsight-910B-alexnet-2501: the arrow starts inside Node@launch, and its id is a text.
    calls = [span("AscendCL@aclnnMm", 9, 3, "100.000", 50), span("Node@launch", 9, 3, "110.000", 10)]
    events = [process(9, "CANN"), calls, arrow("s", "5046586572799", 9, 3, "115.000")]
    (timeline,) = view(
        tmp_path, events[0], events[1], events[2], hardware(1, "NPU", start="130.000", number="5046586572799")
    ).timelines
    found = {
        timeline.events.names[n]: c for n, c in zip(timeline.events.name.tolist(), timeline.events.correlation.tolist())
    }

    assert found["Conv2D1"] == found["Node@launch"] >= 0
    assert found["AscendCL@aclnnMm"] == -1


def test_view__two_arrows_of_one_call__one_launch(tmp_path: Path) -> None:
    call = span("AscendCL@aclnnMm", 9, 3, "100.000", 50)
    arrows = [arrow("s", number, 9, 3, "110.0") for number in (11, 12)]
    (timeline,) = view(
        tmp_path, process(9, "CANN"), call, arrows, hardware(1, "NPU", start="130.000", number=11),
        span("Add", 1, 2, "140.000", 1, **{"Task Type": "AI_CORE"}), arrow("f", "12", 1, 2, "140.000"),
    ).timelines  # fmt: skip

    assert timeline.events.of_kind("compute").correlation.tolist() == [0, 0]
    assert timeline.events.of_kind("runtime").correlation.tolist() == [0]


def test_view__level0__process_without_a_name__the_queue_launched(tmp_path: Path) -> None:
    # msinsight-910B-alexnet-2501/text/level0: arrows start on a process that has neither name nor spans.
    queue = span("Dequeue@Conv2D", 7, 3, "100.0", 50, "dequeue")
    (timeline,) = view(
        tmp_path,
        process(7, "Python"),
        queue,
        arrow("s", 263, 99, 3, "110.0"),
        hardware(1, "NPU", start="130.0", number=263),
    ).timelines

    assert (
        timeline.events.of_kind("compute").correlation.tolist()
        == timeline.events.of_kind("runtime").correlation.tolist()
        == [0]
    )


def test_view__two_labelled_devices__two_timelines_with_the_host_in_both(tmp_path: Path) -> None:
    found = view(
        tmp_path, process(7, "Python"), span("aten::add", 7, 7, "1.0", 1, "cpu_op"),
        hardware(32, "NPU 0", start="2.0"), hardware(33, "NPU 1", start="3.0"), hardware(33, "NPU 1", start="9.0"),
    ).timelines  # fmt: skip

    assert [(timeline.device, kinds(timeline.events)) for timeline in found] == [
        (0, {"host_op": 1, "compute": 1}),
        (1, {"host_op": 1, "compute": 2}),
    ]


def test_view__two_devices_labelled_npu_alone__told_by_the_process_id(tmp_path: Path) -> None:
    pids = [(3096504 << 10) | (13 << 5) | device for device in (0, 1)]
    found = view(tmp_path, *(hardware(pid, "NPU", start="2.0") for pid in pids)).timelines

    assert [timeline.device for timeline in found] == [0, 1]


def test_view__collectives_overlap_and_frequency__whole_ones_alone_are_work(tmp_path: Path) -> None:
    # HCCL of 2025-01 and Communication of CANN 8.3 are one thing; planes hold the steps of a collective.
    for name in ("HCCL", "Communication"):
        (timeline,) = view(
            tmp_path, hardware(1, "NPU", start="2.0"), process(2, name, "NPU"), thread(2, 0, "Group 0 Communication"),
            thread(2, 1, "Plane 0"), span("hcom_allReduce__586_0_1", 2, 0, "1.0", 9), span("Reduce_Inline", 2, 1, "1.0", 2),
            process(3, "Overlap Analysis"), span("Computing", 3, 0, "2.0", 5), process(4, "AI Core Freq"),
            [{"ph": "C", "name": "AI Core Freq", "pid": 4, "ts": "1", "args": {"MHz": mhz}} for mhz in (1800, 1200.5)],
        ).timelines  # fmt: skip

        assert kinds(timeline.events) == {"compute": 1, "comm": 1, "other": 1}
        assert timeline.core_frequency == (1.2005e9, 1.8e9)


def test_view__iterations_of_a_graph_on_the_hardware__are_no_work(tmp_path: Path) -> None:
    """Modelled on MindInsight's msprof_0_2_1.json of 2023."""
    (timeline,) = view(
        tmp_path, hardware(1, "NPU", start="2.0"), thread(1, 9, "Step Trace(Model ID:2)"),
        span("Iteration 1", 1, 9, "1.0", 90, "Iteration Time"), span("Reduce_1_0", 1, 9, "20.0", 60, "Reduce"),
    ).timelines  # fmt: skip

    assert kinds(timeline.events) == {"compute": 1, "device_annotation": 2}


def test_view__collectives_alone__their_steps_are_no_work(tmp_path: Path) -> None:
    """Modelled on MindInsight's hccl_0_2_1.json of 2023."""
    (timeline,) = view(
        tmp_path, process(2, "HCCL"), thread(2, 0, "Plane 0"), thread(2, 70000, "Communication Kernel"),
        span("Notify_Wait", 2, 0, "1.0", 3), span("Default/AllReduce-op534_0", 2, 70000, "1.0", 40),
        name="hccl_0_2_1.json",
    ).timelines  # fmt: skip

    assert kinds(timeline.events) == {"other": 1, "comm": 1}


def counters(name, argument, pid, *readings):
    return [{"ph": "C", "name": name, "pid": pid, "ts": str(ts), "args": {argument: value}} for ts, value in readings]


def test_view__counters_of_the_memory_of_two_devices__each_with_its_own(tmp_path: Path) -> None:
    first, second = view(
        tmp_path, hardware(32, "NPU 0", start="2.0"), hardware(33, "NPU 1", start="3.0"),
        process(40, "HBM", "NPU 0"), process(41, "HBM", "NPU 1"), process(42, "AI Core Freq", "NPU 1"),
        counters("HBM 0/Read", "Read(MB/s)", 40, (1, 0.5), (2, "1.0")),
        counters("HBM 1/Read", "Read(MB/s)", 40, (1, 0.25), (2, 2)),
        counters("HBM 0/Write", "Write(MB/s)", 41, (1, 4.0)), counters("AI Core Freq", "MHz", 42, (5, 1800), (3, 800)),
        counters("HBM 0/Read", "Read(GB/s)", 40, (1, 7.0)),
    ).timelines  # fmt: skip

    assert {name: readings.value.tolist() for name, readings in first.readings.items()} == {
        MEMORY_READ: [0.75 * 2**20, 3 * 2**20],
        "HBM 0/Read": [7.0],
    }
    assert {name: readings.unit for name, readings in first.readings.items()} == {
        MEMORY_READ: "B/s",
        "HBM 0/Read": "GB/s",
    }
    assert {name: readings.value.tolist() for name, readings in second.readings.items()} == {
        MEMORY_WRITE: [4 * 2**20],
        CORE_CLOCK: [8e8, 1.8e9],
    }


@pytest.mark.parametrize("value", ["fast", "1e400", "NaN", True])
def test_view__counter_that_is_no_number__refused_with_its_place(tmp_path: Path, value: bool | str) -> None:
    events = [
        *hardware(1, "NPU", start="2.0"),
        *process(4, "AI Core Freq"),
        *counters("AI Core Freq", "MHz", 4, (1, value)),
    ]
    written(tmp_path, "trace_view.json", json.dumps(events))

    with pytest.raises(
        DocumentError, match=r"event \d+ \('AI Core Freq'\): its MHz '.*' is not a number; analyse the profile again"
    ):
        trace.read(tmp_path / "trace_view.json")


def test_view__strings_numbers_and_gzip__one_table(tmp_path: Path) -> None:
    events = [
        *process("7", "Python"),
        span("aten::a", 7, "8", 1736408883704643.5, 1, "cpu_op"),
        span("aten::b", "7", 8, "3.5", 1, "cpu_op"),
    ]
    (tmp_path / "trace_view.json.gz").write_bytes(gzip.compress(json.dumps(events).encode()))
    (timeline,) = trace.read(tmp_path / "trace_view.json.gz").timelines

    assert timeline.events.start.tolist() == [1736408883704643500, 3500]
    assert timeline.events.tracks == (("Python", "8"),)


def test_view__times_through_a_float__those_of_the_table(tmp_path: Path) -> None:
    # torch_npu's convert_ns2us_float: the timeline is up to 250 ns off, the table is not.
    written(
        tmp_path,
        "kernel_details.csv",
        "Name,Type,Start Time(us),Duration(us)\nConv2D1,Conv2D,1736408883704643.212\t,5.001\n",
    )
    written(tmp_path, "trace_view.json", json.dumps(hardware(1, "NPU", start=1736408883704643.2)))
    (timeline,) = trace.read(tmp_path).timelines

    assert (timeline.events.start.tolist(), timeline.events.duration.tolist()) == ([1736408883704643212], [5001])
    assert groups(timeline.events) == {"Conv2D": 1}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[{"ph": "X", "name": "a", "ts": "x"}]', "event 0 ('a'): time 'x' is not a number"),
        ('[{"ph": "X", "name": "a", "ts": 1, "dur": -1}]', "its duration -1 is negative"),
        ('[{"ph": "X", "name": "a", "ts": 1', "has no end"),
        ('[{"ph": 7}]', "are not trace events"),
        ("{}", "no list of trace events"),
    ],
)
def test_view__damaged__says_what_and_where(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as error:
        trace.read(written(tmp_path, "trace_view.json", text))

    assert what in str(error.value)


def exported(folder, name):
    """What export_chrome_trace of torch_npu writes: more events of the host than are looked at first, then the device's."""
    host = [
        span("aten::add", 7, 7, str(100 + place), 0.5, "cpu_op", **{"Call stack": "a" * 200}) for place in range(400)
    ]
    kernel = span("MatMulV2", 9, 3, "150.250", 20.5, **{"Task Type": "AI_CORE"})
    events = [*host, kernel, *process(7, "Python"), *process(9, "Ascend Hardware", "NPU"), thread(9, 3, "Stream 3")]
    return written(folder, name, json.dumps(events))


def test_read__timeline_under_another_name__by_its_content(tmp_path: Path) -> None:
    for name in ("my_trace.json", "rank1/prof.json", "rank2/prof.json.gz"):
        path = exported(tmp_path, name.removesuffix(".gz"))
        if name.endswith(".gz"):
            path.with_name("prof.json.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
            path = path.with_name("prof.json.gz")
        for read in (trace.read, trace.salvage):
            recording = read(path)
            (timeline,) = recording.timelines
            assert recording.format == "ascend-trace-view"
            assert timeline.events.duration[timeline.events.is_work].tolist() == [20_500]
    (timeline,) = trace.read(tmp_path / "rank1").timelines
    assert timeline.rank == 1
    assert timeline.events.is_work.sum() == 1
