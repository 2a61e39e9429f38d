"""The recordings of traced pairs: the flame graph of both sides, the files that stay, and turns of steps that read traces."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.sides.checklist.checklist import Findings
from perfgate.conductor.sides.checklist.turns import Recorded
from perfgate.conductor.sides.function.workload import PairTrace
from perfgate.conductor.sides.job_turns import NAMES, SideName
from perfgate.document.flame import FlameTree, merged, node_totals, side_by_side
from perfgate.document.message import Message, reason_of
from perfgate.document.run import WorkloadRecord
from perfgate.document.shape import ShapePlace
from perfgate.errors import DocumentError, MeasuringError
from perfgate.flows.shared.session import artifact_of
from perfgate.measuring.counting.collect import read_calls, trace_name
from perfgate.trace.analysis.flame import flame_tree
from perfgate.trace.analysis.stacks import stacks_of


class _Traced(NamedTuple):
    files: PairTrace
    base: FlameTree
    head: FlameTree

    @property
    def longer(self) -> float:
        """The seconds by which head's calls took longer."""
        return _seconds(self.head) - _seconds(self.base)


def _seconds(tree: FlameTree) -> float:
    return sum(total.own for total in node_totals(tree, tree.head))


def keep_traces(
    traces: list[PairTrace],
    sides: tuple[Findings, Findings],
    folders: tuple[Path, Path],
) -> tuple[dict[ShapePlace, FlameTree], list[Recorded]]:
    """Draw the flame graphs of a workload's traced pairs; keep the recordings of the middle pair in the sides' folders.

    On each side they replace the traces of the checklist. A pair with an unreadable recording is dropped. With the flame graphs
    come the folders with the recordings of each pair that traced all shapes, for turns, next to the recordings.
    """
    workload = sides[1].workload
    flames: dict[ShapePlace, FlameTree] = {}
    readable: list[PairTrace] = []
    for shape in workload.shapes:
        pairs: list[_Traced] = []
        for files in traces:
            if files.shape == shape:
                pairs += _read(files, sides)
        if not pairs:
            continue
        pairs_by_slowdown = sorted(pairs, key=lambda pair: pair.longer)
        middle = pairs_by_slowdown[(len(pairs) - 1) // 2].files
        _keep(middle.base, sides[0], shape, folders[0])
        _keep(middle.head, sides[1], shape, folders[1])
        flames[ShapePlace(workload.name, shape)] = _flames_of(pairs_by_slowdown)
        readable += [pair.files for pair in pairs]
    return flames, _turns(readable, workload)


def _keep(recording: Path, findings: Findings, shape: str, folder: Path) -> None:
    """Keep the recording of a shape in the folder of its side, in place of the checklist's."""
    kept = folder / _file_name(recording, findings.workload.name, shape)
    shutil.copyfile(recording, kept)
    artifact = artifact_of(
        kept, kept.read_bytes(), "trace", workload=findings.workload.name
    )
    others = [entry for entry in findings.artifacts if entry.path != artifact.path]
    findings.artifacts = [*others, artifact]


def _flames_of(pairs: Sequence[_Traced]) -> FlameTree:
    """One flame graph of both sides."""
    base = merged([pair.base for pair in pairs])
    head = merged([pair.head for pair in pairs])
    return side_by_side(base, head)


def _turns(readable: Iterable[PairTrace], workload: WorkloadRecord) -> list[Recorded]:
    by_pair = defaultdict[int, list[PairTrace]](list)
    for files in readable:
        by_pair[files.pair].append(files)
    turns: list[Recorded] = []
    for pair, of_pair in sorted(by_pair.items()):
        if len(of_pair) < len(workload.shapes):
            continue
        folders: dict[SideName, Path] = {}
        for name in NAMES:
            folders[name] = of_pair[0].base.with_name(
                f"{workload.name}-{pair}-{name}-turn"
            )
            folders[name].mkdir()
        for files in of_pair:
            (
                folders["base"] / _file_name(files.base, workload.name, files.shape)
            ).hardlink_to(files.base)
            (
                folders["head"] / _file_name(files.head, workload.name, files.shape)
            ).hardlink_to(files.head)
        turns.append(folders)
    return turns


def _read(files: PairTrace, sides: tuple[Findings, Findings]) -> list[_Traced]:
    label = trace_name(sides[1].workload.name, files.shape).removeprefix("trace-")
    try:
        return [
            _Traced(files, base=_tree(files.base, label), head=_tree(files.head, label))
        ]
    except (DocumentError, MeasuringError) as error:
        sides[1].warnings.append(
            Message(
                "notes.pair-without-flame",
                {"pair": files.pair, "error": reason_of(error)},
            )
        )
        return []


def _tree(file: Path, label: str) -> FlameTree:
    return flame_tree(stacks_of(read_calls(file).of_faster_half()), label)


def _file_name(recording: Path, workload: str, shape: str) -> str:
    """The name by which the steps of the checklist look for a trace."""
    return trace_name(workload, shape) + (
        ".zip" if recording.suffix == ".zip" else ".json.gz"
    )
