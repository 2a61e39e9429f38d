"""Messages, findings and suggestions of documents as sentences in the reader's language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from string import Formatter

from perfgate.catalogue.lookup import CHANGE_ADVICE, MESSAGES, METRICS, RULE_ADVICE, RULES
from perfgate.document.decision import Suggestion
from perfgate.document.message import QUOTE, Message, MessageValue
from perfgate.document.run import Finding
from perfgate.judging.report import format as formats
from perfgate.judging.report.escape import MAX_PROSE, clean
from perfgate.judging.report.words import Words, phrase, say, translated
from perfgate.locale import current_language, translate


class Pieces(str):
    """A sentence in pieces: what is ``Words`` is ours, everything else is from outside and still to be escaped."""

    __slots__ = ("pieces",)
    pieces: tuple[str, ...]

    def __new__(cls, pieces: tuple[str, ...]) -> Pieces:
        sentence = super().__new__(cls, "".join(pieces))
        sentence.pieces = pieces
        return sentence


def word(message: Message | str) -> str:
    """The sentence of a message; a code or a value that this perfgate does not have is shown as it stands.

    The English sentence is one text, which is escaped word by word; a Chinese one comes in pieces.
    """
    if isinstance(message, str):
        return _word_text(message)
    if message.code == QUOTE:
        return str(message.values.get("text", ""))
    sentence = MESSAGES.get(message.code)
    if sentence is None:
        return _uncatalogued(message)
    is_one = sentence.one is not None and message.values.get("count") == 1
    english = sentence.one if is_one and sentence.one is not None else sentence.other
    try:
        return _fill(translate(english), message.values)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError):
        return _uncatalogued(message)


def word_all(messages: Sequence[Message | str]) -> str:
    return _word_list(messages, say("; "))


def word_finding(finding: Finding) -> str:
    """What a step noticed, in the words of its rule; a rule or evidence that is not known is shown as it stands."""
    rule = RULES.get(finding.rule)
    try:
        if rule is not None:
            return _fill(translate(rule.message), finding.evidence)
    except (KeyError, ValueError, TypeError, AttributeError):
        pass
    return finding.message or _uncatalogued(Message(finding.rule, finding.evidence))


def word_suggestion(suggestion: Suggestion) -> str:
    """What to try, in the words of its advice; what another tool says, and unknown evidence, stays as it is."""
    advice = RULE_ADVICE.get(suggestion.rule) or CHANGE_ADVICE.get(suggestion.rule)
    if current_language() == "en" or advice is None:
        return suggestion.message
    words = advice.instead if advice.instead and suggestion.message == advice.instead else advice.message
    try:
        return _fill(translated(words), suggestion.evidence)
    except (KeyError, ValueError, AttributeError):
        return suggestion.message


def _fill(sentence: str, values: Mapping[str, MessageValue]) -> str:
    """Put values into a sentence of ours, piece by piece."""
    pieces: list[str] = []
    for literal, name, spec, _ in Formatter().parse(sentence):
        pieces += [Words(literal)] if literal else []
        if name is not None:
            pieces += _pieces(_word_value(values[name], spec or ""))
    return _joined(pieces)


def _joined(pieces: list[str]) -> str:
    return "".join(pieces) if current_language() == "en" else Pieces(tuple(pieces))


def _pieces(text: str) -> tuple[str, ...]:
    return text.pieces if isinstance(text, Pieces) else (text,)


def _word_value(value: MessageValue, spec: str) -> str:
    if isinstance(value, Message):
        return word(value)
    if isinstance(value, (list, tuple)):
        return _word_list(value, say("; ") if any(isinstance(item, Message) for item in value) else say(", "))
    if spec in _FORMATS:
        return _FORMATS[spec](value)
    if isinstance(value, str):
        return format(_word_text(value), spec) if spec else _word_text(value)
    return Words(format(value, spec))


def _word_list(values: Sequence[MessageValue], separator: str) -> str:
    pieces: list[str] = []
    for position, value in enumerate(values):
        pieces += [separator] if position else []
        pieces += _pieces(_word_value(value, ""))
    return _joined(pieces)


def _uncatalogued(message: Message) -> str:
    """A message of a newer perfgate or of a hostile document: nothing in it is ours."""
    values = ", ".join(f"{name}={_word_value(value, '')}" for name, value in message.values.items())
    return f"{message.code} ({values})" if values else message.code


def _metric(name: MessageValue) -> str:
    return translated(METRICS[name].title) if isinstance(name, str) and name in METRICS else str(name)


def _number(wording: Callable[[float], str]) -> Callable[[MessageValue], str]:
    def word_number(value: MessageValue) -> str:
        if isinstance(value, (int, float)):
            return Words(wording(value))
        raise TypeError(f"{value!r} is no number")

    return word_number


_FORMATS: dict[str, Callable[[MessageValue], str]] = {
    "level": _number(lambda value: f"{100 * value:.1f} %"),
    "metric": _metric,
    "percent": _number(formats.percent),
    "setting": _number(formats.setting),
    "share": _number(lambda value: f"{float(f'{100 * value:.2g}'):g} %"),
    "size": _number(lambda value: formats.quantity(value, "B")),
    "time": _number(lambda value: formats.quantity(value, "s")),
    "whole": _number(formats.whole),
}


# Sentences in documents that still hold English text instead of messages.

_Pattern = tuple[tuple[str, str | None], ...]
# What stands between two reasons in one document field; a reason may hold it too.
_AND = phrase("; ")


def _word_text(text: str) -> str:
    if current_language() == "en" or isinstance(text, Pieces):
        return text
    whole = clean(text, limit=MAX_PROSE)
    return _word_one_text(whole) or _word_texts_in_a_row(whole) or text


def _word_one_text(text: str) -> Pieces | None:
    for pattern, words in _patterns():
        values = _match(pattern, text)
        if values is not None:
            sentence = _fill(words, {name: _word_text(value) for name, value in values.items()})
            return sentence if isinstance(sentence, Pieces) else None
    return None


def _word_texts_in_a_row(whole: str) -> Pieces | None:
    """Several reasons, joined as documents join them, each in the reader's language; None where the first is unknown."""
    at = whole.find(_AND)
    while at >= 0:
        first = _word_one_text(whole[:at])
        if first is not None:
            return Pieces((*first.pieces, Words("；"), *_pieces(_word_text(whole[at + len(_AND) :]))))
        at = whole.find(_AND, at + 1)
    return None


@cache
def _patterns() -> list[tuple[_Pattern, str]]:
    """The English sentences, those with the most words of their own first: they say most."""
    sentences = {text for entry in MESSAGES.values() for text in (entry.one, entry.other) if text}
    sentences |= {rule.message for rule in RULES.values()}
    # What is hardly more than values would match every text.
    sentences = {
        text for text in sentences if sum(map(str.isalpha, "".join(lit for lit, *_ in Formatter().parse(text)))) > 3
    }
    patterns = [(_parsed(english), _without_formats(translate(english, "zh"))) for english in sorted(sentences)]
    return sorted(patterns, key=lambda pattern: -sum(len(literal) for literal, _ in pattern[0]))


def _without_formats(sentence: str) -> str:
    pieces = Formatter().parse(sentence)
    return "".join(literal + (f"{{{name}}}" if name is not None else "") for literal, name, _, _ in pieces)


def _parsed(english: str) -> _Pattern:
    return tuple((literal, name) for literal, name, _, _ in Formatter().parse(english))


def _match(pattern: _Pattern, text: str) -> dict[str, str] | None:
    """The values that a text has in the places of a sentence; each ends where the next words first begin."""
    values: dict[str, str] = {}
    at, waiting = 0, None
    for literal, name in pattern:
        start = text.find(literal, at) if waiting else (at if text.startswith(literal, at) else -1)
        if start < 0 or (waiting and not literal):
            return None
        if waiting:
            values[waiting] = text[at:start]
        at, waiting = start + len(literal), name
    if waiting:
        values[waiting] = text[at:]
        at = len(text)
    return values if at == len(text) and all(values.values()) else None
