"""Ranks by what recordings say, by the names of their files, and in files of several ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.flows.trace.gathering import Place
from perfgate.flows.trace.ranks import trace_ranks
from perfgate.trace.analysis.stacks import operators_above, stacks_of
from perfgate.trace.model.events import DEVICE_KINDS
from perfgate.trace.readers.rank_names import process_label, rank_in_name, ranks_of_labels
from tests.each import each
from tests.unit.cli.test_trace_ranks import job

from .job import is_kernel, recorded, steps


def of_rank(rank: int, world: int = 4) -> dict[str, object]:
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}


def ranks(*paths: Path) -> list[int | None]:
    found = trace_ranks([Place(path) for path in paths], say=lambda _: None, workers=1)
    return [row.rank for row in found.document.ranks]


@each(
    "name, rank",
    [
        ("1782000000.1-TP-3.trace.json.gz", 3),
        ("1782000000.1-TP-1-DP-0-EP-1.trace.json.gz", 1),
        ("rank3_trace.json", 3),
        ("profile_rank_0.json.gz", 0),
        ("rank-2.json.gz", 2),
        ("dp0_pp0_tp1_dcp0_ep1_rank5.1782000000000.pt.trace.json.gz", 5),
        ("host_4242.1782000000000.pt.trace.json", None),
        ("libkineto_trace_4242.json", None),
        ("frank7.json", None),
    ],
)
def test_rank_in_name__names_of_programs(tmp_path: Path, name: str, rank: int | None) -> None:
    assert rank_in_name(tmp_path / name) == rank


def test_rank_in_name__pipeline__counted_with_the_neighbours(tmp_path: Path) -> None:
    names = [f"17.5-TP-{tp}-PP-{pp}.trace.json.gz" for pp in range(2) for tp in range(4)]
    for name in names:
        (tmp_path / name).touch()
    assert [rank_in_name(tmp_path / name) for name in names] == list(range(8))


def test_rank_in_name__size_of_the_group__no_rank(tmp_path: Path) -> None:
    for name in ("allreduce_tp4.json", "allreduce_tp8.json", "step_tp0.json", "step_tp1.json"):
        (tmp_path / name).touch()
    assert rank_in_name(tmp_path / "allreduce_tp4.json") is None
    assert rank_in_name(tmp_path / "step_tp1.json") == 1


def test_ranks_of_labels__number_or_order() -> None:
    labels = [process_label(name) for name in ('"[TP00] 42"', "[TP01] 42", "rank 3: 7", "4242", "[]")]
    assert labels == ["TP00", "TP01", "rank 3", "", ""]
    assert ranks_of_labels(["TP01", "TP00"]) == {"TP00": 0, "TP01": 1}
    assert ranks_of_labels(["TP00-PP00", "TP01-PP00", "TP00-PP01"]) == {"TP00-PP00": 0, "TP01-PP00": 1, "TP00-PP01": 2}


@each(
    "name",
    [
        "1782000000.1-TP-{}.trace.json",
        "rank{}_trace.json",
        "profile_rank_{}.json",
        "rank-{}.json",
        "iteration_5/rank{}_trace.json",
        "worker_{}.1.pt.trace.json",
    ],
)
def test_ranks__whatever_the_names__found_in_the_folder_and_by_themselves(tmp_path: Path, name: str) -> None:
    folder, files = tmp_path / name.replace("/", "-"), []
    for rank in range(2):
        path = folder / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.append(recorded(path, steps(3), **of_rank(rank, 2)))
    (folder / "config.json").write_text('{"schemaVersion": 2, "lr": 1}')
    assert ranks(folder) == ranks(*files) == [0, 1]
    assert [timeline.rank for timeline in trace.read(files[0].parent).timelines] == [0, 1]


def test_ranks__one_rank_twice__named_and_compared_once(tmp_path: Path) -> None:
    for name, rank in (("a", 0), ("b", 0), ("c", 2)):
        recorded(tmp_path / f"{name}.pt.trace.json", steps(3), **of_rank(rank))
    document = trace_ranks([Place(tmp_path)], say=lambda _: None, workers=1).document
    assert [row.rank for row in document.ranks] == [0, 2]
    (repeated,) = document.gaps.repeated
    assert repeated.rank == 0
    assert [Path(path).name for path in (repeated.chosen, *repeated.others)] == ["a.pt.trace.json", "b.pt.trace.json"]
    assert document.gaps.missing == [1, 3]


def test_ranks__files_without_a_rank__said_with_the_remedy(tmp_path: Path) -> None:
    for name in ("node0", "node1", "node2"):
        (tmp_path / name).mkdir()
        recorded(tmp_path / name / "trace.json", steps(3))
    (note,) = trace_ranks([Place(tmp_path)], say=lambda _: None, workers=1).document.notes
    assert (note.code, note.values["count"]) == ("notes.ranks-unnamed", 3)
    assert str(note.values["path"]).endswith("node0/trace.json")

    alone = trace_ranks([Place(tmp_path / "node0")], say=lambda _: None, workers=1).document
    assert alone.notes == []


def merged(tmp_path: Path, labels: tuple[str, ...]) -> Path:
    """Ranks with the same numbers of correlations, threads and devices in one file; each has its own operator."""
    events = []
    for label in labels:
        for event in json.loads(json.dumps(steps(3))):
            named = {**event, "pid": f"{label} {event['pid']}", "tid": f"{label} {event['tid']}"}
            if event["cat"] == "cpu_op":
                named["name"] = f"aten::of_{label}"
            events.append(named)
    return recorded(tmp_path / "merged.trace.json", events)


def test_read__merged_ranks__a_timeline_each_and_no_operator_of_another(tmp_path: Path) -> None:
    recording = trace.read(merged(tmp_path, ("[TP00]", "[TP01]")))
    assert [timeline.label for timeline in recording.timelines] == ["rank 0, device 0", "rank 1, device 0"]
    for timeline, label in zip(recording.timelines, ("[TP00]", "[TP01]")):
        assert len(timeline.steps or ()) == 3
        stacks = stacks_of(timeline.events, whole=True)
        above = operators_above(stacks)[stacks.events.is_kind(*DEVICE_KINDS)]
        assert {stacks.events.names[stacks.events.name[row]] for row in above.tolist()} == {f"aten::of_{label}"}


def test_read__merged_ranks_without_labels__attribution_is_doubted(tmp_path: Path) -> None:
    events = []
    for rank in range(2):
        for event in json.loads(json.dumps(steps(2))):
            on_host = event["pid"] == 9
            events.append({**event, "pid": 100 + rank if on_host else rank, "tid": event["tid"] + 10 * rank})
    (note,) = trace.read(recorded(tmp_path / "merged.json", events)).notes
    assert (note.code, note.values["count"]) == ("notes.correlations-repeat", 2)


def test_ranks__times_that_cannot_be_true__left_out_with_the_reason(tmp_path: Path) -> None:
    for rank in range(3):
        events = steps(4)
        if rank == 1:
            for event in filter(is_kernel, events):
                event["dur"] = 0
        recorded(tmp_path / f"rank{rank}.json", events, **of_rank(rank, 3))
    document = trace_ranks([Place(tmp_path)], say=lambda _: None, workers=1).document
    assert [row.rank for row in document.ranks] == [0, 2]
    assert "have no time or no duration" in document.gaps.left_out[0].reason


@each(
    "tool, named, name, beside",
    [
        # vllm/profiler: torch.profiler.tensorboard_trace_handler, and a table of operators for each rank.
        ("vllm", ".", "dp0_pp0_tp{0}_dcp0_ep0_rank{0}.1782000000000.pt.trace.json", ("profiler_out_0.txt",)),
        # sglang/srt/utils/profile_utils.py: with memory it dumps a snapshot too.
        ("sglang", ".", "1782000000.{0}-TP-{0}.trace.json", ("1782000000.1-TP-0-memory.pickle", "server_args.json")),
        # torchtitan/tools/profiling.py.
        ("torchtitan", "profiling/traces", "profiling/traces/iteration_10/rank{0}_trace.json", ()),
        # megatron/training/training.py: beside the folder of TensorBoard.
        ("megatron", "torch_profile", "torch_profile/rank-{0}.json", ("tb/events.out.tfevents.1",)),
        # dynolog: dyno gputrace --log-file libkineto_trace.json, with the process appended.
        ("dynolog", ".", "libkineto_trace_424{0}.json", ()),
        # Kineto's own default (libkineto/src/Config.cpp).
        ("libkineto", ".", "libkineto_activities_424{0}.json", ("memory_snapshot_4240.pickle",)),
        # HolisticTraceAnalysis: tests/data.
        ("hta", ".", "rank-{0}.Apr_03_18_51_38.1102.pt.trace.json", ("trace_analyzer.json",)),
    ],
)
def test_read__folder_as_a_tool_leaves_it__every_rank_by_the_name_of_the_folder(
    tmp_path: Path, tool: str, named: str, name: str, beside: tuple[str, ...]
) -> None:
    folder = tmp_path / tool
    for rank in range(2):
        path = folder / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        recorded(path, steps(3), **of_rank(rank, 2))
    for other in beside:
        path = folder / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"lr": 1}')

    assert [timeline.rank for timeline in trace.read(folder / named).timelines] == [0, 1]
    assert ranks(folder / named) == [0, 1]


def test_read__folder_of_mindstudio__every_rank(tmp_path: Path) -> None:
    """torch_npu names a folder after host, process and time; MindStudio's exporters add more beside its tables."""
    folder = job(tmp_path / "profiles", ranks=2)
    for rank_folder in folder.iterdir():
        (rank_folder / "PROF_000001_20251101000000000_ABC").mkdir()
        (rank_folder / "profiler_metadata.json").touch(exist_ok=True)
    (folder / "cluster_analysis_output").mkdir()

    assert [timeline.rank for timeline in trace.read(folder).timelines] == [0, 1]
    assert ranks(folder) == [0, 1]


def test_read__several_folders_with_recordings__named(tmp_path: Path) -> None:
    for step in (5, 10):
        path = tmp_path / f"iteration_{step}" / "rank0_trace.json"
        path.parent.mkdir()
        recorded(path, steps(3))

    with pytest.raises(DocumentError, match="iteration_10, iteration_5; name one of them"):
        trace.read(tmp_path)
