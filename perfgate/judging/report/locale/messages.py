"""Sentences that stand in documents, English there, in the reader's language: our own words with values between them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from string import Formatter

from perfgate.catalogue.lookup import CHANGE_ADVICE, RULE_ADVICE, RULES
from perfgate.document.decision import Suggestion
from perfgate.document.run import Evidence, Finding
from perfgate.judging.report.escape import MAX_PROSE, clean
from perfgate.judging.report.locale import documents
from perfgate.judging.report.locale.documents import Text
from perfgate.judging.report.locale.language import spoken, translated, worded
from perfgate.judging.report.words import Words
from perfgate.plugins import load_members

_Pattern = tuple[tuple[str, str | None], ...]
# What stands between two reasons in one document field; a reason may hold it too.
_AND = "; "


class Told(str):
    """A sentence in pieces: what is ``Words`` is ours, everything else is from outside and still to be escaped."""

    __slots__ = ("pieces",)
    pieces: tuple[str, ...]

    def __new__(cls, pieces: tuple[str, ...]) -> Told:
        """Make the sentence; as text it reads as a whole."""
        made = super().__new__(cls, "".join(pieces))
        made.pieces = pieces
        return made


def told_finding(finding: Finding) -> str:
    """Return what a step noticed, in the words of its rule; a rule or evidence that is not known leaves the message."""
    rule = RULES.get(finding.rule)
    if spoken() == "en" or rule is None:
        return finding.message
    try:
        return _filled(worded(rule.message), _told_values(finding.evidence))
    except (KeyError, ValueError, AttributeError):
        return finding.message


def told_suggestion(suggestion: Suggestion) -> str:
    """Return what to try, in the words of its advice; what another tool says, and unknown evidence, stays as it is."""
    advice = RULE_ADVICE.get(suggestion.rule) or CHANGE_ADVICE.get(suggestion.rule)
    if spoken() == "en" or advice is None:
        return suggestion.message
    words = advice.instead if advice.instead and suggestion.message == advice.instead else advice.message
    try:
        return _filled(worded(words), _told_values(suggestion.evidence))
    except (KeyError, ValueError, AttributeError):
        return suggestion.message


def told(message: str) -> str:
    """Return a sentence of a document: where its English words are known, in the reader's language, else as it is."""
    if spoken() == "en" or isinstance(message, Told):
        return message
    whole = clean(message, limit=MAX_PROSE)
    return _told_as_one(whole) or _told_in_a_row(whole) or message


def document_sentences() -> tuple[Text, ...]:
    """Return every sentence of ours that may stand in a document, but for those of rules."""
    return tuple(sentence for module in load_members(documents) for sentence in module.MESSAGES)


def _told_values(evidence: Mapping[str, Evidence]) -> dict[str, Evidence]:
    return {name: told(value) if isinstance(value, str) else value for name, value in evidence.items()}


def _told_as_one(text: str) -> Told | None:
    for pattern, words in _patterns():
        found = _match(pattern, text)
        if found is not None:
            return _filled(words, {name: told(value) for name, value in found.items()})
    return None


def _told_in_a_row(whole: str) -> Told | None:
    """Return several reasons, joined as documents join them, each in the reader's language; None where the first is unknown."""
    at = whole.find(_AND)
    while at >= 0:
        first = _told_as_one(whole[:at])
        if first is not None:
            rest = told(whole[at + len(_AND) :])
            return Told((*first.pieces, Words("；"), *(rest.pieces if isinstance(rest, Told) else (rest,))))
        at = whole.find(_AND, at + 1)
    return None


def _filled(words: str, values: Mapping[str, Evidence]) -> Told:
    """Put values into a sentence of ours, piece by piece."""
    pieces: list[str] = []
    for literal, name, spec, _ in Formatter().parse(words):
        pieces += [Words(literal)] if literal else []
        if name is not None:
            value = values[name]
            pieces += value.pieces if isinstance(value, Told) else [format(value, spec or "")]
    return Told(tuple(pieces))


@cache
def _patterns() -> list[tuple[_Pattern, str]]:
    """Return the English sentences, those with the most words of their own first: they say most."""
    known = {str(sentence): sentence.zh for sentence in document_sentences()}
    known |= {rule.message: translated(rule.message, "zh") for rule in RULES.values()}
    patterns = [(_parsed(english), chinese) for english, chinese in known.items()]
    return sorted(patterns, key=lambda found: -sum(len(literal) for literal, _ in found[0]))


def _parsed(english: str) -> _Pattern:
    return tuple((literal, name) for literal, name, _, _ in Formatter().parse(english))


def _match(pattern: _Pattern, text: str) -> dict[str, str] | None:
    """Return the values that a text has in the places of a sentence; each ends where the next words first begin."""
    values: dict[str, str] = {}
    at, waiting = 0, None
    for literal, name in pattern:
        found = text.find(literal, at) if waiting else (at if text.startswith(literal, at) else -1)
        if found < 0 or (waiting and not literal):
            return None
        if waiting:
            values[waiting] = text[at:found]
        at, waiting = found + len(literal), name
    if waiting:
        values[waiting] = text[at:]
        at = len(text)
    return values if at == len(text) and all(values.values()) else None
