"""Which steps of the checklist a check measures, and how."""

from __future__ import annotations

from typing import NamedTuple

from perfgate.catalogue.lookup import CARDS
from perfgate.document.decision import Policy
from perfgate.flows.check.measured import Job
from perfgate.flows.check.step_results import (
    BATCH_STEP,
    COUNTING_STEP,
    GRAPH_STEP,
    THERMAL_STEP,
)
from perfgate.flows.shared.options import AVAILABLE_STEPS
from perfgate.judging.gate.evidence.bounds import (
    DECIDING_STEPS,
    deciding_steps,
    steps_with_rules,
)


class CheckSteps(NamedTuple):
    """The steps of a check that decide, that inform, and of which only the exact numbers are counted.

    The pairs measure batch sizes if ``sizes_in_pairs``, and the device's state if ``is_watched``. After the turns both sides
    compile the call if ``compiles``, and in any case if the user ``is_asked`` for these steps by their numbers.
    """

    deciding: tuple[int, ...]
    informing: tuple[int, ...] = ()
    exact_only: tuple[int, ...] = ()
    sizes_in_pairs: bool = False
    is_watched: bool = False
    compiles: bool = False
    is_asked: bool = False


def steps_of_slow_calls(policy: Policy) -> CheckSteps:
    """The steps of a workload without pairs: counting, which takes a few calls, and steps with a rule."""
    deciding = {COUNTING_STEP, *steps_with_rules(policy)}
    return CheckSteps(deciding=tuple(sorted(deciding)))


def check_steps(job: Job) -> CheckSteps:
    options = job.options
    decides = deciding_steps(job.policy)
    is_asked = options.steps is not None
    selected = AVAILABLE_STEPS if options.steps is None else options.steps
    deciding = {
        COUNTING_STEP,
        *(decides - DECIDING_STEPS),
        *decides.intersection(selected),
    }
    informing = [number for number in selected if number not in decides]
    exact_only = tuple(number for number in informing if CARDS[number].pace.exact_first)
    sizes_in_pairs = (
        BATCH_STEP in informing and options.checklist_seconds(job.config.gate) > 0
    )
    # Selected by its number it soaks the device, which tells more than the watcher.
    is_watched = THERMAL_STEP in informing and not is_asked
    in_pairs = {BATCH_STEP: sizes_in_pairs, THERMAL_STEP: is_watched}
    return CheckSteps(
        deciding=tuple(sorted(deciding)),
        informing=tuple(
            number
            for number in informing
            if number not in exact_only and not in_pairs.get(number)
        ),
        exact_only=exact_only,
        sizes_in_pairs=sizes_in_pairs,
        is_watched=is_watched,
        compiles=GRAPH_STEP in exact_only,
        is_asked=is_asked,
    )
