"""Files that no reader reads, recognised by their first bytes: refused by name, with
the command that converts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.scanner.compressed import opened, unreadable

_HEAD_BYTES = 4096
_MOST_FILES = 1000
_POINTER = rb"version https://git-lfs\.github\.com/spec"
_POINTER_BYTES = 1024  # a pointer is smaller (git-lfs, docs/spec.md)


class _Format(NamedTuple):
    name: str
    is_like: Callable[[str, bytes], object]
    advice: Activity


def _suffix(*suffixes: str) -> Callable[[str, bytes], object]:
    return lambda name, _: name.endswith(suffixes)


def _matches(pattern: bytes) -> Callable[[str, bytes], object]:
    searched = re.compile(pattern)
    return lambda _, head: searched.match(head)


_RECORD_A_TIMELINE = Activity("it holds no timeline; record one with torch.profiler")
# traceconv writes the queues of a GPU, which are no threads, as asynchronous spans in
# whole microseconds (perfetto: src/trace_processor/export_json.cc).
_ROCPROF = Activity(
    "it has no conversion that perfgate reads; record with torch.profiler"
)
_PICKLED_SNAPSHOT = re.compile(
    rb"\x80[\x02-\x05](?s:.){0,64}(?:segments|device_traces)"
)
_SQLITE = b"SQLite format 3\0"
# A table of rocmProfileData; the tables of rocprofv3 begin alike, and end with the id of
# the recording.
_RPD_TABLE, _ROCPD = "rocpd_api", "rocpd_"
_OF_RPD = _Format(
    "a database of rocmProfileData",
    _suffix(),
    Activity("convert it: python rpd2tracing.py FILE trace.json"),
)
_OF_ROCPROFV3 = _Format(
    "a database of rocprofv3",
    _suffix(),
    _ROCPROF,
)
# In this order; the names of files count only if their content is binary.
_FORMATS = (
    _Format(
        "an empty file",
        _matches(rb"\s*\Z"),
        Activity("copy it again, or record the trace again"),
    ),
    _Format(
        "a zip archive",
        lambda name, head: head.startswith(b"PK\x03\x04") and not name.endswith(".zip"),
        Activity("unpack it: unzip FILE"),
    ),
    _Format(
        "compressed by xz",
        lambda name, head: head.startswith(b"\xfd7zXZ\0") and ".tar" not in name,
        Activity("unpack it: xz -d FILE"),
    ),
    _Format(
        "compressed by bzip2",
        lambda name, head: head.startswith(b"BZh") and ".tar" not in name,
        Activity("unpack it: bzip2 -d FILE"),
    ),
    _Format(
        "a pointer of Git LFS",
        _matches(_POINTER),
        Activity("fetch the file itself: git lfs pull"),
    ),
    _Format(
        "UTF-16 text",
        _matches(rb"\xff\xfe|\xfe\xff|(?:\s\x00)*[\[{]\x00|(?:\x00\s)*\x00[\[{]"),
        Activity("convert it: iconv -f UTF-16 -t UTF-8 FILE > CONVERTED"),
    ),
    _Format(
        "a report of Nsight Systems",
        _suffix(".nsys-rep", ".qdrep"),
        Activity("export it for perfgate: nsys export --type sqlite FILE"),
    ),
    _Format(
        "a table or list that nsys made of a report",
        _matches(
            rb'"?(?:Start \(ns\)"?,"?Duration|Time \(%\)"?,"?Total Time)|\{"(?:Type|data|UserData)":[^\n]*\n\{"Type":'
            rb'|\{"Type":\d+,'
        ),
        Activity("export its report for perfgate: nsys export --type sqlite REPORT"),
    ),
    _Format(
        "a report of Nsight Compute",
        _suffix(".ncu-rep"),
        _RECORD_A_TIMELINE,
    ),
    _Format(
        "a Perfetto trace",
        _suffix(".pftrace", ".perfetto-trace"),
        Activity(
            "convert its threads: traceconv json FILE trace.json; for the work of a GPU record with torch.profiler"
        ),
    ),
    _Format(
        "a profile of XLA",
        _suffix(".xplane.pb"),
        Activity(
            "take the trace.json.gz next to it, or convert it: xprof's raw_to_tool_data(FILE, 'trace_viewer')"
        ),
    ),
    _Format(
        "a profile of cProfile",
        # A dictionary in Python's marshal format, whose keys have three members.
        _matches(rb"[\x7b\xfb][\x29\xa9]\x03"),
        _RECORD_A_TIMELINE,
    ),
    _Format(
        "a snapshot of CUDA's memory",
        lambda name, head: (
            name.endswith((".pickle", ".pkl")) or _PICKLED_SNAPSHOT.match(head)
        ),
        Activity(
            "it holds no times; look at it with torch.cuda._memory_viz or docs.pytorch.org/memory_viz"
        ),
    ),
    _Format(
        "a profile of pprof",
        _suffix(".pprof", ".pb.gz", ".prof"),
        Activity("convert it: pprof -traces FILE; or record a trace"),
    ),
    _Format(
        "a Chakra execution trace",
        _suffix(".et"),
        Activity("name the Kineto trace that was recorded with it"),
    ),
    _Format(
        "an execution trace of PyTorch (Chakra)",
        _matches(rb'\s*\{\s*"(?:schema"\s*:\s*"[\d.]+-chakra|workload_graph"\s*:)'),
        Activity("name the Kineto trace that was recorded with it"),
    ),
    _Format(
        "a result of rocprofv3",
        _matches(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:'),
        _ROCPROF,
    ),
    _Format(
        "a table of rocprof",
        _matches(
            rb'"?(?:Kind"?,"?(?:Agent_Id|Domain|Function)|Domain"?,"?Function|Name"?,"?Calls"?,"?TotalDurationNs'
            rb'|Index"?,"?KernelName"?,"?gpu-id)"?,'
        ),
        _ROCPROF,
    ),
    _Format(
        "a table of msprof op, of one operator alone",
        _matches(
            rb"(?:\xef\xbb\xbf)?(?:Op Name,Op Type,Task Duration\(us\),Block (?:Dim|Num),Mix|block_id,sub_block_id,)"
        ),
        Activity(
            "record the program instead: msprof --output=DIR COMMAND, or torch_npu.profiler"
        ),
    ),
    _Format(
        "a result of msprof-analyze for several ranks",
        _matches(rb"(?:\xef\xbb\xbf)?Step,Type,Index,Computing"),
        Activity("name the folder in which the *_ascend_pt folders of the ranks lie"),
    ),
    _Format(
        "a table of tasks of msprof",
        _matches(rb"(?:\xef\xbb\xbf)?(?:Device_id,)?kernel_name,kernel_type,stream_id"),
        Activity("name the folder that it is from, or its op_summary_*.csv"),
    ),
    _Format(
        "a table that a spreadsheet saved with semicolons",
        _matches(rb"[^,\n]*;[^,\n]*Duration\(us\)\W"),
        Activity("take the file that the profiler wrote"),
    ),
    _Format(
        "a snapshot of memory",
        _matches(rb'\s*\{\s*"(?:segments|device_traces)"\s*:'),
        Activity("it holds no times; look at it with docs.pytorch.org/memory_viz"),
    ),
    _Format(
        "a speedscope profile",
        _matches(
            rb'\s*\{\s*"(?:\$schema"\s*:\s*"https://www\.speedscope\.app|exporter"\s*:\s*"speedscope)'
        ),
        Activity("name the trace that it was made from"),
    ),
    _Format(
        "a profile of samples, as of pyinstrument, Scalene or a browser",
        _matches(
            rb'\s*\{\s*"(?:start_time"\s*:[^{}]*"sample_count"|alloc_samples"|nodes"\s*:\s*\[\{"id"|meta"\s*:\s*\{[^{}]*"interval")'
        ),
        _RECORD_A_TIMELINE,
    ),
    _Format(
        "a list of collapsed stacks",
        _matches(rb"(?![\s{\[])[^\n;]+(?:;[^\n;]+)+ \d+\r?\n"),
        _RECORD_A_TIMELINE,
    ),
    _Format(
        "a list of lists, such as the memory timeline of torch.profiler",
        _matches(rb"\s*\[\s*\["),
        Activity("name the trace that was recorded with it"),
    ),
    _Format(
        "a protocol buffer of Perfetto, XLA or pprof",
        _suffix(".pb", ".perfetto", ".pb.zst"),
        Activity("convert it to JSON with the tool that wrote it"),
    ),
    _Format(
        "a page of HTML",
        _matches(rb"(?i)\s*<(?:!doctype html|html)"),
        Activity("download the file itself"),
    ),
    _Format(
        "trace events, one a line",
        _matches(rb'\s*\{[^\n]*"ph"\s*:[^\n]*\}[ \t\r]*\n\s*\{'),
        Activity("make a list of them: jq -s . FILE > trace.json"),
    ),
)


def refuse_foreign_below(folder: Path) -> None:
    """As ``refuse_foreign``, for the first such file in a folder that has no recording."""
    for path in sorted(islice(folder.rglob("*"), _MOST_FILES)):
        refuse_foreign(path)


def refuse_pointers(folder: Path, *, but: Collection[str] = ()) -> None:
    """As ``refuse_foreign``, for the first pointer of Git LFS among the files in a
    folder: a table of it would be empty.
    """
    # A file that cannot be read is refused where it is needed.
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            is_small = path.is_file() and path.stat().st_size < _POINTER_BYTES
            if (
                is_small
                and path.name not in but
                and re.match(_POINTER, path.read_bytes())
            ):
                refuse_foreign(path)


def refuse_foreign(path: Path) -> None:
    """Raise DocumentError, which names the format and how to convert it, for a file of
    another kind than recordings.
    """
    if not path.is_file():
        return
    heads = []
    # As stored, and unpacked: a pointer of Git LFS is plain text, whatever its name.
    for open_file in (_opened_as_it_is, opened):
        try:
            with open_file(path) as stream:
                heads.append(stream.read(_HEAD_BYTES))
        except unreadable(path):
            continue
    name = path.name.lower()
    for foreign in _FORMATS:
        if any(foreign.is_like(name, head) for head in heads):
            raise _refusal(path, foreign)
    if any(head.startswith(_SQLITE) for head in heads):
        _refuse_foreign_database(path)


def _refuse_foreign_database(path: Path) -> None:
    # Imported here because recognising a trace imports every reader.
    from perfgate.trace.readers.ascend.database import open_database

    tables: tuple[str, ...] = ()
    with suppress(DocumentError), open_database(path) as database:
        tables = database.tables
    if _RPD_TABLE in tables:
        raise _refusal(path, _OF_RPD)
    if any(table.startswith(_ROCPD) for table in tables):
        raise _refusal(path, _OF_ROCPROFV3)


def _refusal(path: Path, foreign: _Format) -> DocumentError:
    return DocumentError(
        "{path} is {format}, which perfgate does not read; {advice}",
        path=path,
        format=foreign.name,
        advice=foreign.advice,
    )


def _opened_as_it_is(path: Path) -> IO[bytes]:
    return path.open("rb")
