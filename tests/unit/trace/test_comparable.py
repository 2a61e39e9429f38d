"""Like with like: complete steps, and rows as fine as both recordings have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.flows.trace.diff import trace_diff
from perfgate.flows.trace.trace import Choice, trace_steps
from perfgate.trace.analysis.comparable import comparable_part, cut_ends

from .job import is_kernel, kernel, launch, recorded, step_mark, steps


def test_diff__cut_between_events__only_steps_that_both_have(tmp_path: Path) -> None:
    full = recorded(tmp_path / "full.json", steps(20))
    cut = tmp_path / "cut.json"
    for share in (0.3, 0.5, 0.77):
        cut.write_bytes(full.read_bytes()[: int(len(full.read_bytes()) * share)])
        for base, head in ((full, cut), (cut, full)):
            document = trace_diff([base], [head], Choice())
            assert document.timelines[0].rows == []
            assert document.notes[0].code == "notes.cut-off"


def test_diff__events_lost_and_no_steps_marked__refused(tmp_path: Path) -> None:
    events = [event for event in steps(4) if not event["name"].startswith("ProfilerStep")]
    full = recorded(tmp_path / "full.json", events)
    cut = tmp_path / "cut.json"
    cut.write_bytes(full.read_bytes()[: len(full.read_bytes()) // 2])
    with pytest.raises(DocumentError, match="is cut off"):
        trace_diff([full], [cut], Choice())


def test_diff__folder_with_two_cycles_of_one_process__the_first_is_compared_and_said(tmp_path: Path) -> None:
    for side in ("base", "head"):
        (tmp_path / side).mkdir()
        recorded(tmp_path / side / "host_7.1.pt.trace.json", steps(4))
    recorded(tmp_path / "head" / "host_7.2.pt.trace.json", steps(4, kernels=3))

    document = trace_diff([tmp_path / "base"], [tmp_path / "head"], Choice())

    assert document.timelines[0].rows == []
    (note,) = document.notes
    assert (note.code, note.values["path"]) == ("notes.timeline-repeats", str(tmp_path / "head"))


@pytest.mark.parametrize("order", [(3, 5, 5), (5, 3, 5), (5, 5, 3)])
def test_diff__recordings_of_one_side_with_other_counts__the_typical_count_in_any_order(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    bases = [recorded(tmp_path / f"base{place}.json", steps(6, kernels=kernels)) for place, kernels in enumerate(order)]
    alike = recorded(tmp_path / "alike.json", steps(6, kernels=5))
    more = recorded(tmp_path / "more.json", steps(6, kernels=6))

    assert trace_diff(bases, [alike], Choice()).timelines[0].rows == []
    for row in trace_diff(bases, [more], Choice()).timelines[0].rows:
        assert row.base is not None
        assert row.head is not None
        assert (row.change, row.base.count, row.head.count) == ("more", 5, 6)


@pytest.mark.parametrize(
    ("category", "code", "kind"),
    [("kernel", "notes.device-on-one-side", "host"), ("cpu_op", "notes.host-on-one-side", "compute")],
)
def test_diff__device_or_host_on_one_side_alone__nothing_is_removed(
    tmp_path: Path, category: str, code: str, kind: str
) -> None:
    whole = recorded(tmp_path / "whole.json", steps(4))
    part = recorded(tmp_path / "part.json", [event for event in steps(4) if event["cat"] != category])
    for base, head in ((whole, part), (part, whole)):
        document = trace_diff([base], [head], Choice())
        assert code in [note.code for note in document.notes]
        assert {row.kind for row in document.timelines[0].rows} <= {kind}
        assert {row.change for row in document.timelines[0].rows} <= {"slower", "faster"}


def test_diff__table_of_kernels_on_one_side__no_copy_is_removed(tmp_path: Path) -> None:
    events = steps(3)
    for step in range(3):
        at, number = 1000 * step + 1800, 100 * step + 99
        copied = kernel(at, 20, number, name="Memcpy HtoD", cat="gpu_memcpy")
        events += [{**launch(at - 10, number)[1], "name": "cudaMemcpyAsync"}, copied]
    whole = recorded(tmp_path / "whole.json", events)
    rows = []
    for step in range(3):
        for place in range(4):
            rows.append(f"{step},gemm,gemm,AI_CORE,{1000 * step + 1050 + 100 * place}.0,50,0")
    table = tmp_path / "kernel_details.csv"
    columns = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)"
    table.write_text("\n".join([columns, *rows, ""]))

    for base, head in ((whole, table), (table, whole)):
        document = trace_diff([base], [head], Choice())
        assert "notes.copies-on-one-side" in [note.code for note in document.notes]
        (timeline,) = document.timelines
        assert [row for row in timeline.rows if row.change in ("removed", "added")] == []
        assert {timeline.base.copy, timeline.head.copy} == {None, 2e-5}


def test_comparable_part__first_and_last_step_lack_kernels__left_out(tmp_path: Path) -> None:
    events = steps(8)
    kernels = [event for event in events if is_kernel(event)]
    lost = {id(event) for event in (*kernels[:5], *kernels[-1:])}
    path = recorded(tmp_path / "trace.json", [event for event in events if id(event) not in lost])
    (timeline,) = trace.read(path).timelines
    part = comparable_part(timeline, lacks_events=False, is_cut=False)
    assert (part.left_out, part.names, part.is_whole) == (("0", "1", "7"), ("2", "3", "4", "5", "6"), True)
    assert cut_ends(timeline) == [("0", 0, 4), ("1", 3, 4), ("7", 3, 4)]
    assert [note.code for note in trace_steps(path, Choice(), step_by=None).notes] == ["notes.cut-ends"]


def test_comparable_part__steps_of_several_sizes__all_of_them(tmp_path: Path) -> None:
    events = [*steps(3, kernels=2), step_mark(9, 9000)]
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines
    part = comparable_part(timeline, lacks_events=False, is_cut=False)
    assert (part.names, part.left_out) == (("0", "1", "2"), ("9",))


def test_diff__shapes_on_one_side__compared_without_and_said_once(tmp_path: Path) -> None:
    plain, shaped = steps(), steps()
    for number, event in enumerate(event for event in shaped if event["cat"] == "cpu_op"):
        event["args"]["Input Dims"] = [[number % 3 + 1, 4]]
    paths = [recorded(tmp_path / f"{name}.json", events) for name, events in (("plain", plain), ("shaped", shaped))]
    for base, head in (paths, paths[::-1]):
        document = trace_diff([base], [head], Choice())
        assert [row.change for row in document.timelines[0].rows] == []
        assert [note.code for note in document.notes] == ["notes.shapes-differ"]


def test_steps__marked_on_two_threads_nested_or_without_length__one_step_each(tmp_path: Path) -> None:
    doubled = [*steps(), *(step_mark(number, 1000 * number + 1005, 970, thread=2) for number in range(6))]
    nested = [*steps(), *(step_mark(number + 100, 1000 * number + 1100, 300) for number in range(6))]
    empty = [*steps(), *(step_mark(number, 1000 * number + 1000, 0, thread=2) for number in range(6))]
    wanted = None
    for events in (steps(), doubled, nested, empty):
        (timeline,) = trace_steps(recorded(tmp_path / "trace.json", events), Choice(), step_by=None).timelines
        rows = [(step.number, step.length, step.computing) for step in timeline.steps]
        wanted = wanted or rows
        assert rows == wanted


def test_read__only_mark_without_a_length__no_steps(tmp_path: Path) -> None:
    events = [event for event in steps(1) if not event["name"].startswith("ProfilerStep")]
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", [step_mark(0, 1000, 0), *events])).timelines
    assert timeline.steps is None


def test_steps__two_cycles_with_the_same_numbers__both(tmp_path: Path) -> None:
    later = json.loads(json.dumps(steps(2)))
    for event in later:
        event["ts"] += 50_000
        for key in ("correlation", "External id"):
            if key in event.get("args", {}):
                event["args"][key] += 5000
    (timeline,) = trace_steps(recorded(tmp_path / "trace.json", [*steps(2), *later]), Choice(), step_by=None).timelines
    assert [(step.number, step.computing) for step in timeline.steps] == [(0, 2e-4), (1, 2e-4)] * 2
