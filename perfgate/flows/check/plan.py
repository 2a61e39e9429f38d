"""``perfgate plan``: decide on an ordinary machine whether a change has to be measured,
before a device is taken for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfgate.document.message import Message
from perfgate.document.plan import MeasurementPlan
from perfgate.errors import UsageError
from perfgate.flows.check.change import choose_change, skipped_decision
from perfgate.flows.shared.ci_artifact import DEFAULT_KEY, status_name
from perfgate.flows.shared.doors import Doors, given_file
from perfgate.flows.shared.options import ChangeOptions
from perfgate.judging.forge.detect import detect, is_draft
from perfgate.judging.forge.forge import CommitStatus, token_variables
from perfgate.judging.forge.runner import (
    OUTPUT_VARIABLE,
    append_to,
    output_lines,
    outputs_path,
)
from perfgate.judging.report.render.ci import plan_line
from perfgate.locale import Language, sentence
from perfgate.measuring.devices.registry import refuse_unknown_kind
from perfgate.version import __version__


@dataclass(frozen=True, kw_only=True)
class PlanRequest(ChangeOptions):
    """The options of ``perfgate plan``, which plans the check of a commit.

    ``skip_drafts`` leaves draft change requests unmeasured. ``outputs`` writes outputs
    of the CI step, and ``pending`` sets the commit status of the gate ``key`` until its
    verdict replaces it.
    """

    allow_dirty: bool = True
    skip_drafts: bool = False
    outputs: bool = False
    pending: bool = False
    key: str = DEFAULT_KEY
    language: Language = "en"


def plan_check(directory: Path, request: PlanRequest, doors: Doors) -> MeasurementPlan:
    """Plan the check of the checked-out commit, and tell the CI host; no code of the
    change is run.

    Raises ConfigError or RepositoryError if the check itself would refuse to start.
    """
    plan = _plan(directory, request, doors)
    if request.outputs:
        outputs = given_file(outputs_path(doors.environ), OUTPUT_VARIABLE, "--outputs")
        answers = {
            "measure": "true" if plan.measure else "false",
            "accelerator": "true" if plan.accelerator else "false",
            "testbeds": " ".join(plan.testbeds),
            "base": plan.base,
        }
        append_to(outputs, output_lines(answers), OUTPUT_VARIABLE)
    if request.pending and plan.measure:
        _set_pending(plan, request, doors)
    return plan


def _plan(directory: Path, request: PlanRequest, doors: Doors) -> MeasurementPlan:
    change = choose_change(directory, request)
    config = change.config
    reason = None
    if request.skip_drafts and is_draft(doors.environ):
        reason = Message("gate.draft")
    elif skipped := skipped_decision(change):
        reason = skipped.reasons[0]
    measure = reason is None
    workloads = [
        name
        for name in config.names
        if not request.workloads or name in request.workloads
    ]
    kinds = [
        refuse_unknown_kind(device)[1]
        for device in config.testbeds.values() or [config.device]
    ]
    return MeasurementPlan(
        perfgate_version=__version__,
        project=config.project,
        measure=measure,
        reason=reason,
        base=change.sides.base.commit,
        head=change.sides.head,
        workloads=workloads if measure else [],
        device=config.device,
        testbeds=dict(config.testbeds),
        accelerator=measure and any(kind != "cpu" for kind in kinds),
    )


def _set_pending(plan: MeasurementPlan, request: PlanRequest, doors: Doors) -> None:
    """Set the status that the verdict will replace. Raises ForgeError if the forge
    refuses it.
    """
    event = detect(doors.environ)
    if event is None:
        raise UsageError(
            "--pending sets a commit status, and this is not a CI job of a forge that perfgate knows"
        )
    forge = doors.connect(event)
    if forge is None:
        names = " or ".join(token_variables(event.forge))
        raise UsageError(
            "--pending needs a token that may set a commit status, in {names}",
            names=names,
        )
    name = status_name(request.key)
    forge.set_status(
        CommitStatus(
            event.head_sha,
            "pending",
            name,
            plan_line(plan, request.language),
            event.job.job_url,
        )
    )
    doors.say(
        sentence(
            "The commit status {name} of {head_sha} is pending.",
            name=name,
            head_sha=event.head_sha[:12],
        )
    )
