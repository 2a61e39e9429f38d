"""Catalogue entries by word: names and their last parts, titles in every language, and the glossary."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, NamedTuple

from perfgate.catalogue.lookup import CARDS, GLOSSARY, LIMITS, METRICS, RULES
from perfgate.document.comparison import Clock
from perfgate.judging.report.text.words import phrase
from perfgate.locale import LANGUAGES, filled, translate

MOST_SUGGESTIONS = 5
# Similarity ratio of difflib that a typing error leaves.
_ALIKE = 0.6
# Titles of a metric timed by another clock than the wall, if it has no title of its own for that clock.
CLOCK_TITLES: Mapping[Clock, str] = {
    "cpu": phrase("{title}, in CPU time"),
    "device": phrase("{title}, in device time"),
    "awake": phrase("{title}, without CPU waits"),
}
EntryKind = Literal["term", "step", "metric", "rule", "limit"]


class Named(NamedTuple):
    """An entry of the catalogue, and the name by which `perfgate explain` takes it."""

    kind: EntryKind
    name: str


def meanings(word: str) -> list[Named]:
    """The entries of this name; several if it is only the last part of several names."""
    whole, parts = _index()
    key = _key(word)
    return list(whole.get(key) or parts.get(key) or ())


def suggestions(word: str) -> list[str]:
    """At most five known words that are most similar to an unknown one."""
    key = _key(word)
    known: dict[str, str] = {}
    for named in entries():
        for text in _texts(named):
            known[_key(text)] = text
    within = [text for text in known if len(key) > 1 and key in text]
    within.sort(key=len)
    close = difflib.get_close_matches(key, known, n=MOST_SUGGESTIONS, cutoff=_ALIKE)
    return [known[text] for text in dict.fromkeys((*within, *close))][:MOST_SUGGESTIONS]


def entries() -> Iterator[Named]:
    """All of them: words, steps, metrics, rules and limits."""
    yield from (Named("term", name) for name in GLOSSARY)
    yield from (Named("step", card.slug) for card in CARDS.values())
    yield from (Named("metric", name) for name in METRICS)
    yield from (Named("rule", name) for name in RULES if name not in METRICS)
    yield from (Named("limit", name) for name in LIMITS if name not in METRICS and name not in RULES)


def _texts(named: Named) -> Iterator[str]:
    """The name and titles of an entry, in every language."""
    yield named.name
    titles: tuple[str, ...] = ()
    if named.kind == "term":
        titles = (named.name,)
        yield from GLOSSARY[named.name].also
    elif named.kind == "step":
        titles = (next(card.title for card in CARDS.values() if card.slug == named.name),)
    elif named.kind == "metric":
        entry = METRICS[named.name]
        titles = (entry.title, *entry.clock_titles.values())
        if entry.timed:
            yield from _timed_titles(entry.title)
    for language in LANGUAGES:
        yield from (translate(title, language) for title in titles)


def _timed_titles(title: str) -> Iterator[str]:
    """A title for each clock that has none of its own, in every language."""
    for timed in CLOCK_TITLES.values():
        for language in LANGUAGES:
            yield filled(translate(timed, language), {"title": translate(title, language)})


@cache
def _index() -> tuple[Mapping[str, list[Named]], Mapping[str, list[Named]]]:
    """Entries by their names and titles, and by the last part of their names."""
    whole: dict[str, list[Named]] = {}
    parts: dict[str, list[Named]] = {}
    for named in entries():
        for key in dict.fromkeys(_key(text) for text in _texts(named)):
            whole.setdefault(key, []).append(named)
        if named.kind in ("metric", "rule"):
            parts.setdefault(_key(named.name.rpartition(".")[2]), []).append(named)
    return whole, parts


def _key(text: str) -> str:
    """A word in its form for comparison: without case, quotation marks, underscores and dashes."""
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()
