"""Which steps of the checklist a check measures, and how."""

from __future__ import annotations

from typing import NamedTuple

from perfgate.catalogue.lookup import CARDS
from perfgate.config import Config
from perfgate.document.decision import Policy
from perfgate.flows.check.batch import BATCH_STEP
from perfgate.flows.check.graph import GRAPH_STEP
from perfgate.flows.check.measured import COUNTING_STEP, Job
from perfgate.flows.check.thermal import THERMAL_STEP
from perfgate.flows.shared.options import AVAILABLE_STEPS, CheckOptions
from perfgate.judging.gate.evidence.bounds import DECIDING_STEPS, deciding_steps, steps_with_rules


class CheckSteps(NamedTuple):
    """The steps of a check: those that decide and those that inform, and those of which only the exact numbers are counted.

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
    """The steps of a workload without pairs: counting, which takes a few calls, and those with a rule about them."""
    deciding = {COUNTING_STEP, *steps_with_rules(policy)}
    return CheckSteps(deciding=tuple(sorted(deciding)))


def check_steps(job: Job, options: CheckOptions) -> CheckSteps:
    decides = deciding_steps(job.policy)
    is_asked = options.steps is not None
    asked = AVAILABLE_STEPS if options.steps is None else options.steps
    deciding = {COUNTING_STEP, *(decides - DECIDING_STEPS), *(number for number in asked if number in decides)}
    informing = [number for number in asked if number not in decides]
    exact_only = tuple(number for number in informing if CARDS[number].exact_first)
    sizes_in_pairs = BATCH_STEP in informing and checklist_budget(job.config, options) > 0
    # Selected by its number it soaks the device, which tells more than the watcher.
    is_watched = THERMAL_STEP in informing and not is_asked
    in_pairs = {BATCH_STEP: sizes_in_pairs, THERMAL_STEP: is_watched}
    return CheckSteps(
        deciding=tuple(sorted(deciding)),
        informing=tuple(number for number in informing if number not in exact_only and not in_pairs.get(number)),
        exact_only=exact_only,
        sizes_in_pairs=sizes_in_pairs,
        is_watched=is_watched,
        compiles=GRAPH_STEP in exact_only,
        is_asked=is_asked,
    )


def checklist_budget(config: Config, options: CheckOptions) -> float:
    """The seconds for turns of the checklist of a workload."""
    return config.gate.checklist_budget if options.checklist_budget is None else options.checklist_budget
