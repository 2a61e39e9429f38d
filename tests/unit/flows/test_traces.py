"""What stays of the traces of pairs: flame graphs, the middle pair's files, and folders from which steps take turns."""

from __future__ import annotations

from pathlib import Path

from perfgate.conductor.sides.checklist.checklist import Findings
from perfgate.conductor.sides.function.workload import PairTrace
from perfgate.document.run import WorkloadRecord
from perfgate.flows.check.recordings import keep_traces
from perfgate.measuring.counting.collect import read_calls
from tests.fakes.device import FakeDevice

SHAPES = ["short", "long"]


def recorded(folder: Path, pair: int, shape: str, side: str, kernel_ns: int) -> Path:
    device = FakeDevice()
    return device.record_trace(
        lambda: device.launch("aten::mm", kernel_ns), calls=3, folder=folder, name=f"{pair}-{shape}-{side}"
    )


def findings() -> Findings:
    return Findings(WorkloadRecord(name="net", reference="perf.py:net", sha256="", batch=1, shapes=SHAPES))


def test_keep_traces__pairs__the_middle_one_stays_and_each_with_all_shapes_gives_a_turn(tmp_path: Path) -> None:
    traced, base_folder, head_folder = (tmp_path / name for name in ("traced", "base", "head"))
    for folder in (traced, base_folder, head_folder):
        folder.mkdir()
    traces = [
        PairTrace(
            pair,
            shape,
            base=recorded(traced, pair, shape, "base", 1000),
            head=recorded(traced, pair, shape, "head", head_ns),
        )
        for pair, head_ns in ((1, 3000), (4, 5000), (6, 2000))
        for shape in SHAPES
    ]
    damaged = next(trace for trace in traces if (trace.pair, trace.shape) == (4, "long"))
    damaged.head.write_bytes(b"\x1f\x8b")
    sides = findings(), findings()

    flames, turns = keep_traces(traces, sides, (base_folder, head_folder))

    assert [place.shape for place in flames] == SHAPES
    assert [note.code for note in sides[1].warnings] == ["notes.pair-without-flame"]
    files = ["trace-net-long.json.gz", "trace-net-short.json.gz"]
    assert [sorted(path.name for path in folder.iterdir()) for folder in (base_folder, head_folder)] == [files, files]
    assert [sorted(artifact.path for artifact in side.artifacts) for side in sides] == [files, files]
    assert kernel_ns(head_folder / files[1]) == 3000
    assert [kernel_ns(turn["head"] / files[0]) for turn in turns] == [3000, 2000]
    assert [kernel_ns(turn["base"] / files[1]) for turn in turns] == [1000, 1000]


def kernel_ns(file: Path) -> int:
    return int(read_calls(file).kernels().duration[0])
