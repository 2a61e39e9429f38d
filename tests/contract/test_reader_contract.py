"""What every reader of recordings promises, run over all members of the folder ``readers``."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.trace.model.recording import Recording
from perfgate.trace.readers.reader import Reader, all_readers

READERS = all_readers()
# One path of every kind that some reader takes, so that each reader meets those of all others.
PATHS = (
    "profile/host_1_20260101000000000_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    "ASCEND_PROFILER_OUTPUT/trace_view.json",
    "trace_view.json",
    "trace_view.json.gz",
    "ascend_pytorch_profiler_0.db",
    "PROF_000001_20260101000000000_ABC/mindstudio_profiler_output/op_summary_20260101000000.csv",
    "msprof_20260101000000.json",
    "op_summary_1.csv",
    "worker0.1700000000000.pt.trace.json",
    "trace.json.gz",
    "trace.json.zst",
    "trace.zip",
    "notes.txt",
)
CONTENTS = {
    "empty": b"",
    "bytes": bytes(range(256)) * 4,
    "an empty list": b"[]",
    "an empty object": b"{}",
    "one cell": b"Name\n",
    "a list cut off": b'[{"ph": "X", "name": "aten::mm", "ts": "1.5", "du',
}

every_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: str(reader.__name__).rpartition(".")[2])


def _written(folder: Path, path: str, content: bytes) -> list[Path]:
    """Write one file; return it and the folders on the way to it, each of which a user may name."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return [file, *(parent for parent in file.parents if folder in parent.parents)]


def _read_or_refused(reader: Reader, path: Path) -> None:
    """Read a path that the reader recognises; what it raises must be an error for the user that names the path."""
    if not reader.recognises(path):
        return
    refusal: str | None = None
    try:
        recording = reader.read(path)
    except DocumentError as error:
        refusal = str(error)
    if refusal is None:
        assert isinstance(recording, Recording)
        assert recording.format
    else:
        assert path.name in refusal


@every_reader
def test_reader__says_what_it_reads_and_when_it_is_asked(reader: Reader) -> None:
    assert isinstance(reader.READS, str)
    assert isinstance(reader.PRIORITY, int)


@every_reader
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_reader__anything_at_all__recognised_without_an_error_and_read_or_refused(
    reader: Reader, content: bytes, tmp_path: Path
) -> None:
    for path in PATHS:
        for named in _written(tmp_path, path, content):
            _read_or_refused(reader, named)


@every_reader
def test_reader__nothing_there__refused(reader: Reader, tmp_path: Path) -> None:
    for path in PATHS:
        _read_or_refused(reader, tmp_path / path)


def test_read__no_recording__names_all_that_is_read(tmp_path: Path) -> None:
    [file] = _written(tmp_path, "notes.txt", b"nothing")
    with pytest.raises(DocumentError, match="is not profiler output") as caught:
        trace.read(file)
    assert all(reader.READS in str(caught.value) for reader in READERS)
