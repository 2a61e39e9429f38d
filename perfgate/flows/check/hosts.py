"""Models that are built on the host once, so that a process on an accelerator only copies one."""

from __future__ import annotations

from perfgate.config import WorkloadReference
from perfgate.document.message import english
from perfgate.flows.check.measured import CheckContext
from perfgate.locale import sentence
from perfgate.protocol import Tried


def begin_host_builds(check: CheckContext, reference: WorkloadReference) -> None:
    """Begin to build a workload of both sides on the host, and on the device too for base, of which there may be no trial."""
    bench, checkouts = check.bench, check.checkouts
    if not bench.is_accelerated or checkouts["base"].python != checkouts["head"].python:
        return
    bench.host_builds.forget()
    for checkout in checkouts.values():
        bench.host_builds.begin(checkout, reference)
    bench.load_ahead(checkouts["base"], reference)


def load_both_ahead(check: CheckContext, reference: WorkloadReference) -> None:
    """Let both sides load for the checklist at the same time, if every process builds its own model and both fit."""
    bench = check.bench
    if bench.loads_slowly and bench.fits(len(check.checkouts)):
        for checkout in check.checkouts.values():
            bench.load_ahead(checkout, reference)


def confirm_host_builds(
    check: CheckContext, reference: WorkloadReference, trial: Tried | None
) -> None:
    """Compare the models of the host with the models built on the device; ``trial`` is the head's."""
    bench, head = check.bench, check.checkouts["head"]
    if not bench.host_builds.have_begun:
        return
    signatures = (
        {head: trial.signature}
        if trial is not None and trial.signature is not None
        else {}
    )
    reason = bench.host_builds.confirm(signatures)
    if reason is None:
        bench.let_go_ahead()
        return
    text = sentence(
        "{name}: every process builds its own model: {reason}",
        name=reference.name,
        reason=english(reason),
    )
    check.progress.note(text)
