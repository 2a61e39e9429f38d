"""The settings of a check: the head's, with the rules of the base that judge it and its way of measuring."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from perfgate.config import Config, load_config
from perfgate.flows.check.change import Change


def settings_of_head(change: Change, root: Path) -> Config:
    """The head's own settings, from its checkout."""
    return replace(
        load_config(root, device=change.options.device), project=change.config.project
    )


def settings_of_check(change: Change, head: Config) -> Config:
    """The settings by which both sides are measured, with the budgets of pairs and jobs that the options multiply."""
    config = _with_rules_of_base(change, head)
    factor = change.options.budgets
    workloads = dict(config.workloads)
    for job in config.jobs:
        workloads[job.name] = replace(job.settings, budget=factor * job.settings.budget)
    gate = replace(config.gate, budget=factor * config.gate.budget)
    return replace(config, gate=gate, workloads=workloads)


def _with_rules_of_base(change: Change, head: Config) -> Config:
    """The rules are the budgets, the expectations, the gating limits and how the gate decides.

    A change may ask for more time but not for less. What a side reads or installs is its own; the limits on its seconds and
    memory are the head's.
    """
    base = change.base_config.config
    if base is None:
        return head
    is_chosen = change.options.device or os.environ.get("PERFGATE_DEVICE")
    gate = replace(
        base.gate,
        budget=max(base.gate.budget, head.gate.budget),
        checklist_budget=max(base.gate.checklist_budget, head.gate.checklist_budget),
    )
    measure = replace(
        base.measure,
        pass_env=[
            name for name in base.measure.pass_env if name in head.measure.pass_env
        ],
        load_timeout=head.measure.load_timeout,
        step_timeout=head.measure.step_timeout,
        memory_limit=head.measure.memory_limit,
    )
    return replace(
        head,
        device=head.device if is_chosen else base.device,
        budget=base.budget,
        expect=base.expect,
        limits={**head.limits, **base.gating_limits},
        gate=gate,
        measure=measure,
    )
