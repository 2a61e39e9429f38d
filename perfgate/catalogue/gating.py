"""Limits that can gate: what such a limit judges stands in the run document as a value, so that it can be judged again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from perfgate.catalogue.lookup import LIMITS


class Judged(NamedTuple):
    """The values that a limit holds to its bound: those of a metric that carry all the labels."""

    metric: str
    at_most: bool = True
    labels: Mapping[str, str] = {}


# By rule. What a step judges beside this depends on more than one value (a sum, another step's number, a condition), and
# only the step knows it.
_JUDGED = {
    "utilization.busy": Judged("utilization.busy", at_most=False),
    "utilization.host": Judged("utilization.host", at_most=False),
    "transfer.share": Judged("transfer.share", labels={"mode": "pageable"}),
    "ops.coverage": Judged("ops.coverage", at_most=False),
    "ops.share.conv_matmul": Judged("ops.share", labels={"class": "conv_matmul"}),
    "ops.share.copy": Judged("ops.share", labels={"class": "copy"}),
    "ops.share.reshape": Judged("ops.share", labels={"class": "reshape"}),
    "ops.share.softmax": Judged("ops.share", labels={"class": "softmax"}),
    "ops.kernel_time": Judged("ops.kernel_time"),
    "batch.loss": Judged("batch.loss"),
    "fusion.sequence_share": Judged("fusion.sequence_share"),
    "format.share": Judged("format.share"),
    "format.mixed": Judged("format.mixed_convolutions"),
    "precision.cast_share": Judged("precision.cast_share"),
    "preprocess.loading_share": Judged("preprocess.loading_share"),
    "small_ops.time_share": Judged("small_ops.time_share"),
    "small_ops.launch_bound": Judged("small_ops.launch_bound"),
    "contiguity.kernel_share": Judged("contiguity.kernel_share"),
    "cache.sensitivity": Judged("cache.sensitivity"),
    "communication.exposed": Judged("communication.exposed"),
    "memory.growth": Judged("memory.growth"),
    "memory.segments": Judged("memory.segments"),
    "memory.retries": Judged("memory.retries"),
    "memory.faults": Judged("memory.faults"),
    "profile.attributed": Judged("profile.attributed", at_most=False),
    "profile.overhead": Judged("profile.overhead"),
    "profile.lost_events": Judged("profile.lost_events"),
    "thermal.throttled": Judged("thermal.throttled"),
}


def judged_by(limit: str) -> Judged | None:
    """Return what a limit judges, None for one that cannot gate."""
    rule, _, severity = limit.rpartition(".")
    return _JUDGED.get(rule) if severity in ("info", "warning", "severe") else None


GATING_LIMITS = tuple(name for name in LIMITS if judged_by(name))
