"""Files of other kinds: read if they only lack a name, else refused by the name of their format."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import marshal
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perfgate import trace
from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.flows.trace.gathering import Place, trace_reduce
from tests.each import each

from .ascend import written
from .job import recorded, steps

_EVENTS = json.dumps({"traceEvents": steps(2)})


@each(
    "name, content, said",
    [
        ("a.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
        ("a.json", _EVENTS.encode("utf-16"), "iconv -f UTF-16"),
        ("a.json", _EVENTS.encode("utf-16-le"), "iconv -f UTF-16"),
        ("a.json", f"\n {_EVENTS}".encode("utf-16-be"), "iconv -f UTF-16"),
        ("a.nsys-rep", b"\x00\x01", "nsys export --type sqlite"),
        ("a.pftrace", b"\x0a\x10", "traceconv json"),
        ("host.xplane.pb", b"\x0a\x10", "trace.json.gz next to it"),
        ("memory.pickle", b"\x80\x04", "memory_viz"),
        ("a.pb.gz", gzip.compress(b"\x0a\x04"), "pprof"),
        ("et.json", b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "Chakra"),
        ("workload.json", b'{"workload_graph": [{"Id": 216, "Name": "COMP_NODE"}]}', "Chakra"),
        ("a.json", b'{"segments": [], "device_traces": []}', "memory_viz"),
        ("a.json", b"<!DOCTYPE html><html>", "download the file"),
        (
            "a.json.gz",
            gzip.compress(b'{"rocprofiler-sdk-tool":[{"metadata":{}}]}'),
            "no conversion that perfgate reads; record with torch.profiler",
        ),
        (
            "a.csv",
            b'"Kind","Agent_Id","Queue_Id"\n"KERNEL_DISPATCH","Agent 4",1\n',
            "no conversion that perfgate reads; record with torch.profiler",
        ),
        ("OpBasicInfo.csv", b"Op Name,Op Type,Task Duration(us),Block Dim,Mix Block Dim,\n", "msprof --output"),
        (
            "kernels.csv",
            b"Name;Type;Accelerator Core;Duration(us);Wait Time(us)\nA;A;AI_CORE;1,5;0\n",
            "profiler wrote",
        ),
        ("cluster_step_trace_time.csv", b"Step,Type,Index,Computing,Free\n1,rank,0,1,1\n", "*_ascend_pt folders"),
        ("task_time.csv", b"Device_id,kernel_name,kernel_type,stream_id,task_id\n0,a,AI_CORE,1,1\n", "op_summary"),
        ("PipeUtilization.csv", b"block_id,sub_block_id,aic_time(us)\n0,vector0,NA\n", "msprof --output"),
        ("a.json", b"", "an empty file"),
        ("a.json.gz", gzip.compress(b"\n"), "an empty file"),
        ("a.json", b"PK\x03\x04\x14\x00", "unzip"),
        ("a.json.xz", lzma.compress(b"{}"), "xz -d FILE"),
        ("a.json.bz2", bz2.compress(b"{}"), "bzip2 -d FILE"),
        ("a.json", "\n".join(map(json.dumps, steps(1))).encode(), "jq -s ."),
        ("a.json", b'[{"name": "row", "value": 1}]', "phase ph"),
        # What cProfile, pyinstrument 5.1, Scalene 2.0, py-spy 0.4, V8 and Firefox wrote.
        ("a.prof", marshal.dumps({("a.py", 1, "f"): (1, 1, 0.5, 0.5, {})}), "a profile of cProfile"),
        ("a.json", b'{"start_time": 1.5,"duration": 0.3,"sample_count": 101,"target": "a.py"}', "as of pyinstrument"),
        ("a.json", b'{\n    "alloc_samples": 0,\n    "args": [\n', "as of pyinstrument, Scalene"),
        ("a.cpuprofile", b'{"nodes":[{"id":1,"callFrame":{"functionName":"(root)"}}]}', "or a browser"),
        ("a.json", b'{"meta":{"categories":[],"interval":1},"libs":[]}', "or a browser"),
        ("a.txt", b"<module> (a.py:10);main (a.py:9) 5\n<module> (a.py:10) 1\n", "collapsed stacks"),
        # What torch's export_memory_timeline and nsys stats, nsys export and rocprof write.
        ("memory.json", b"[[1796034, 1796040], [[0, 4096], [0, 8192]]]", "memory timeline"),
        ("snapshot", pickle.dumps({"segments": [], "device_traces": [[]]}), "memory_viz"),
        ("trace.csv", b"Start (ns),Duration (ns),CorrId,GrdX\n1,2,3,1\n", "nsys export --type sqlite REPORT"),
        ("sum.csv", b"Time (%),Total Time (ns),Instances\n98.7,170,1\n", "nsys export --type sqlite REPORT"),
        (
            "a.json",
            b'{"data":["a","b"]}\n{"Type":80,"CudaEvent":{"startNs":"1"}}\n',
            "nsys export --type sqlite REPORT",
        ),
        (
            "stats.csv",
            b'"Name","Calls","TotalDurationNs","AverageNs"\n"a",1,2,2.0\n',
            "no conversion that perfgate reads; record with torch.profiler",
        ),
    ],
)
def test_read__other_format__refused_by_its_name_with_the_remedy(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for read in (trace.read, trace.salvage):
        with pytest.raises(DocumentError) as caught:
            read(path)
        assert said in str(caught.value)


@each(
    "table, said",
    [
        ("rocpd_api", "rpd2tracing.py"),
        ("rocpd_kernel_dispatch_00001234", "no conversion that perfgate reads; record with torch.profiler"),
    ],
)
def test_read__database_of_rocm__refused_by_its_name_with_the_remedy(tmp_path: Path, table: str, said: str) -> None:
    folder = tmp_path / table
    folder.mkdir()
    path = folder / "123_results.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE {table} (id INTEGER)")
        # The names are not in the first page of a database with many tables.
        for number in range(200):
            database.execute(f"CREATE TABLE a{number} (id INTEGER)")
        database.commit()
    for named in (path, folder):
        with pytest.raises(DocumentError, match=said):
            trace.read(named)


_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
_KERNELS = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n1,MatMul1,MatMul,AI_CORE,10.5,20\n"
_STEPS = (
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage\n0,1,20,0,0,0,5,25\n"
)


@each(
    "name",
    [
        "kernel_details.csv",
        "step_trace_time.csv",
        "op_statistic.csv",
        "communication.json",
        "analysis.db",
        "trace_view.json",
    ],
)
def test_read__file_of_an_ascend_folder_is_a_pointer__refused_with_the_command(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    output = folder / "ASCEND_PROFILER_OUTPUT"
    written(output, "kernel_details.csv", _KERNELS)
    written(output, name, _POINTER)

    with pytest.raises(DocumentError, match=rf"{name} is a pointer of Git LFS, .*git lfs pull"):
        trace.read(folder)


def test_reduce__timeline_is_a_pointer__tables_suffice(tmp_path: Path) -> None:
    output = tmp_path / "job_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    written(output, "kernel_details.csv", _KERNELS)
    written(output, "step_trace_time.csv", _STEPS)
    written(output, "trace_view.json", _POINTER)

    assert trace_reduce([Place(tmp_path)], say=print, workers=1, on=None, out=None).left_out == []


def test_reduce__table_of_kernels_is_cut_off__said(tmp_path: Path) -> None:
    output = tmp_path / "job_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    written(output, "kernel_details.csv", _KERNELS + "1,MatMul2,MatMul,AI_CORE,40.5,2")
    written(output, "step_trace_time.csv", _STEPS)

    notes = trace_reduce([Place(tmp_path)], say=print, workers=1, on=None, out=None).notes

    what = notes[0].values["what"]
    assert isinstance(what, Message)
    assert what.code == "notes.table-cut-off"


def test_read__folder_with_a_pointer_among_its_traces__refused_with_the_command(tmp_path: Path) -> None:
    written(tmp_path, "rank0.pt.trace.json", _EVENTS)
    written(tmp_path, "rank1.pt.trace.json", _POINTER)

    with pytest.raises(DocumentError, match=r"rank1.pt.trace.json is a pointer of Git LFS, .*git lfs pull"):
        trace.read(tmp_path)


@each(
    "name, content, said",
    [
        ("plugins/profile/2026_11_29/host.xplane.pb", b"\x0a\x10", "raw_to_tool_data"),
        ("run/report.nsys-rep", b"\x00\x01", "nsys export --type sqlite"),
        ("PROF_1/device_0/timeline/msprof_0_2_1.json", b"[]", "msprof --export=on"),
        ("PROF_1/device_0/summary/op_summary_0_2_1.csv", b"Op Name\n", "msprof --export=on"),
        ("worker0.dat", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
    ],
)
def test_read__folder_of_another_format__refused_by_its_name(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    folder = tmp_path / f"of {len(name)}"
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    with pytest.raises(DocumentError, match=said):
        trace.read(folder)


def test_read__text_with_the_mark_of_utf_8__as_without(tmp_path: Path) -> None:
    plain = recorded(tmp_path / "plain.json", steps(2))
    path = tmp_path / "marked.json"
    path.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())

    assert trace.read(path).timelines[0].rank == trace.read(plain).timelines[0].rank
    assert len(trace.read(path).timelines[0].events) == len(steps(2))


@each("name", ["trace.json", "trace", "profile.dat", "trace.json.gz"])
def test_read__whatever_its_name__by_its_content(tmp_path: Path, name: str) -> None:
    plain = recorded(tmp_path / "plain.json", steps(2))
    for content in (plain.read_bytes(), gzip.compress(plain.read_bytes())):
        path = tmp_path / name
        path.write_bytes(content)
        assert len(trace.read(path).timelines[0].events) == len(steps(2))
