"""What the run documents hold of one workload, and how much of other workloads is tested beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from perfgate.catalogue.names import PREPROCESSING
from perfgate.document.run import RunDocument

_OF_WORKLOADS = (
    *("steps", "correctness", "counters", "operators", "kernel_times", "accounts", "replicates", "turns"),
    *("failed_pairs", "harness"),
)


def of_workload(run: RunDocument, workload: str) -> RunDocument:
    """The run document without what it holds of other workloads and jobs."""
    kept = {name: [entry for entry in getattr(run, name) if entry.workload == workload] for name in _OF_WORKLOADS}
    named = {name: [entry for entry in getattr(run, name) if entry.name == workload] for name in ("workloads", "jobs")}
    return msgspec.structs.replace(run, **kept, **named)


class Elsewhere(NamedTuple):
    """What is tested beside one workload: shapes, those that are preprocessed too, and numbers of jobs.

    What is shown of the workload must be so when all are corrected for together, so each of these tests counts as one that
    shows nothing, whatever it shows.
    """

    shapes: int = 0
    preprocessed: int = 0
    numbers: int = 0

    @classmethod
    def than(cls, workload: str, head: RunDocument, *, to_come: int = 0) -> Elsewhere:
        """What ``head`` holds of others than this workload, and ``to_come`` workloads of a shape each, like this one."""
        pairs = [replicate for replicate in head.replicates if replicate.arm == "ab"]
        others = [replicate for replicate in pairs if replicate.workload != workload]
        is_preprocessed = any(pair.preprocess for pair in pairs if pair.workload == workload)
        return cls(
            shapes=to_come + len({(pair.workload, shape) for pair in others for shape in pair.shapes}),
            preprocessed=to_come * is_preprocessed
            + len({(pair.workload, shape) for pair in others for shape in pair.preprocess}),
            numbers=sum(number.gating for job in head.jobs if job.name != workload for number in job.numbers),
        )

    def p_values(self, metrics: Iterable[str]) -> list[float]:
        """Those of these metrics, of which every shape has each."""
        return [1.0] * sum(self.preprocessed if name == PREPROCESSING else self.shapes for name in metrics)


NOTHING_ELSEWHERE = Elsewhere()
