"""The recordings of a check: of traced pairs, and of the stacks of jobs.

They become the flame graph of both sides, files that stay, entries of the run
documents, and turns of the steps that read traces.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from perfgate import trace
from perfgate.conductor.sides.checklist.checklist import Findings
from perfgate.conductor.sides.checklist.turns import TracedSides
from perfgate.conductor.sides.function.workload import PairTrace
from perfgate.conductor.sides.job_turns import NAMES
from perfgate.conductor.sides.stacks.profiled import (
    kept_traces,
    profile_of,
    write_trace,
)
from perfgate.conductor.sides.stacks.stacks import SideStacks
from perfgate.document.flame import FlameTree, merged, node_totals, side_by_side
from perfgate.document.job import JobProfile
from perfgate.document.message import Message, reason_of
from perfgate.document.run import Artifact, RunDocument, Side, WorkloadRecord
from perfgate.document.shape import ShapePlace
from perfgate.errors import DocumentError, MeasuringError
from perfgate.flows.shared.session import artifact_of
from perfgate.flows.shared.trees import tree_of
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
) -> tuple[dict[ShapePlace, FlameTree], list[TracedSides]]:
    """Draw the flame graphs of a workload's traced pairs; keep the recordings of the
    middle pair in the sides' folders.

    On each side they replace the traces of the checklist. A pair with an unreadable
    recording is dropped. With the flame graphs come the folders with the recordings of
    each pair that traced all shapes, for turns, next to the recordings.
    """
    workload = sides[1].workload
    flames: dict[ShapePlace, FlameTree] = {}
    readable: list[PairTrace] = []
    for shape in workload.shapes:
        pairs: list[_Traced] = []
        label = trace_name(workload.name, shape).removeprefix("trace-")
        for files in traces:
            if files.shape != shape:
                continue
            try:
                base, head = _tree(files.base, label), _tree(files.head, label)
            except (DocumentError, MeasuringError) as error:
                note = Message(
                    "notes.pair-without-flame",
                    {"pair": files.pair, "error": reason_of(error)},
                )
                sides[1].warnings.append(note)
            else:
                pairs.append(_Traced(files, base, head))
        if not pairs:
            continue
        pairs_by_slowdown = sorted(pairs, key=lambda pair: pair.longer)
        middle = pairs_by_slowdown[(len(pairs) - 1) // 2].files
        _keep(middle.base, sides[0], shape, folders[0])
        _keep(middle.head, sides[1], shape, folders[1])
        flames[ShapePlace(workload.name, shape)] = side_by_side(
            merged([pair.base for pair in pairs_by_slowdown]),
            merged([pair.head for pair in pairs_by_slowdown]),
        )
        readable += [pair.files for pair in pairs]
    return flames, _turns(readable, workload)


def _keep(recording: Path, findings: Findings, shape: str, folder: Path) -> None:
    """Keep the recording of a shape in the folder of its side, in place of the
    checklist's.
    """
    kept = folder / _file_name(recording, findings.workload.name, shape)
    shutil.copyfile(recording, kept)
    artifact = artifact_of(
        kept, kept.read_bytes(), "trace", workload=findings.workload.name
    )
    others = [entry for entry in findings.artifacts if entry.path != artifact.path]
    findings.artifacts = [*others, artifact]


def _turns(
    readable: Iterable[PairTrace], workload: WorkloadRecord
) -> list[TracedSides]:
    by_pair = defaultdict[int, list[PairTrace]](list)
    for files in readable:
        by_pair[files.pair].append(files)
    turns: list[TracedSides] = []
    for pair, of_pair in sorted(by_pair.items()):
        if len(of_pair) < len(workload.shapes):
            continue
        folders: dict[Side, Path] = {}
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


def _tree(file: Path, label: str) -> FlameTree:
    return flame_tree(stacks_of(read_calls(file).of_faster_half()), label)


def _file_name(recording: Path, workload: str, shape: str) -> str:
    """The name by which the steps of the checklist look for a trace."""
    return trace_name(workload, shape) + (
        ".zip" if recording.suffix == ".zip" else ".json.gz"
    )


@dataclass
class KeptProfiles:
    """The profiles of all jobs, for each side's document."""

    profiles: dict[Side, list[JobProfile]] = field(
        default_factory=lambda: {"base": [], "head": []}
    )
    artifacts: dict[Side, list[Artifact]] = field(
        default_factory=lambda: {"base": [], "head": []}
    )

    def keep(
        self,
        workload: str,
        stacks: Mapping[Side, SideStacks],
        roots: Mapping[Side, Path],
        folders: Mapping[Side, Path],
    ) -> dict[ShapePlace, FlameTree]:
        """Write the traces of a job into the folders of its sides; return the flame
        graph, if both sides have stacks.
        """
        trees: dict[Side, FlameTree] = {}
        for side, sampled in stacks.items():
            self.profiles[side].append(profile_of(workload, sampled, roots[side]))
            file = folders[side] / f"{trace_name(workload, 'stacks')}.json.gz"
            write_trace(sampled, roots[side], file)
            self.artifacts[side].append(
                artifact_of(file, file.read_bytes(), "trace", workload=workload)
            )
            for number, own in enumerate(kept_traces(sampled)):
                suffix = own.suffix
                if suffix == ".gz":
                    suffix = "".join(own.suffixes[-2:])
                copy = (
                    folders[side]
                    / f"{trace_name(workload, f'operators-{number}')}{suffix}"
                )
                shutil.copyfile(own, copy)
                self.artifacts[side].append(
                    artifact_of(copy, copy.read_bytes(), "trace", workload=workload)
                )
            if sampled.folder != Path():
                shutil.rmtree(sampled.folder, ignore_errors=True)
            try:
                (timeline,) = trace.read(file).timelines
                # Times per unit of work: the sides did different amounts of work while
                # they were sampled.
                tree = tree_of(timeline, workload)
                costs = tree.head and replace(tree.head, units=max(1, sampled.units))
                trees[side] = replace(tree, head=costs, unit="call")
            except (DocumentError, ValueError):  # no stack was sampled
                continue
        if len(trees) < len(NAMES):
            return {}
        return {ShapePlace(workload, ""): side_by_side(trees["base"], trees["head"])}

    def put_into(self, side: Side, run: RunDocument) -> RunDocument:
        """A side's document with its profiles, which replace the profiles of an earlier
        session of the same jobs.
        """
        names = {profile.workload for profile in self.profiles[side]}
        paths = {artifact.path for artifact in self.artifacts[side]}
        profiles = [
            profile for profile in run.jobs.profiles if profile.workload not in names
        ]
        artifacts = [
            artifact for artifact in run.artifacts if artifact.path not in paths
        ]
        return replace(
            run,
            jobs=replace(run.jobs, profiles=profiles + self.profiles[side]),
            artifacts=artifacts + self.artifacts[side],
        )
