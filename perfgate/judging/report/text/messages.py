"""Messages and findings of documents as sentences in the reader's language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Formatter

from perfgate.catalogue.lookup import MESSAGES, METRICS, RULES
from perfgate.document.message import QUOTE, Message, MessageValue
from perfgate.document.run import Finding
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, say, translated
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
    if isinstance(message, str):  # somebody else's text, which is never translated
        return message
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


def word_all(messages: Sequence[Message]) -> str:
    return _word_list(messages, say("; "))


def word_finding(finding: Finding) -> str:
    """What a step noticed, in the words of its rule; a rule or evidence that is not known is shown as it stands."""
    rule = RULES.get(finding.rule)
    try:
        if rule is not None:
            return _fill(translate(rule.message), finding.evidence)
    except (KeyError, ValueError, TypeError, AttributeError):
        pass
    return word(finding.message or Message(finding.rule, finding.evidence))


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
        return format(value, spec)
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
    "clock": _number(lambda value: f"{value / 1e9:.2f} GHz"),
    "level": _number(lambda value: f"{100 * value:.1f} %"),
    "metric": _metric,
    "percent": _number(numbers.percent),
    "setting": _number(numbers.setting),
    "share": _number(lambda value: f"{float(f'{100 * value:.2g}'):g} %"),
    "size": _number(lambda value: formats.quantity(value, "B")),
    "time": _number(lambda value: formats.quantity(value, "s")),
    "whole": _number(numbers.whole),
}
