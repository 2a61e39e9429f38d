"""``perfgate explain``: the meaning of a word in the reports, the source of its
numbers, and the remedy when it is red.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from string import Formatter
from types import MappingProxyType
from typing import Literal, NamedTuple

from perfgate.catalogue.lookup import (
    CARDS,
    GLOSSARY,
    LIMITS,
    METRICS,
    RULES,
    compared,
    is_known,
    judged_by,
    metric,
)
from perfgate.catalogue.records import Advice, Limit, Metric, StepCard
from perfgate.catalogue.terms import DEVICE_KINDS, DeviceKind
from perfgate.errors import UsageError
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.names import CLOCK_TITLES
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import EMPTY, Words, phrase, phrases, say
from perfgate.locale import (
    LANGUAGES,
    Language,
    filled,
    gap_between,
    speaking,
    translate,
)

_UNITS = phrases(
    {
        "s": "seconds",
        "B": "bytes",
        "B/s": "bytes per second",
        "items/s": "items per second",
    }
)
_SORTS = phrases(
    {
        "share": "a share of the whole",
        "ratio": "a ratio",
        "count": "a count",
        "answer": "yes or no",
        "value": "a number without a unit",
    }
)
_BETTER = phrases(
    {
        "lower": "lower is better",
        "higher": "higher is better",
        "neutral": "neither direction is better",
    }
)
_LONG = 2000
_MOST_SUGGESTIONS = 5
# Similarity ratio of difflib that a typing error leaves.
_ALIKE = 0.6
EntryKind = Literal["term", "step", "metric", "rule", "limit"]
_SEVERITIES = ("info", "warning", "severe")


_KINDS = phrases(
    {
        "exact": "kind      exact: repeated measurement gives the same number, so any change is real",
        "noisy": "kind      noisy: read it with its interval",
    }
)
# How the gate compares a metric.
_GATE = phrases(
    {
        "pairs": "gate      compared in pairs of base and head; it decides",
        "beside": "gate      compared in pairs of base and head; it informs and decides nothing",
        "count": "gate      compared as an exact count; it decides",
        "named_pairs": "gate      compared in pairs of base and head; it decides only "
        "if [gate.tolerance] in perfgate.toml names it",
        "named_turns": "gate      compared, in turns of its step, only if [gate.tolerance] in perfgate.toml names it",
        "job": "gate      compared in turns of a job of [workloads] in perfgate.toml",
        "part": "gate      compared where a change of a call is taken apart",
        "recorded": "gate      compared between two recordings",
        "rule": "gate      judged by its own rule, not by a tolerance",
    }
)
_GATE_OF_LEADING = phrases(
    {
        "named_turns": "gate      compared in turns of its step; it decides only if [gate.tolerance] in perfgate.toml names it",
        "never": "gate      never decides; the checklist shows both sides",
    }
)
_NEVER_SHOWN = phrase("gate      never compared")
_WITHOUT_TOLERANCE = ("beside", "rule", "never")


class Named(NamedTuple):
    """An entry of the catalogue, and the name by which `perfgate explain` takes it.

    ``titles`` find it in every language, and ``words`` as they are.
    """

    kind: EntryKind
    name: str
    title: str = ""
    titles: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class LimitEntry(NamedTuple):
    """A limit with the project's setting, or its default."""

    key: str
    value: Words
    default: Words
    overridden: bool
    source: Words


# The ``[limits]`` of a project.
_Settings = Mapping[str, float]


def explain(
    name: str,
    *,
    device: DeviceKind = "cpu",
    limits: _Settings = MappingProxyType({}),
    language: Language = "en",
) -> str:
    """The text for a step by number or slug (``4``, ``s04``, ``top_ops``), a metric, a
    rule of findings, a limit, or a word.

    ``device`` is the kind that the reader measures on, and ``limits`` are the settings
    of their project. A word is a title in any language, the last part of a name, or one
    of the glossary; if it matches several entries, they are listed. Raises UsageError,
    with at most five similar known words, for anything else.
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
    entries_of_word = meanings(word)
    if not entries_of_word:
        raise _unknown(word)
    if len(entries_of_word) > 1:
        return _render("several", word=word, listed=list(map(_listed, entries_of_word)))
    entry = entries_of_word[0]
    if entry.kind != "term":
        return _explain(entry.name, device, limits)
    term = GLOSSARY[entry.name]
    return _render("term", name=say(term.name), explanation=say(term.explanation))


def _unknown(word: str) -> UsageError:
    close = suggestions(word)
    if not close:
        return UsageError(
            "there is no step, metric, rule, limit or word {word!r}; steps: 1 to 20; `perfgate explain --list` shows every "
            "name",
            word=word,
        )
    return UsageError(
        "there is no step, metric, rule, limit or word {word!r}; did you mean {names}?; steps: 1 to 20; `perfgate explain "
        "--list` shows every name",
        word=word,
        names=", ".join(map(repr, close)),
    )


def list_names(language: Language) -> str:
    """Every name that can be explained with its title, one per line."""
    with speaking(language):
        return _render("several", word="", listed=list(map(_listed, entries())))


def _listed(entry: Named) -> tuple[Words, Words]:
    """The name of an entry and its title."""
    return Words(entry.name), _pattern(entry.title)


def _pattern(english: str) -> Words:
    """A sentence of a finding without a finding: its values are their names in
    capitals, like the arguments of a command.
    """
    words = ""
    for literal, name, _, _ in Formatter().parse(translate(english)):
        words += gap_between(words, literal) + literal
        if name is not None:
            value = name.upper()
            words += gap_between(words, value) + value
    return Words(words)


def _step_number(text: str) -> int | None:
    digits = text.removeprefix("s")
    if (
        digits.isascii()
        and digits.isdigit()
        and len(digits) <= 2
        and int(digits) in CARDS
    ):
        return int(digits)
    slug = text.replace("-", "_")
    for number, card in CARDS.items():
        if card.slug == slug:
            return number
    return None


def _explain_step(card: StepCard, device: DeviceKind, limits: _Settings) -> str:
    on_device = EMPTY
    on_others = []
    for kind in DEVICE_KINDS:
        if kind in card.devices:
            words = say(card.devices[kind])
            if kind == device:
                on_device = words
            else:
                on_others.append((Words(kind), words))
    return _render(
        "step",
        card=card,
        kind=Words(device),
        here=on_device,
        others=on_others,
        limits=[_limit(limit, limits) for limit in card.limits],
    )


def _explain_metric(metric: Metric, limits: _Settings) -> str:
    card = CARDS[metric.step]
    unit = _UNITS.get(metric.unit, metric.unit)
    if metric.unit == "1":
        unit = _SORTS[metric.number_sort]
    part = Words(metric.part)
    how = compared(metric.name)
    gate = _GATE.get(how, _NEVER_SHOWN)
    if metric.display.leading:
        gate = _GATE_OF_LEADING.get(how, gate)
    judging = []
    for limit in card.limits:
        rule = judged_by(limit.name)
        is_judged = rule is not None and rule.metric == metric.name
        if is_judged or limit.name.startswith(f"{metric.name}."):
            judging.append(limit)
    allowed = None
    if metric.gate.tolerance is not None and how not in _WITHOUT_TOLERANCE:
        allowed = numbers.setting(metric.gate.tolerance)
    return _render(
        "metric",
        name=metric.name,
        # Both contain the operator's name in an operator's metric; the name is outside
        # text.
        title=Words(clean(say(metric.title, part=part))),
        explanation=Words(clean(say(metric.explanation, part=part), limit=_LONG)),
        unit=say(unit),
        better=say(_BETTER[metric.better]),
        kind=say(_KINDS[metric.kind]),
        gate=say(gate),
        source=say(metric.source),
        card=card,
        tolerance=allowed,
        limits=[_limit(limit, limits) for limit in judging],
    )


def _explain_rule(name: str, limits: _Settings) -> str:
    rule = RULES[name]
    card = CARDS[rule.step]
    remedy = say(card.remedy)
    if isinstance(rule.advice, Advice):
        remedy = _pattern(rule.advice.message)
    judged = [limit for limit in card.limits if limit.name.rpartition(".")[0] == name]
    return _render(
        "rule",
        name=Words(name),
        message=_pattern(rule.message),
        remedy=remedy,
        card=card,
        limits=[_limit(limit, limits) for limit in judged],
    )


def _explain_limit(name: str, limits: _Settings) -> str:
    limit = LIMITS[name]
    rule, _, severity = name.rpartition(".")
    return _render(
        "limit",
        limit=_limit(limit, limits),
        severity=Words(severity) if severity in _SEVERITIES else None,
        message=_pattern(RULES[rule].message) if rule in RULES else None,
        card=CARDS[limit.step],
    )


def _limit(limit: Limit, settings: _Settings) -> LimitEntry:
    """A limit of the checklist, and the project's setting."""
    setting = settings.get(limit.name)
    default = Words(f"{limit.default:g}")
    value = default
    if setting is not None:
        value = Words(f"{setting:g}")
    return LimitEntry(
        key=limit.name,
        value=value,
        default=default,
        overridden=setting is not None,
        source=say(limit.source),
    )


def _render(entry_kind: str, **values: object) -> str:
    return (
        str(render(f"explain/{entry_kind}.txt.j2", "plain", **values)).strip("\n")
        + "\n"
    )


def meanings(word: str) -> list[Named]:
    """The entries of this name; several if it is only the last part of several names."""
    whole, parts = _index()
    key = _key(word)
    return list(whole.get(key) or parts.get(key) or ())


def suggestions(word: str) -> list[str]:
    """At most five words of the catalogue that are most similar to an unknown word."""
    key = _key(word)
    texts = {}
    for entry_name in entries():
        for text in _texts(entry_name):
            texts[_key(text)] = text
    within = [text for text in texts if len(key) > 1 and key in text]
    close = difflib.get_close_matches(key, texts, n=_MOST_SUGGESTIONS, cutoff=_ALIKE)
    distinct = list(dict.fromkeys((*sorted(within, key=len), *close)))
    return [texts[text] for text in distinct[:_MOST_SUGGESTIONS]]


def entries() -> Iterator[Named]:
    """The words, steps, metrics, rules and limits of the catalogue."""
    for name, term in GLOSSARY.items():
        yield Named("term", name, name, (name,), tuple(term.also))
    for card in CARDS.values():
        yield Named("step", card.slug, card.title, (card.title,))
    for name, entry in METRICS.items():
        timed: list[str] = []
        if entry.origin.timed:
            timed += _timed_titles(entry.title)
        titles = (entry.title, *entry.display.clock_titles.values())
        yield Named("metric", name, entry.title, titles, tuple(timed))
    for name, rule in RULES.items():
        if name not in METRICS:
            yield Named("rule", name, rule.message)
    for name in LIMITS:
        if name not in METRICS and name not in RULES:
            yield Named("limit", name)


def _texts(entry: Named) -> Iterator[str]:
    """The name, titles and words that find an entry."""
    yield entry.name
    yield from entry.words
    for language in LANGUAGES:
        for title in entry.titles:
            yield translate(title, language)


def _timed_titles(title: str) -> Iterator[str]:
    """The title for each clock, in every language."""
    for timed in CLOCK_TITLES.values():
        for language in LANGUAGES:
            yield filled(
                translate(timed, language), {"title": translate(title, language)}
            )


@cache
def _index() -> tuple[Mapping[str, list[Named]], Mapping[str, list[Named]]]:
    """Entries by their names and titles, and by the last part of their names."""
    whole: dict[str, list[Named]] = {}
    parts: dict[str, list[Named]] = {}
    for entry_name in entries():
        for key in dict.fromkeys(map(_key, _texts(entry_name))):
            whole.setdefault(key, []).append(entry_name)
        match entry_name:
            case Named(kind="metric" | "rule", name=name):
                last = _key(name.rpartition(".")[2])
                parts.setdefault(last, []).append(entry_name)
    return whole, parts


def _key(text: str) -> str:
    """A word in its form for comparison: without case, quotation marks, underscores and
    dashes.
    """
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()
