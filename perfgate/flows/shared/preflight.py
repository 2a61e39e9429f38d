"""Try workloads before measuring, so that a mistake in their setup costs only seconds
and gives a one-line error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import WorkloadReference
from perfgate.document.message import ReasonedError, as_message
from perfgate.errors import SetUpError
from perfgate.locale import Activity, sentence
from perfgate.protocol import Tried


def preflight(
    bench: Bench,
    checkout: Checkout,
    references: Iterable[WorkloadReference],
    *,
    packages: bool = False,
) -> Collection[str]:
    """Load each workload, make one call of every shape and run its check.

    With ``packages``, return the distributions of all loaded files.
    Raises SetUpError with the failure, its place and the remedy on one line.
    """
    loaded: set[str] = set()
    for reference in references:
        bench.say(sentence("testing workload {name}", name=reference.name))
        trial = bench.try_workload(checkout, reference, packages=packages)
        refuse_failed(reference, trial)
        loaded |= set(trial.packages or ())
    return loaded


def refuse_failed(reference: WorkloadReference, trial: Tried) -> None:
    """Raise SetUpError if the trial of a workload failed."""
    if trial.error is None:
        return
    reason = {
        "load": Activity("cannot be loaded"),
        "call": Activity("cannot be called"),
        "check": Activity("fails its own check"),
    }[trial.failed or "load"]
    has_shape = trial.shape not in ("", "default")
    inputs = ""
    if has_shape:
        inputs = Activity(" with inputs of shape {shape!r}", shape=trial.shape)
    remedy = ""
    if trial.failed == "check":
        remedy = Activity("; correct the model, or what check expects")
    raise SetUpError(
        "workload {name!r} {what}{inputs}: {message}{remedy}",
        name=reference.name,
        what=reason,
        inputs=inputs,
        message=ReasonedError(as_message(trial.error.message)),
        remedy=remedy,
    )
