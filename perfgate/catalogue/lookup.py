"""Find a card, a metric, a limit or a rule by its number or name."""

from __future__ import annotations

from perfgate.catalogue import steps
from perfgate.catalogue.card import Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import DISPATCH, TRACE
from perfgate.catalogue.subroutines import SUBROUTINE_TIMES, paired_time
from perfgate.plugins import load_members

CARDS: dict[int, StepCard] = {
    card.number: card for card in sorted((module.CARD for module in load_members(steps)), key=lambda card: card.number)
}
METRICS: dict[str, Metric] = {metric.name: metric for card in CARDS.values() for metric in card.metrics}
LIMITS: dict[str, float] = {limit.name: limit.default for card in CARDS.values() for limit in card.limits}
RULES: dict[str, Rule] = {rule.name: rule for card in CARDS.values() for rule in card.rules}


def card(number: int) -> StepCard:
    """Return one step's card. Raises KeyError for a number that is not on the checklist."""
    return CARDS[number]


def is_counted(name: str) -> bool:
    """Return whether a metric is one of the exact counters, which step 4 counts whatever card it stands on."""
    return name.startswith(("counters.", "ops.count:")) or name in {"memory.peak", "memory.kept"}


def measuring_step(name: str) -> int:
    """Return the step that measures a metric of the catalogue. Raises KeyError for another name."""
    return 4 if is_counted(name) else metric(name).step


def metric(name: str) -> Metric:
    """Return a metric of the catalogue; those of operators and other parts are derived.

    They are ``ops.count:NAME``, ``ops.time:NAME``, ``op.NAME``, ``module.NAME`` and ``function.FILE:NAME``.

    Raises KeyError for a name that is not in the catalogue.
    """
    if name.startswith(SUBROUTINE_TIMES):
        return paired_time(name)
    kind, colon, op = name.partition(":")
    if not colon or kind not in {"ops.time", "ops.count"}:
        return METRICS[name]
    if kind == "ops.time":
        title = Text(f"`{op}` time", f"`{op}` 耗时")
        explanation = Text(
            f"Self time of the operator {op} in one call of the workload.", f"算子 {op} 在一次调用中的自身耗时。"
        )
        return Metric(name, title, "s", "lower", "noisy", 4, explanation, TRACE)
    title = Text(f"`{op}` calls", f"`{op}` 调用次数")
    explanation = Text(
        f"How often one call of the workload dispatches the operator {op}.", f"一次调用中分发算子 {op} 的次数。"
    )
    return Metric(name, title, "1", "lower", "exact", 4, explanation, DISPATCH)
