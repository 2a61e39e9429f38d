"""``perfgate explain``: the meaning of a word in the reports, the source of its numbers, and the remedy when it is red."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perfgate.catalogue.lookup import CARDS, GLOSSARY, LIMITS, METRICS, RULES, compared, is_known, judged_by, metric
from perfgate.catalogue.records import Limit, Metric, Rule, StepCard
from perfgate.catalogue.terms import DEVICE_KINDS, DeviceKind
from perfgate.errors import UsageError
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.index import Named, entries, meanings, suggestions
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.locale import Activity, Language, speaking

_UNITS = {
    "s": phrase("seconds"),
    "B": phrase("bytes"),
    "B/s": phrase("bytes per second"),
    "items/s": phrase("items per second"),
}
_SORTS = {
    "share": phrase("a share of the whole"),
    "ratio": phrase("a ratio"),
    "count": phrase("a count"),
    "answer": phrase("yes or no"),
    "value": phrase("a number without a unit"),
}
_BETTER = {
    "lower": phrase("lower is better"),
    "higher": phrase("higher is better"),
    "neutral": phrase("neither direction is better"),
}
_LONG = 2000
_SEVERITIES = ("info", "warning", "severe")


# The ``[limits]`` of a project.
_Settings = Mapping[str, float]


def explain(
    name: str, *, device: DeviceKind = "cpu", limits: _Settings = MappingProxyType({}), language: Language = "en"
) -> str:
    """The text for a step by number or slug (``4``, ``s04``, ``top_ops``), a metric, a rule of findings, a limit, or a word.

    ``device`` is the kind that the reader measures on, and ``limits`` are the settings of their project.
    A word is a title in any language, the last part of a name, or one of the glossary; if it matches
    several entries, they are listed. Raises UsageError, with at most five similar known words, for anything else.
    """
    with speaking(language):
        return _explain(name.strip(), device, limits)


def _explain(name: str, device: DeviceKind, limits: _Settings) -> str:
    number = _step_number(name.lower())
    if number is not None:
        return _explain_step(CARDS[number], device, limits)
    if is_known(name):
        return _explain_metric(metric(name), limits)
    if name in RULES:
        return _explain_rule(name, limits)
    if name in LIMITS:
        return _explain_limit(name, limits)
    return _explain_word(name, device, limits)


def _explain_word(word: str, device: DeviceKind, limits: _Settings) -> str:
    found = meanings(word)
    if not found:
        close = suggestions(word)
        raise UsageError(
            "there is no step, metric, rule, limit or word {word!r}{hint}; steps: 1 to 20; `perfgate explain --list` "
            "shows every name",
            word=word,
            hint=Activity("; did you mean {names}?", names=", ".join(map(repr, close))) if close else "",
        )
    if len(found) > 1:
        return _render("several", {"word": word, "listed": [_listed(named) for named in found]})
    if found[0].kind != "term":
        return _explain(found[0].name, device, limits)
    term = GLOSSARY[found[0].name]
    return _render("term", {"name": say(term.name), "explanation": say(term.explanation)})


def list_names(language: Language) -> str:
    """Every name that can be explained with its title, one per line."""
    with speaking(language):
        return _render("several", {"word": "", "listed": [_listed(named) for named in entries()]})


def _listed(named: Named) -> dict[str, Words]:
    name = Words(named.name)
    if named.kind == "metric":
        return {"name": name, "title": say(METRICS[named.name].title)}
    if named.kind == "step":
        return {"name": name, "title": say(CARDS[_step_number(named.name) or 0].title)}
    if named.kind == "rule":
        return {"name": name, "title": say(RULES[named.name].message)}
    return {"name": name, "title": say(named.name) if named.kind == "term" else Words("")}


def _step_number(text: str) -> int | None:
    digits = text.removeprefix("s")
    if digits.isascii() and digits.isdigit() and len(digits) <= 2 and int(digits) in CARDS:
        return int(digits)
    return next((number for number, card in CARDS.items() if card.slug == text.replace("-", "_")), None)


def _explain_step(card: StepCard, device: DeviceKind, limits: _Settings) -> str:
    other_kinds = [kind for kind in DEVICE_KINDS if kind != device]
    return _render(
        "step",
        {
            "number": card.number,
            "slug": card.slug,
            "title": say(card.title),
            "question": say(card.question),
            "how": say(card.how),
            "kind": Words(device),
            "here": say(card.devices[device]) if device in card.devices else Words(""),
            "others": [
                {"kind": Words(kind), "shows": say(card.devices[kind])} for kind in other_kinds if kind in card.devices
            ],
            "metrics": [{"name": metric.name, "title": say(metric.title)} for metric in card.metrics],
            "limits": [_limit(metric, limits) for metric in card.limits],
            "rules": [_rule(metric) for metric in card.rules],
            "cost": say(card.cost),
            "remedy": say(card.remedy),
        },
    )


def _explain_metric(metric: Metric, limits: _Settings) -> str:
    card = CARDS[metric.step]
    unit = _SORTS[metric.number_sort] if metric.unit == "1" else _UNITS.get(metric.unit, metric.unit)
    return _render(
        "metric",
        {
            "name": metric.name,
            # Both contain the operator's name in an operator's metric; the name is outside text.
            "title": Words(clean(say(metric.title, part=Words(metric.part)))),
            "explanation": Words(clean(say(metric.explanation, part=Words(metric.part)), limit=_LONG)),
            "unit": say(unit),
            "better": say(_BETTER[metric.better]),
            "exact": metric.kind == "exact",
            "compared": Words(compared(metric.name)),
            "shown": metric.leading,
            "source": say(metric.source),
            "step": card.number,
            "step_title": say(card.title),
            "tolerance": None if metric.tolerance is None else numbers.setting(metric.tolerance),
            "limits": [
                _limit(limit, limits)
                for limit in card.limits
                if limit.name.startswith(f"{metric.name}.")
                or ((judged := judged_by(limit.name)) and judged.metric == metric.name)
            ],
        },
    )


def _explain_rule(name: str, limits: _Settings) -> str:
    card = CARDS[RULES[name].step]
    judged = [limit for limit in card.limits if limit.name.rpartition(".")[0] == name]
    return _render(
        "rule",
        {
            **_rule(RULES[name]),
            "step": card.number,
            "step_title": say(card.title),
            "limits": [_limit(limit, limits) for limit in judged],
            "remedy": say(card.remedy),
        },
    )


def _explain_limit(name: str, limits: _Settings) -> str:
    limit = LIMITS[name]
    card = CARDS[limit.step]
    rule, _, severity = name.rpartition(".")
    return _render(
        "limit",
        {
            **_limit(limit, limits),
            "severity": Words(severity) if severity in _SEVERITIES else None,
            "message": say(RULES[rule].message) if rule in RULES else None,
            "step": card.number,
            "step_title": say(card.title),
        },
    )


def _limit(limit: Limit, settings: _Settings) -> Mapping[str, object]:
    """A limit of the checklist, and the project's setting."""
    setting = settings.get(limit.name)
    return {
        "key": limit.name,
        "value": Words(f"{limit.default if setting is None else setting:g}"),
        "default": Words(f"{limit.default:g}"),
        "overridden": setting is not None,
        "source": say(limit.source),
    }


def _rule(rule: Rule) -> Mapping[str, object]:
    # The braces of its evidence stay: they show which values a finding inserts there.
    return {"rule": rule.name, "message": say(rule.message)}


def _render(kind: str, values: Mapping[str, object]) -> str:
    return str(render(f"explain/{kind}.txt.j2", "plain", values)).strip("\n") + "\n"
