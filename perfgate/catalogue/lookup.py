"""Find a step, a metric, a limit, a rule or advice by its number or name."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perfgate.catalogue.load import (
    load_changes,
    load_families,
    load_glossary,
    load_messages,
    load_steps,
)
from perfgate.catalogue.names import NUMBER
from perfgate.catalogue.records import (
    GATE_STEP,
    Advice,
    Family,
    JudgedValue,
    Limit,
    Metric,
    Rule,
    Sentence,
    StepCard,
    Term,
)
from perfgate.catalogue.terms import Compared

CARDS: dict[int, StepCard] = load_steps()
METRICS: dict[str, Metric] = {}
LIMITS: dict[str, Limit] = {}
RULES: dict[str, Rule] = {}
_PARTS: dict[str, Metric] = {}
for _card in CARDS.values():
    for _metric in _card.metrics:
        METRICS[_metric.name] = _metric
    for _limit in _card.limits:
        LIMITS[_limit.name] = _limit
    for _rule in _card.rules:
        RULES[_rule.name] = _rule
    for _part in _card.parts:
        _PARTS[_part.name] = _part
RULE_ADVICE = {
    rule.name: rule.advice for rule in RULES.values() if isinstance(rule.advice, Advice)
}
CHANGE_ADVICE: dict[str, Advice] = load_changes()
GLOSSARY: dict[str, Term] = load_glossary()
FAMILIES: dict[str, Family] = load_families(METRICS.values())
# Advice is ``advice.RULE``, or ``advice.RULE.instead`` if the remedy was tried in vain.
MESSAGES: dict[str, Sentence] = load_messages()
for _name, _advice in (RULE_ADVICE | CHANGE_ADVICE).items():
    MESSAGES[f"advice.{_name}"] = Sentence(other=_advice.message)
for _name, _advice in RULE_ADVICE.items():
    if _advice.instead:
        MESSAGES[f"advice.{_name}.instead"] = Sentence(other=_advice.instead)
FAST_PATHS = FAMILIES["fast_path"].metrics
# A number measured in turns is compared if a tolerance names it, and must then be
# decided.
MUST_DECIDE = {name for name, entry in METRICS.items() if entry.repeatable}
for _family in FAMILIES.values():
    if _family.must_decide:
        MUST_DECIDE.update(_family.metrics)
TIMED_STEPS = frozenset(entry.step for entry in METRICS.values() if entry.origin.timed)
STEPS_OF_A_YOUNG_PROCESS = tuple(
    sorted({entry.step for entry in METRICS.values() if entry.origin.of_young_process})
)
_COUNTING_STEP = 4
_UNKNOWN = Metric(
    name="", step=20, title="", better="neutral", explanation="", source=""
)


def card(number: int) -> StepCard:
    """Raises KeyError for a number that is not on the checklist."""
    return CARDS[number]


def metric(name: str) -> Metric:
    """A metric of the catalogue, or the metric of an operator, a module or a function,
    such as ``ops.count:aten::mm``.

    A name that is not in the catalogue may be of a newer perfgate: it stands for
    itself, and no verdict rests on it.
    """
    for prefix, part in _PARTS.items():
        if name.startswith(prefix):
            return msgspec.structs.replace(
                part, name=name, part=name.removeprefix(prefix)
            )
    return METRICS.get(name) or msgspec.structs.replace(_UNKNOWN, name=name, title=name)


def is_known(name: str) -> bool:
    return name in METRICS or any(name.startswith(prefix) for prefix in _PARTS)


def compared(name: str) -> Compared:
    """How the gate compares a metric, by its entry."""
    entry = metric(name)
    if entry.gate.family:
        if FAMILIES[entry.gate.family].gating:
            return "pairs"
        return "beside"
    if entry.gate.own_rule:
        return "rule"
    if entry.origin.counted or (entry.step == GATE_STEP and entry.is_exact):
        return "count"
    if entry.part and not name.startswith(NUMBER):
        return "part"
    if entry.step == GATE_STEP:
        return "job"
    if entry.repeatable:
        if entry.origin.sampled:
            return "named_pairs"
        return "named_turns"
    if entry.gate.tolerance is None:
        return "never"
    return "recorded"


def measuring_step(name: str) -> int:
    """Raises KeyError for a name that is not in the catalogue."""
    if not is_known(name):
        raise KeyError(name)
    described = metric(name)
    if described.origin.counted:
        return _COUNTING_STEP
    return described.step


def judged_by(limit: str) -> JudgedValue | None:
    """The value that a limit bounds; None for a limit that cannot gate, because no
    value in the run document holds its number.
    """
    rule, _, severity = limit.rpartition(".")
    if severity not in ("info", "warning", "severe") or rule not in RULES:
        return None
    return RULES[rule].judges


GATING_LIMITS = tuple(name for name in LIMITS if judged_by(name))


def sources() -> Iterator[str]:
    """Where the numbers of the catalogue come from: formulas and references, which need
    no translation and may have one.
    """
    for step in CARDS.values():
        for metric in (*step.metrics, *step.parts):
            yield metric.source
        for limit in step.limits:
            yield limit.source


def sentences() -> Iterator[str]:
    """Every English sentence of the catalogue that needs a translation."""
    for step in CARDS.values():
        yield from (
            step.title,
            step.question,
            step.how,
            step.remedy,
            step.cost,
            *step.devices.values(),
        )
        for metric in (*step.metrics, *step.parts):
            yield from (
                metric.title,
                metric.explanation,
                *metric.display.clock_titles.values(),
            )
        for rule in step.rules:
            yield rule.message
    for term in GLOSSARY.values():
        yield from (term.name, term.explanation)
    for sentence in MESSAGES.values():
        yield sentence.other
        if sentence.one is not None:
            yield sentence.one
