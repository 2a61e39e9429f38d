"""Kineto traces as recordings: ranks, devices, versions, flows and shapes; and plain Chrome trace events."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.trace.model.events import KINDS, EventTable
from perfgate.trace.model.recording import Recording
from perfgate.trace.model.spans import launch_starts
from perfgate.trace.readers.contradictions import contradictions
from perfgate.trace.readers.formats import kineto
from tests.samples import recorded
from tests.wording import text_of, worded

DATA = Path(__file__).parents[2] / "data" / "trace"


def read(folder: Path, document: Any, name: str = "trace.json") -> Recording:
    text = json.dumps(document).encode()
    path = folder / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return trace.read(path)


def kernel(name: str, device: Any, start: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": 2,
            "args": {"device": device, **arguments}}  # fmt: skip


def op(name: str, start: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 50, "tid": 50, "ts": start, "dur": 2, "args": arguments}


def texts(events: EventTable, column: str) -> list[Any]:
    return [None if code < 0 else events.names[code] for code in getattr(events, column).tolist()]


def test_read__two_devices__a_timeline_each_with_the_host_in_both(tmp_path: Path) -> None:
    events = [op("aten::mm", 1), kernel("a", 0, 5), kernel("b", 1, 6), kernel("c", 0, 9)]
    recording = read(tmp_path, {"schemaVersion": 1, "distributedInfo": {"rank": 2}, "traceEvents": events})

    assert [timeline.label for timeline in recording.timelines] == ["rank 2, device 0", "rank 2, device 1"]
    assert [texts(timeline.events, "name") for timeline in recording.timelines] == [
        ["aten::mm", "a", "c"],
        ["aten::mm", "b"],
    ]


def test_read__no_device__one_timeline_and_why(tmp_path: Path) -> None:
    recording = read(tmp_path, {"schemaVersion": 1, "traceEvents": [op("aten::mm", 1)]}, "rank-34_trace.json.gz")

    (timeline,) = recording.timelines
    assert (timeline.rank, timeline.device, timeline.steps) == (34, None, None)
    assert set(recording.absent) == {"device", "steps"}


def test_read__launches_and_nothing_on_a_device__said_that_it_was_not_recorded(tmp_path: Path) -> None:
    """As torch writes it if CUPTI gives no events: https://github.com/pytorch/kineto/issues/859."""
    call = {**op("cudaLaunchKernel", 1, correlation=4), "cat": "cuda_runtime"}
    wait = {**op("cudaDeviceSynchronize", 9, correlation=5), "cat": "cuda_runtime"}
    copy = {**kernel("Memcpy HtoD", 0, 5, correlation=4), "cat": "gpu_memcpy"}

    absent = read(tmp_path, {"schemaVersion": 1, "traceEvents": [call, wait]}).absent

    assert (absent["device"].code, absent["device"].values) == ("notes.device-unrecorded", {"launches": 1})
    assert "device" not in read(tmp_path, {"schemaVersion": 1, "traceEvents": [call, copy]}).absent


@pytest.mark.parametrize(
    ("name", "rank"),
    [("sampled_rank-0.json", 0), ("rank3.json", 3), ("x_RANK_12.json", 12), ("frank5.json", None), ("host.json", None)],
)
def test_read__rank_in_the_name_of_the_file(tmp_path: Path, name: str, rank: Any) -> None:
    assert read(tmp_path, {"schemaVersion": 1, "traceEvents": []}, name).timelines[0].rank == rank


def test_read__device_that_the_arguments_do_not_name__the_process_is_the_device(tmp_path: Path) -> None:
    events = [{**kernel("a", None, 5), "pid": 3}, {**kernel("b", "cuda:1", 5), "pid": "Stream"}]
    recording = read(tmp_path, {"schemaVersion": 1, "traceEvents": events})

    assert [timeline.device for timeline in recording.timelines] == [None, 3]


def test_read__more_devices_than_a_machine_has__refused(tmp_path: Path) -> None:
    events = [kernel("a", number, 5) for number in range(257)]

    with pytest.raises(DocumentError, match="257 devices"):
        read(tmp_path, {"schemaVersion": 1, "traceEvents": events})


def test_read__header_before_and_behind_the_events__versions_and_settings(tmp_path: Path) -> None:
    recording = read(tmp_path, {
        "schemaVersion": 1, "cuda_runtime_version": 12040, "record_shapes": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}, {"id": 1, "name": "other"}],
        "traceEvents": [kernel("a", 0, 5)],
        "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2, "nccl_version": "2.17.1"}, "with_stack": 0,
    })  # fmt: skip

    assert recording.software == {"kineto.schema": "1", "nccl": "2.17.1", "cuda_runtime": "12.4"}
    assert recording.settings == {"record_shapes": "1", "with_stack": "0", "backend": "nccl", "world_size": "2",
                                  "device.0": "NVIDIA A100"}  # fmt: skip
    assert recording.timelines[0].rank == 1


@pytest.mark.parametrize("rank", [-1, "0", 2**40, None])
def test_read__rank_that_is_none__not_taken(tmp_path: Path, rank: Any) -> None:
    document = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": []}

    assert read(tmp_path, document).timelines[0].rank is None


def test_read__kernel_of_an_operator_with_shapes__has_its_shapes(tmp_path: Path) -> None:
    events = [op("aten::mm", 1, **{"External id": 7, "Input Dims": [[2, 3], [3, 4]]}), kernel("a", 0, 5, **{"External id": 7}),
              kernel("b", 0, 9, **{"External id": 8})]  # fmt: skip
    (timeline,) = read(tmp_path, {"schemaVersion": 1, "traceEvents": events}).timelines

    assert texts(timeline.events, "shape") == ["[[2, 3], [3, 4]]", "[[2, 3], [3, 4]]", None]


def test_read__request_ids__by_argument_and_by_range(tmp_path: Path) -> None:
    events = [
        {**op("request#17", 1), "cat": "user_annotation"},
        op("aten::mm", 2, request_id="r-1"),
        op("request#18", 3),
    ]
    (timeline,) = read(tmp_path, {"schemaVersion": 1, "traceEvents": events}).timelines

    assert texts(timeline.events, "request") == ["17", "r-1", None]


def test_read__native_npu__types_by_the_binary_and_launches_by_flow(tmp_path: Path) -> None:
    # Shape of torch-native-privateuse1: no correlation, the arrow stands right behind the event.
    launch = {"ph": "X", "cat": "privateuse1_runtime", "name": "Cast_39", "pid": 5, "tid": 6, "ts": 10, "dur": 1}
    flow = {"id": 535, "cat": "ac2g", "name": "ac2g"}
    run = {**kernel("Cast_39a2_high_performance_2", 0, 20, type="KERNEL_AIVEC", streamId=47), "tid": 47}
    events = [
        launch,
        {"ph": "s", "pid": 5, "tid": 6, "ts": 10, **flow},
        run,
        {"ph": "f", "pid": 0, "tid": 47, "ts": 20, **flow},
    ]
    (timeline,) = read(tmp_path, {"schemaVersion": 1, "traceEvents": events}).timelines

    work = timeline.events.of_kind("compute")
    assert texts(work, "group") == ["Cast"]
    assert launch_starts(work, timeline.events.of_kind("runtime")).tolist() == [10_000]


def test_read__folder_of_ranks__all_of_them_in_order(tmp_path: Path) -> None:
    for rank in (1, 0):
        read(tmp_path, {"schemaVersion": 1, "traceEvents": [kernel("a", rank, 5)]}, f"rank{rank}.pt.trace.json")

    assert [timeline.label for timeline in trace.read(tmp_path).timelines] == [
        "rank 0, device 0",
        "rank 1, device 1",
    ]


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("cpu-torch2.13/cnn-infer.pt.trace.json", "kineto"),
        ("cuda-hta/cpu_only_rank-34.json.gz", "kineto"),
        ("cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz", "kineto"),
        ("torch-native-privateuse1/excerpt.pt.trace.json", "kineto"),
        ("mstt-advisor/timeline_advice/trace_view.json.gz", "ascend-trace-view"),
        ("msinsight-misc/heatMap_trace_view.json", "ascend-trace-view"),
    ],
)
def test_read__recorded_sample__by_the_right_reader(name: str, format_name: str) -> None:
    path = recorded(name)

    assert trace.read(path).format == format_name


@pytest.mark.parametrize("name", ["cpu.json", "device.json", "old.json"])
def test_recognises__own_fixtures__kineto(name: str) -> None:
    assert kineto.recognises(DATA / name)


def test_read_chrome__pairs_nested_on_a_thread__spans_with_their_requests(tmp_path: Path) -> None:
    recording = read(tmp_path, [
        {"name": "outer", "ph": "B", "ts": 1, "pid": 2, "tid": 5, "args": {"request_id": 4}},
        {"name": "inner", "ph": "B", "ts": "2.5", "pid": 2, "tid": 5},
        {"name": "elsewhere", "ph": "B", "ts": 2, "pid": 2, "tid": 6},
        {"ph": "E", "ts": 3, "pid": 2, "tid": 5},
        {"ph": "E", "ts": 9, "pid": 2, "tid": 5},
        {"ph": "E", "ts": 9, "pid": 2, "tid": 5},
        {"name": "request#9", "ph": "X", "ts": 9, "dur": 1, "pid": 2, "tid": 5, "args": "anything"},
    ])  # fmt: skip

    (timeline,) = recording.timelines
    events = timeline.events
    assert recording.format == "chrome"
    assert list(zip(texts(events, "name"), events.start.tolist(), events.duration.tolist(), texts(events, "request"))) == [
        ("inner", 2500, 500, None), ("outer", 1000, 8000, "4"), ("request#9", 9000, 1000, "9"),
    ]  # fmt: skip
    assert text_of(recording.absent["spans"]) == "1 spans began but never ended, and are left out"


def test_read_chrome__names_of_processes_and_threads__say_what_ran_where(tmp_path: Path) -> None:
    def called(pid: int, what: str, name: str, tid: int = 0) -> dict[str, Any]:
        return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name, "labels": name}}

    def span(name: str, pid: int, tid: int = 1) -> dict[str, Any]:
        return {"name": name, "ph": "X", "ts": 1, "dur": 1, "pid": pid, "tid": tid}

    # The names may stand behind what they name.
    recording = read(tmp_path, [
        span("MatMul", 1), span("MEMCPY_ASYNC", 1), span("hcom_allReduce_", 1), span("serve", 2), span("Add", 3, 8),
        span("anything", 4), called(1, "process_name", "My device"), called(1, "process_labels", "NPU 3"),
        called(2, "process_name", "server"), called(3, "process_name", "converted"), called(3, "thread_name", "Stream 8", 8),
        called(4, "process_name", "GPU 1 HCCL"),
    ])  # fmt: skip

    assert [timeline.device for timeline in recording.timelines] == [None, 1, 3]
    kinds = {
        (timeline.device, name): KINDS[kind]
        for timeline in recording.timelines
        for name, kind in zip(texts(timeline.events, "name"), timeline.events.kind.tolist())
        if name != "serve"
    }
    assert kinds == {(None, "Add"): "compute", (1, "anything"): "comm", (3, "MatMul"): "compute", (3, "MEMCPY_ASYNC"): "copy",
                     (3, "hcom_allReduce_"): "comm"}  # fmt: skip
    assert all("serve" in texts(timeline.events, "name") for timeline in recording.timelines)


def test_read_chrome__span_that_ends_before_it_begins__left_out_alone_and_said_first(tmp_path: Path) -> None:
    events = [
        {"name": "a", "ph": "B", "ts": 0, "pid": 1},
        {"name": "b", "ph": "B", "ts": 5, "pid": 1},
        {"ph": "E", "ts": 4, "pid": 1},
        {"ph": "E", "ts": 9, "pid": 1},
        {"ph": "E", "ts": 9, "pid": 1},
    ]

    recording = read(tmp_path, events)

    (timeline,) = recording.timelines
    assert (texts(timeline.events, "name"), timeline.events.duration.tolist()) == (["a"], [9000])
    assert worded(contradictions(timeline)) == [
        "1 of 2 spans end before they begin; their times are damaged, and they are left out"
    ]
    assert text_of(recording.absent["begins of spans"]).startswith("1 spans ended without a start")


def test_readers__process_without_torch_and_scipy__read_analyse_and_draw() -> None:
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from perfgate.flows.trace.trace import Choice\n"
        "from perfgate.flows.trace.trace import trace_gaps, trace_steps, trace_top\n"
        f"path, all_of_it = Path({str(DATA / 'device.json')!r}), Choice()\n"
        "trace_top(path, all_of_it, by='type', host=False, longer=None)\ntrace_steps(path, all_of_it, step_by=None)\n"
        "assert trace_gaps(path, all_of_it, exposed=True, shortest=0).timelines[0].busy\n"
        "from perfgate.flows.trace.flame import trace_flame\nfrom perfgate.flows.trace.timeline import trace_timeline\n"
        "assert trace_flame(path, None, all_of_it, note=print) and trace_timeline(path, all_of_it)\n"
        "sys.exit(', '.join({'torch', 'torch_npu', 'scipy', 'sqlalchemy', 'jinja2'} & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def spanned(category: str, name: str, start: float, **arguments: Any) -> dict[str, Any]:
    return {**kernel(name, 0, start), "cat": category, "args": arguments}


def test_read__device_work_of_a_category_nobody_knows__is_device_work_and_joined_with_its_launch(
    tmp_path: Path,
) -> None:
    events = [
        spanned("xpu_runtime", "urEnqueueKernelLaunch", 1, correlation=7),
        spanned("brand_new_activity", "gemm", 5, device=0, stream=3, correlation=7),
        spanned("mtia_ccp_events", "fc_kernel", 9, device=0),
        spanned("mtia_ccp_events", "event_wait", 11, device=0),
        spanned("mtia_ccp_events", "event_record", 13, device=0),
    ]
    (timeline,) = read(tmp_path, {"schemaVersion": 1, "traceEvents": events}).timelines
    kinds = [KINDS[code] for code in timeline.events.kind.tolist()]
    assert (timeline.device, kinds) == (0, ["runtime", "compute", "compute", "other", "other"])
    assert timeline.events.correlation.tolist()[:2] == [7, 7]


def test_read__events_of_unknown_categories__are_counted_and_named(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 1),
        spanned("thermal_zone", "hot", 2),
        spanned("thermal_zone", "hot", 4),
        spanned("overhead", "x", 5),
    ]
    recording = read(tmp_path, {"schemaVersion": 1, "traceEvents": events})
    assert [text_of(note) for note in recording.notes] == [
        f"{tmp_path / 'trace.json'}: 2 events have unknown categories: thermal_zone (2)"
    ]


def test_read__kernels_that_describe_their_collective__group_ranks_and_bytes(tmp_path: Path) -> None:
    described = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "Group size": 2,
        "dtype": "BFloat16",
        "Process Group Name": "3",
        "Process Group Ranks": "[5, 9]",
    }
    long = {**described, "Process Group Name": "4", "Process Group Ranks": "[0, 1, 2, ...]"}
    header = {
        "rank": 5,
        "world_size": 16,
        "pg_config": [
            {"pg_name": "4", "pg_desc": "mesh_dp", "ranks": [0, 5]},
            {"pg_name": "6", "pg_desc": "mesh_pp", "ranks": [5, 13]},
            {"pg_name": "7", "pg_desc": "mesh_pp", "ranks": [4, 12]},
        ],
    }
    events = [kernel("ncclDevKernel_AllReduce", 0, 5, **described), kernel("ncclDevKernel_AllReduce", 0, 9, **long)]
    (timeline,) = read(tmp_path, {"schemaVersion": 1, "distributedInfo": header, "traceEvents": events}).timelines
    assert timeline.collective_kernels is not None
    assert [(one.group, one.ranks, one.size, one.sent) for one in timeline.collective_kernels] == [
        ("3", (5, 9), 2, 2000),
        ("4", (), 2, 2000),
    ]
    assert timeline.groups == {"4": (0, 5), "6": (5, 13), "7": (4, 12), "pp": (5, 13)}
