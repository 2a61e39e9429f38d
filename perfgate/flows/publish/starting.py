"""Start what an order wants measured: by the outputs of GitHub's workflow, or by a
pipeline of the change's own branch.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from perfgate.errors import ForgeError, ForgeUnansweredError, UsageError
from perfgate.flows.shared.doors import Doors
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.forge.forge import CiEvent, Forge
from perfgate.judging.forge.orders import (
    BisectOrder,
    OrderedChange,
    PipelineForge,
    RunOrder,
)
from perfgate.judging.forge.runner import (
    OUTPUT_VARIABLE,
    append_to,
    log_lines,
    output_lines,
    outputs_path,
)
from perfgate.judging.report.render.comment import OrderAnswer

# Enough of a commit for people and for git.
_SHORT = 12


def start_measuring(
    order: RunOrder | BisectOrder,
    change: OrderedChange,
    event: CiEvent,
    forge: Forge,
    key: str,
    doors: Doors,
) -> OrderAnswer:
    """Start it, or answer how to do it by hand.

    Every part of the comment is checked first.

    Raises ForgeError if the change has no commits, and ForgeUnansweredError if a
    pipeline may or may not have been started.
    """
    if not (
        COMMIT_ID.fullmatch(change.head_sha) and COMMIT_ID.fullmatch(change.base_sha)
    ):
        raise ForgeError(
            "change request {number} has no head or base that is a commit",
            number=change.number,
        )
    if event.forge == "github":
        return tell_workflow(order, change, event, doors.environ)
    if isinstance(order, RunOrder):
        # A job that a comment starts has the rights of the main branch, so it must not
        # run code of a change.
        return OrderAnswer("rerun" if isinstance(forge, PipelineForge) else "repeat")
    if not isinstance(forge, PipelineForge):
        return OrderAnswer("by_hand", command=bisect_line(order, change))
    if change.from_fork or change.branch is None:
        return OrderAnswer("fork_by_hand", command=bisect_line(order, change))
    return _start_pipeline(order, change, change.branch, event, forge, key, doors)


def tell_workflow(
    order: RunOrder | BisectOrder,
    change: OrderedChange,
    event: CiEvent,
    environ: Mapping[str, str],
) -> OrderAnswer:
    """Write the outputs by which the workflow's next job learns what to measure."""
    path = outputs_path(environ)
    if path is None:
        raise UsageError(
            "{variable} is not set, so the workflow would not learn what to measure",
            variable=OUTPUT_VARIABLE,
        )
    outputs = {
        "action": "run",
        "number": str(change.number),
        "head_sha": change.head_sha,
        "base_sha": change.base_sha,
        "workload": "",
        "metric": "",
        "fork": str(change.from_fork).lower(),
    }
    if isinstance(order, BisectOrder):
        outputs["action"], outputs["metric"] = "bisect", order.metric or ""
        answer = _bisecting(order, change, event.job.job_url)
    else:
        outputs["workload"] = order.workload or ""
        answer = OrderAnswer(
            "measuring",
            head=change.head_sha[:_SHORT],
            workload=order.workload,
            job_url=event.job.job_url,
        )
    append_to(path, output_lines(outputs), OUTPUT_VARIABLE)
    return answer


def _bisecting(
    order: BisectOrder, change: OrderedChange, job_url: str | None
) -> OrderAnswer:
    metrics = tuple(filter(None, [order.metric]))
    return OrderAnswer(
        "bisecting", head=change.head_sha[:_SHORT], metrics=metrics, job_url=job_url
    )


def _start_pipeline(
    order: BisectOrder,
    change: OrderedChange,
    branch: str,
    event: CiEvent,
    forge: PipelineForge,
    key: str,
    doors: Doors,
) -> OrderAnswer:
    variables = {
        "PERFGATE_ACTION": "bisect",
        "PERFGATE_KEY": key,
        "PERFGATE_CHANGE_REQUEST": str(change.number),
        "PERFGATE_HEAD_SHA": change.head_sha,
        "PERFGATE_BASE_SHA": change.base_sha,
    }
    if order.metric:
        variables["PERFGATE_METRIC"] = order.metric
    try:
        page = forge.start_pipeline(branch, variables)
    except ForgeUnansweredError:
        raise
    except ForgeError as error:
        doors.say(log_lines(error.shown, doors.environ))
        return OrderAnswer(
            "refused_by_hand",
            command=bisect_line(order, change),
            job_url=event.job.job_url,
        )
    return _bisecting(order, change, page)


def bisect_line(order: BisectOrder, change: OrderedChange) -> str:
    """The shell line that does the same in a clone of the target repository."""
    base, head = change.base_sha[:_SHORT], change.head_sha
    metric = ""
    if order.metric:
        metric = f"{shlex.quote(order.metric)} "
    good = f'"$(git merge-base {base} {head[:_SHORT]})"'
    fetch = f"git fetch origin && git fetch origin {change.ref or head}"
    return f"{fetch} && perfgate bisect {metric}--good {good} --bad {head}"
