import gzip
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perfgate.errors import DocumentError
from perfgate.measuring.counting.collect import CallTrace
from perfgate.trace.model.arithmetic import Intervals, union_length
from perfgate.trace.model.events import KINDS, nanoseconds
from perfgate.trace.model.recording import Timeline
from perfgate.trace.readers.formats.kineto import read_kineto
from perfgate.trace.scanner.chrome_events import TraceText, event_lists
from tests.each import each
from tests.samples import recorded

DATA = Path(__file__).parents[2] / "data" / "trace"
RECORDED = [
    "cpu-torch2.13/cnn-infer-stack.pt.trace.json",
    "cpu-torch2.13/cnn-infer.pt.trace.json",
    "cpu-torch2.13/contig.pt.trace.json",
    "cuda-hta/a100_alexnet.json.gz",
    "cuda-hta/a100_event_sync.json.gz",
    "cuda-hta/cpu_only_rank-34.json.gz",
    "cuda-hta/mi250_rocm62.json.gz",
    "cuda-hta/nccl_data.json.gz",
    "cuda-hta/sampled_rank-0.json.gz",
    "cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz",
]


def rows(table):
    return [
        (table.names[name], KINDS[kind], start, duration, table.tracks[track])
        for name, kind, start, duration, track in zip(
            table.name.tolist(),
            table.kind.tolist(),
            table.start.tolist(),
            table.duration.tolist(),
            table.track.tolist(),
        )
    ]


def written(folder, text, name="trace.json"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_read_kineto__cpu_trace__times_exact_to_the_nanosecond() -> None:
    thread = ("27249", "27249")
    forward = 'model.py(7): forward "quoted ] } \\\\" 名'

    assert rows(read_kineto(DATA / "cpu.json")) == [
        ("perfgate.call", "annotation", 1790857026000000000, 100000, thread),
        ("aten::linear", "host_op", 1790857026000010125, 50001, thread),
        ("aten::addmm", "host_op", 1790857026000020250, 30500, thread),
        ("[memory]", "memory", 1790857026000021000, 0, thread),
        (forward, "python", 1790857026000005000, 90000, thread),
        ("PyTorch Profiler (0)", "other", 1790857026000000000, 120000, ("Spans", "PyTorch Profiler")),
    ]


def test_read_kineto__device_trace__kernels_copies_and_collectives_apart() -> None:
    table = read_kineto(DATA / "device.json")

    assert [(name, kind) for name, kind, *_ in rows(table)] == [
        ("perfgate.call", "annotation"),
        ("aten::mm", "host_op"),
        ("cudaLaunchKernel", "runtime"),
        ("volta_sgemm_128x64_nn", "compute"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("Memset (Device)", "copy"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "comm"),
        ("perfgate.call", "device_annotation"),
    ]
    assert table.correlation.tolist() == [-1, -1, 218, 218, 219, 220, 221, -1]


def test_call_trace__device_trace__kernels_without_copies() -> None:
    trace = CallTrace(Timeline(None, None, read_kineto(DATA / "device.json")), calls=1, path=DATA / "device.json")

    # Kernel 540..600 and collective 590..630: 90 us together.
    assert union_length(Intervals(trace.kernels().start, trace.kernels().end)) == 90_000
    assert len(trace.device_work()) == 4
    assert [trace.events.names[name] for name in trace.host_ops().name.tolist()] == ["aten::mm"]


def test_read_kineto__bare_list_of_2021__old_categories_and_text_times() -> None:
    table = read_kineto(DATA / "old.json")

    assert [row[1:] for row in rows(table)] == [
        ("host_op", 1623143093496523000, 21000, ("25738", "25738")),
        ("compute", 1623143093496551000, 9000, ("0", "stream 7")),
        ("copy", 1623143093496560500, 1234, ("0", "stream 7")),
        ("runtime", 1623143093496560000, 3000, ("25738", "25738")),
    ]


@pytest.mark.recordings
@pytest.mark.parametrize("sample", RECORDED)
def test_read_kineto__recorded_sample__equal_to_decimal_arithmetic(sample: str) -> None:
    path = recorded(sample)
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
        events = [event for event in json.load(stream, parse_float=Decimal)["traceEvents"] if event["ph"] == "X"]

    found = [row for row in rows(read_kineto(path)) if row[1] != "memory"]

    assert [(name, start, duration) for name, _, start, duration, _ in found] == [
        (event["name"], int(Decimal(event["ts"]) * 1000), int(Decimal(event["dur"]) * 1000)) for event in events
    ]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64, 1000])
def test_event_lists__any_block_size__same_events(block: int) -> None:
    with TraceText(DATA / "cpu.json") as text:
        lists = list(event_lists(text, dict[str, Any], block_bytes=block, advice=None))

    assert [event for events in lists for event in events] == json.loads((DATA / "cpu.json").read_text())["traceEvents"]


@pytest.mark.parametrize("block", [64, 200, 1000])
def test_event_lists__borders_inside_strings_and_arguments__same_events(tmp_path: Path, block: int) -> None:
    # What looks like the end of one event and the beginning of the next, where it is neither.
    false = '{"x": "a}, {\\"ph\\"", "of": [{"ph": 1}, {"ph": 2}, {"name": 3}]}'
    events = [{"ph": "X", "name": f'k{number} }}, {{"ph": "X"', "args": json.loads(false)} for number in range(40)]
    path = written(tmp_path, json.dumps({"traceEvents": events, "after": events[:3]}))

    with TraceText(path) as text:
        lists = list(event_lists(text, dict[str, Any], block_bytes=block, advice=None))

    assert [event for found in lists for event in found] == events


@each(
    "text, expected",
    [
        (b"0", 0),
        (b"1790857026000010.125", 1790857026000010125),
        (b"1790857026000010.1", 1790857026000010100),
        (b"12.", 12000),
        (b'"12.5"', 12500),
        (b"-3.25", -3250),
        (b"1.5e3", 1500000),
        (b"0.0004", 0),
        (b"0.0005", 0),
        (b"0.0015", 2),
        (b"0.00051", 1),
    ],
)
def test_nanoseconds__microseconds_as_text__exact(text: bytes, expected: int) -> None:
    assert nanoseconds(text) == expected


@each("text", [b"", b"null", b"NaN", b'"inf"', b"1e999999999", b"9" * 40, b"1" * 500, b"true", b"[1]"])
def test_nanoseconds__no_time__value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match="time"):
        nanoseconds(text)


@pytest.mark.parametrize("cut", [1, 40, 400, 1000, 1500])
def test_read_kineto__file_cut_off__says_so_and_what_to_do(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, (DATA / "cpu.json").read_bytes()[:cut])

    with pytest.raises(DocumentError, match=r"trace\.json: .*(cut off|no list of trace events)"):
        read_kineto(path)


def test_read_kineto__gzip_cut_off__says_so(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress((DATA / "cpu.json").read_bytes())[:-20], "trace.json.gz")

    with pytest.raises(DocumentError, match="compressed file is cut off or damaged"):
        read_kineto(path)


def test_read_kineto__plain_text_named_gz__read_as_what_it_is(tmp_path: Path) -> None:
    assert len(read_kineto(written(tmp_path, "[]", "trace.json.gz"))) == 0
    with pytest.raises(DocumentError, match="compressed file is cut off or damaged"):
        read_kineto(written(tmp_path, "no JSON", "trace.json.gz"))


def test_read_kineto__missing_file__says_so(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read"):
        read_kineto(tmp_path / "absent.json")


@pytest.mark.parametrize("text", ["[]", '{"traceEvents": []}', '{"a": {"b": [1]}, "traceEvents" : [ ] , "c": 1}'])
def test_read_kineto__no_events__empty_table(tmp_path: Path, text: str) -> None:
    assert len(read_kineto(written(tmp_path, text))) == 0


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "no list of trace events"),
        ('{"metrics": [1]}', "no list of trace events"),
        ("[1, 2]", "not trace events"),
        ('[{"ph": "X", "name": 7, "ts": 1}]', "not trace events"),
        ('[{"ph": "X"} {"ph": "X"}]', "not trace events"),
        ('[{"ph": "X", "name": "a"}]', r"event 0 \('a'\): time '' is not a number"),
        ('[{"ph": "X", "ts": 1}, {"ph": "X", "name": "b", "ts": "soon"}]', r"event 1 \('b'\): time 'soon'"),
        ('[{"ph": "X", "name": "c", "ts": 1, "dur": -2}]', "its duration -2 is negative"),
        ('[{"ph": "X", "name": "d", "ts": 1e999999999}]', "146 years"),
        ('[{"ph": "X", "ts": 1}}', "ends with a brace"),
        ('[{"ph": "X", "args": {"x": ' + "[" * 100_000 + "]" * 100_000 + "}}]", "not trace events"),
    ],
)
def test_read_kineto__hostile_file__document_error(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(DocumentError, match=match):
        read_kineto(written(tmp_path, text))


def test_read_kineto__name_that_is_no_utf8__document_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="not trace events"):
        read_kineto(written(tmp_path, b'[{"ph": "X", "name": "\xff\xfe", "ts": 1}]'))


def test_read_kineto__event_without_end__document_error_before_memory_runs_out(tmp_path: Path) -> None:
    path = written(tmp_path, b'[{"name": "' + b"a" * (24 << 20))

    with pytest.raises(DocumentError, match="one event is larger"):
        read_kineto(path)


def test_read_kineto__sixteen_megabytes__memory_below_the_file(tmp_path: Path) -> None:
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.5, "dur": 1, "args": {"p": "%s"}}'
    path = written(tmp_path, b"[" + b",".join([event % (b"x" * 900)] * 16_000) + b"]")

    tracemalloc.start()
    table = read_kineto(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(table) == 16_000
    # Blocks of 4 MiB take some copies and masks, whatever the size of the file; numpy's temporaries are in this figure.
    assert peak < 80 << 20
