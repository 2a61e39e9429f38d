"""Recordings that were kept: the same answers, never from other files, and no harm from what happens to the folder."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from perfgate.cli.commands.trace import COMMAND
from perfgate.cli.printed import default_folder
from perfgate.document.trace import TopDocument
from perfgate.errors import PerfgateError
from perfgate.flows.trace.choice import Choice
from perfgate.flows.trace.questions import ask_top
from perfgate.trace.analysis import stacks as stacks_module
from perfgate.trace.analysis.rows import top
from perfgate.trace.analysis.stacks import stacks_of, stacks_of_timeline
from perfgate.trace.cache import recall, use_cache
from perfgate.trace.cache.answers import kept_answer
from perfgate.trace.cache.columns import ColumnWriter
from perfgate.trace.cache.entries import CacheUse
from perfgate.trace.cache.folder import RecordingCache
from perfgate.trace.cache.records import stored
from perfgate.trace.cache.state import SETTLED_NS, are_settled, states_of
from perfgate.trace.model.communication import add_communication
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import Recording
from perfgate.trace.model.stacks import Stacks
from perfgate.trace.readers.damaged import salvage
from tests.samples import unpacked

CacheMaker = Callable[..., RecordingCache]


def kernel(name: str, start: float, **members: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": start,
        "dur": 2,
        "args": {"device": 0},
        **members,
    }


def written(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def names(recording: Recording) -> list[str]:
    return [row.name for timeline in recording.timelines for row in top(timeline, by="name", host=False).rows]


def content(recording: Recording) -> bytes:
    """Every column, name, table and note of a recording."""
    columns = ColumnWriter()
    record = msgspec.msgpack.encode(stored(recording, columns))
    return b"".join(bytes(piece) for piece in columns.pieces(record))


@pytest.fixture
def cache(tmp_path: Path) -> CacheMaker:
    """A cache that keeps small recordings too, and by whose clock all files were written long ago."""

    def made(**settings: Any) -> RecordingCache:
        settings = {"least_bytes": 0, "clock": lambda: time.time_ns() + 2 * SETTLED_NS, **settings}
        return RecordingCache(tmp_path / "cache", **settings)

    return made


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 5, "tid": 5, "ts": 1, "dur": 9}
    unread = {"ph": "X", "cat": "brand_new", "name": "?", "pid": 5, "tid": 5, "ts": 1, "dur": 9}
    return written(
        tmp_path / "a.pt.trace.json", step, unread, kernel("mm", 2), {"ph": "C", "name": "c", "pid": 0, "ts": 1}
    )


SAMPLES = (
    "cuda-hta",
    "cuda-kineto",
    "cpu-torch2.13",
    "torch-native-privateuse1",
    "msinsight-910B-alexnet-2501/text/level1",
    "msinsight-910B-alexnet-2501/db",
    "msinsight-910B-qwen3-cann8.3RC1-2511/level2",
    "msinsight-gpt3-cann7-2309",
    "msprof-910B-20cores-2608",
    "mstt-advisor",
)


@pytest.mark.recordings
@pytest.mark.parametrize("sample", SAMPLES)
def test_read__recorded_samples__recalled_with_every_column_table_and_note(
    sample: str, cache: CacheMaker, tmp_path: Path
) -> None:
    folder = unpacked(tmp_path / "sample", sample)
    read = 0
    for path in (folder, *(file for file in folder.rglob("*") if file.suffix in (".json", ".db", ".csv"))):
        try:
            first = cache().read(path)
        except PerfgateError:
            continue
        recalled = cache()._recalled(path)
        assert recalled is not None
        assert content(recalled) == content(first)
        assert recalled.path == path
        for own, before in zip(recalled.timelines, first.timelines):
            assert tuple(own.steps or ()) == tuple(before.steps or ())
            assert list(KernelTable.of(own.kernels or ())[:3]) == list(KernelTable.of(before.kernels or ())[:3])
        read += 1
    assert read
    assert cache().use() == CacheUse(read, cache().use().size, 0)


def test_read__unread_events_and_a_damaged_file__the_same_notes_again(cache: CacheMaker, trace_file: Path) -> None:
    trace_file.write_bytes(trace_file.read_bytes()[:-30])
    first, second = cache().read(trace_file), cache().read(trace_file)

    assert [note.code for note in second.notes] == ["notes.unknown-categories", "notes.salvaged"]
    assert content(second) == content(first)
    assert cache().use().recordings == 1


def overwritten(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"mm"', b'"bb"'))


def overwritten_with_its_old_time(path: Path) -> None:
    stat = path.stat()
    overwritten(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replaced(path: Path) -> None:
    copy = shutil.copy2(path, path.with_name("copy"))
    overwritten_with_its_old_time(Path(copy))
    Path(copy).replace(path)


def linked_elsewhere(path: Path) -> None:
    copy = shutil.copy2(path, path.with_name("copy"))
    overwritten_with_its_old_time(Path(copy))
    path.unlink()
    path.symlink_to("copy")


@pytest.mark.parametrize("change", [overwritten, overwritten_with_its_old_time, replaced, linked_elsewhere])
def test_read__file_changed__read_again(change: Callable[[Path], None], cache: CacheMaker, trace_file: Path) -> None:
    assert names(cache().read(trace_file)) == ["mm"]
    size = trace_file.stat().st_size
    change(trace_file)

    assert trace_file.stat().st_size == size
    assert names(cache().read(trace_file)) == ["bb"]
    assert names(cache().read(trace_file)) == ["bb"]


def test_read__another_file_in_the_folder__read_again(cache: CacheMaker, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    written(folder / "rank0.pt.trace.json", kernel("mm", 2))
    assert names(cache().read(folder)) == ["mm"]

    written(folder / "rank1.pt.trace.json", kernel("softmax", 2))
    assert names(cache().read(folder)) == ["mm", "softmax"]


def test_read__file_gone__refused_as_without_a_cache(cache: CacheMaker, trace_file: Path) -> None:
    cache().read(trace_file)
    trace_file.unlink()

    with pytest.raises(PerfgateError, match="does not exist"):
        cache().read(trace_file)


def test_read__just_written__not_kept(cache: CacheMaker, trace_file: Path) -> None:
    assert names(cache(clock=time.time_ns).read(trace_file)) == ["mm"]
    assert cache().use().recordings == 0
    (state, _) = states_of([trace_file, trace_file.parent])
    assert are_settled([state], state.changed_ns + SETTLED_NS + 1)
    assert not are_settled([state], state.changed_ns + SETTLED_NS)


def test_read__other_patterns_of_communication__another_question(cache: CacheMaker, trace_file: Path) -> None:
    assert {row.kind for row in top(cache().read(trace_file).timelines[0], by="name", host=False).rows} == {"compute"}

    def with_pattern() -> Recording:
        add_communication(["^mm$"])
        return cache().read(trace_file)

    recording = copy_context().run(with_pattern)
    assert {row.kind for row in top(recording.timelines[0], by="name", host=False).rows} == {"comm"}
    assert cache().use().recordings == 2


def entry_of(folder: Path) -> Path:
    (entry,) = folder.glob("*.columns")
    return entry


def test_read__entry_damaged_anywhere__read_again_and_counted(
    cache: CacheMaker, trace_file: Path, tmp_path: Path
) -> None:
    first = content(cache().read(trace_file))
    entry = entry_of(tmp_path / "cache")
    whole = entry.read_bytes()
    cuts = [whole[:size] for size in range(0, len(whole), 97)]
    flips = [whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :] for at in range(0, len(whole), 97)]
    for count, damaged in enumerate((*cuts, *flips, whole + b"more"), start=1):
        entry.write_bytes(damaged)
        assert content(cache().read(trace_file)) == first
        assert entry.read_bytes() == whole
        assert cache().use().damaged == count


def test_read__more_than_the_bound__least_recently_used_removed(cache: CacheMaker, tmp_path: Path) -> None:
    files = [written(tmp_path / f"{number}.json", kernel(f"k{number}", 1)) for number in range(4)]
    cache().read(files[0])
    size = cache().use().size
    bounded = cache(most_bytes=2 * size + size // 2)
    for second, file in enumerate(files[:3]):
        bounded.read(file)
        newest = max((tmp_path / "cache").glob("*.columns"), key=lambda entry: entry.stat().st_mtime_ns)
        os.utime(newest, ns=(0, 10**9 * second))
    assert bounded.use().recordings == 2
    assert bounded._recalled(files[1]) is not None  # used just now, so the other one leaves
    bounded.read(files[3])

    assert [bounded._recalled(file) is not None for file in files] == [False, True, False, True]
    assert cache(most_bytes=size // 2).read(files[2]).timelines
    assert cache()._recalled(files[2]) is None


def test_read__folder_cannot_be_written__answered_all_the_same(trace_file: Path, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no folder")
    cache = RecordingCache(in_the_way, least_bytes=0, clock=lambda: time.time_ns() + 2 * SETTLED_NS)

    assert content(cache.read(trace_file)) == content(salvage(trace_file))
    assert cache.use() == CacheUse(0, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_read__entry_of_another_user__not_believed(cache: CacheMaker, trace_file: Path, tmp_path: Path) -> None:
    cache().read(trace_file)
    os.chown(entry_of(tmp_path / "cache"), 65534, 65534)

    assert cache()._recalled(trace_file) is None


def test_read__many_at_once__all_have_the_answer_and_one_entry_stays(
    cache: CacheMaker, trace_file: Path, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(8) as pool:
        contents = set(pool.map(lambda _: content(cache().read(trace_file)), range(24)))

    assert contents == {content(salvage(trace_file))}
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".columns"]


def test_recalled__entry_removed_while_it_is_used__columns_stay(
    cache: CacheMaker, trace_file: Path, tmp_path: Path
) -> None:
    first = content(cache().read(trace_file))
    recalled = cache().read(trace_file)
    shutil.rmtree(tmp_path / "cache")

    assert content(recalled) == first


@pytest.mark.recordings
def test_kernel_counters__read_from_the_recording_when_asked_for(cache: CacheMaker, tmp_path: Path) -> None:
    folder = unpacked(tmp_path / "sample", "msinsight-910B-alexnet-2501")
    table = next(
        path
        for path in folder.rglob("kernel_details.csv")
        if KernelTable.of(salvage(path).timelines[0].kernels or ()).counters.names
    )
    first = cache().read(table).timelines[0].kernels
    second = cache().read(table).timelines[0].kernels
    assert first is not None
    assert second is not None
    assert dict(first[0].counters)
    assert [dict(kernel.counters) for kernel in second] == [dict(kernel.counters) for kernel in first]


def test_recall__small_recording__not_kept(trace_file: Path, tmp_path: Path) -> None:
    use_cache(tmp_path / "cache")
    try:
        assert names(recall(trace_file)) == ["mm"]
    finally:
        use_cache(None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/perfgate/recordings"),
        ({"XDG_CACHE_HOME": "c", "HOME": "/h"}, "/h/.cache/perfgate/recordings"),
        ({"HOME": "/h"}, "/h/.cache/perfgate/recordings"),
        ({}, None),
    ],
)
def test_default_folder__by_the_xdg_specification(environ: dict[str, str], folder: str | None) -> None:
    assert default_folder(environ) == folder


def test_trace_cache__shown_and_cleared(cache: CacheMaker, trace_file: Path, tmp_path: Path) -> None:
    cache().read(trace_file)
    on = {"PERFGATE_NO_TRACE_CACHE": ""}

    def shown(*arguments: str) -> str:
        try:
            return CliRunner().invoke(COMMAND, [*arguments], env=on, catch_exceptions=False).output
        finally:
            use_cache(None)

    assert ": 1 recordings, 0 of at most 4295 MB, 0 damaged entries" in shown(
        "--cache", str(tmp_path / "cache"), "cache"
    )
    assert ": 0 recordings" in shown("--cache", str(tmp_path / "cache"), "cache", "--clear")
    assert "nothing is cached" in shown("--no-cache", "cache")
    assert not list((tmp_path / "cache").iterdir())


@pytest.fixture
def kept(cache: CacheMaker, trace_file: Path, tmp_path: Path) -> Iterator[Path]:
    """A recording whose columns are kept, in the folder that is used."""
    cache().read(trace_file)
    use_cache(tmp_path / "cache")
    yield trace_file
    use_cache(None)


def asked(path: Path, *, longer: float | None = None) -> tuple[list[str], int]:
    """The rows of ``top``, and how often they had to be worked out."""
    worked_out = 0

    def work_out() -> TopDocument:
        nonlocal worked_out
        worked_out += 1
        return ask_top(path, Choice(), by="name", host=False, longer=longer)

    document = kept_answer(
        [path], ("test", longer), TopDocument, work_out, clock=lambda: time.time_ns() + 2 * SETTLED_NS
    )
    return [row.name for row in document.timelines[0].rows], worked_out


def test_kept_answer__same_question__not_worked_out_again_until_the_file_changes(kept: Path, tmp_path: Path) -> None:
    assert asked(kept) == (["mm"], 1)
    assert asked(kept) == (["mm"], 0)
    assert asked(kept, longer=1.0) == ([], 1)
    for answer in (tmp_path / "cache").glob("*.answer"):
        content = answer.read_bytes()
        answer.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert asked(kept) == (["mm"], 1)
    assert asked(kept) == (["mm"], 0)
    written(kept, kernel("softmax", 2))
    assert asked(kept) == (["softmax"], 1)
    assert asked(kept) == (["softmax"], 1)  # its columns are not kept, because it is small


def test_kept_answer__columns_not_kept__worked_out_each_time(trace_file: Path, tmp_path: Path) -> None:
    use_cache(tmp_path / "cache")
    try:
        assert [asked(trace_file) for _ in range(2)] == [(["mm"], 1)] * 2
    finally:
        use_cache(None)
    assert list((tmp_path / "cache").glob("*")) == []


@pytest.fixture
def called_file(tmp_path: Path) -> Path:
    """Two operators, one in the other, which launches a kernel; and one outside of the step."""
    host = {"ph": "X", "pid": 5, "tid": 5}
    return written(
        tmp_path / "called.pt.trace.json",
        {**host, "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 1, "dur": 90},
        {**host, "cat": "cpu_op", "name": "aten::linear", "ts": 2, "dur": 80},
        {**host, "cat": "cpu_op", "name": "aten::mm", "ts": 3, "dur": 60},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 4, "dur": 2, "args": {"correlation": 7}},
        {**host, "cat": "cpu_op", "name": "aten::add", "ts": 200, "dur": 2},
        kernel("mm", 20, args={"device": 0, "correlation": 7}),
    )


def columns_of(stacks: Stacks) -> list[Any]:
    arrays = (stacks.events.start, stacks.around, stacks.called_by, stacks.track, stacks.own)
    return [*(array.tolist() for array in arrays), stacks.unit, stacks.units, stacks.unlaunched, stacks.cut]


@pytest.mark.parametrize("whole", [False, True])
def test_stacks__of_a_kept_recording__worked_out_once(
    whole: bool, cache: CacheMaker, called_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = cache().read(called_file).timelines
    fresh = stacks_of_timeline(first, whole=whole)
    assert columns_of(fresh) == columns_of(stacks_of(first.events, whole=whole))
    assert len(fresh.events) == (6 if whole else 5)

    monkeypatch.setattr(stacks_module, "stacks_of", lambda *_, **__: pytest.fail("worked out again"))
    (again,) = cache().read(called_file).timelines
    recalled = stacks_of_timeline(again, whole=whole)
    assert columns_of(recalled) == columns_of(fresh)
    assert recalled.called_by is recalled.around


def test_stacks__kept_ones_damaged_or_of_another_file__worked_out_again_and_kept(
    cache: CacheMaker, called_file: Path
) -> None:
    fresh = columns_of(stacks_of_timeline(cache().read(called_file).timelines[0]))
    (kept,) = called_file.parent.joinpath("cache").glob("*.stacks")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-8])
    assert columns_of(stacks_of_timeline(cache().read(called_file).timelines[0])) == fresh
    assert (kept.read_bytes(), cache().use().damaged) == (whole, 1)

    text = called_file.read_text()
    called_file.write_text(text.replace('"dur": 60', '"dur": 50'))
    changed = columns_of(stacks_of_timeline(cache().read(called_file).timelines[0]))
    assert changed != fresh
    assert kept.read_bytes() != whole
    cache().clear()
    assert not kept.exists()
