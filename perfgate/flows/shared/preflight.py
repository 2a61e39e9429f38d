"""Try workloads before measuring, so that a mistake in their setup costs only seconds and gives a one-line error."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.config import WorkloadReference
from perfgate.document.message import as_message, english
from perfgate.errors import SetUpError
from perfgate.locale import sentence
from perfgate.protocol import Tried


def preflight(
    bench: Bench, checkout: Checkout, references: Iterable[WorkloadReference], *, packages: bool = False
) -> Collection[str]:
    """Load each workload, make one call of every shape and run its check.

    With ``packages``, return the distributions of all loaded files.
    Raises SetUpError with the failure, its place and the remedy on one line.
    """
    loaded: set[str] = set()
    for reference in references:
        bench.say(sentence("trying workload {name}", name=reference.name))
        trial = bench.try_workload(checkout, reference, packages=packages)
        refuse_failed(reference, trial)
        loaded |= set(trial.packages or ())
    return loaded


def refuse_failed(reference: WorkloadReference, trial: Tried) -> None:
    """Raise SetUpError if the trial of a workload failed."""
    if trial.error is None:
        return
    what = {"load": "cannot be loaded", "call": "cannot be called", "check": "fails its own check"}[
        trial.failed or "load"
    ]
    inputs = f" with inputs of shape {trial.shape!r}" if trial.shape not in ("", "default") else ""
    remedy = "; correct the model, or what check expects" if trial.failed == "check" else ""
    message = english(as_message(trial.error.message))
    raise SetUpError(
        "workload {name!r} {what}{inputs}: {message}{remedy}",
        name=reference.name,
        what=what,
        inputs=inputs,
        message=message,
        remedy=remedy,
    )
