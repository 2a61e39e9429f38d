"""The job profiles of a check: their entries in the run documents, the traces that are kept, and the flame graph."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from perfgate import trace
from perfgate.conductor.sides.job_turns import NAMES, SideName
from perfgate.conductor.sides.stacks.profiled import (
    kept_traces,
    profile_of,
    write_trace,
)
from perfgate.conductor.sides.stacks.stacks import SideStacks
from perfgate.document.flame import FlameTree, side_by_side
from perfgate.document.profile import JobProfile
from perfgate.document.run import Artifact, RunDocument
from perfgate.document.shape import ShapePlace
from perfgate.errors import DocumentError
from perfgate.flows.shared.session import artifact_of
from perfgate.flows.shared.trees import tree_of
from perfgate.measuring.counting.collect import trace_name


@dataclass
class KeptProfiles:
    """The profiles of all jobs, for each side's document."""

    profiles: dict[SideName, list[JobProfile]] = field(
        default_factory=lambda: {"base": [], "head": []}
    )
    artifacts: dict[SideName, list[Artifact]] = field(
        default_factory=lambda: {"base": [], "head": []}
    )

    def keep(
        self,
        workload: str,
        stacks: Mapping[SideName, SideStacks],
        roots: Mapping[SideName, Path],
        folders: Mapping[SideName, Path],
    ) -> dict[ShapePlace, FlameTree]:
        """Write the traces of a job into the folders of its sides; return the flame graph, if both sides have stacks."""
        trees: dict[SideName, FlameTree] = {}
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
                # Times per unit of work: the sides did different amounts of work while they were sampled.
                tree = tree_of(timeline, workload)
                costs = tree.head and msgspec.structs.replace(
                    tree.head, units=max(1, sampled.units)
                )
                trees[side] = msgspec.structs.replace(tree, head=costs, unit="call")
            except (DocumentError, ValueError):  # no stack was sampled
                continue
        if len(trees) < len(NAMES):
            return {}
        return {ShapePlace(workload, ""): side_by_side(trees["base"], trees["head"])}

    def put_into(self, side: SideName, run: RunDocument) -> RunDocument:
        """A side's document with its profiles, which replace the profiles of an earlier session of the same jobs."""
        names = {profile.workload for profile in self.profiles[side]}
        paths = {artifact.path for artifact in self.artifacts[side]}
        profiles = [
            profile for profile in run.jobs.profiles if profile.workload not in names
        ]
        artifacts = [
            artifact for artifact in run.artifacts if artifact.path not in paths
        ]
        return msgspec.structs.replace(
            run,
            jobs=msgspec.structs.replace(
                run.jobs, profiles=profiles + self.profiles[side]
            ),
            artifacts=artifacts + self.artifacts[side],
        )
