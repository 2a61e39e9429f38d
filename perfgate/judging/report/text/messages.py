"""Messages, findings and suggestions as sentences in the reader's language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter

from perfgate.catalogue.lookup import MESSAGES, METRICS, RULES
from perfgate.document.decision import Suggestion
from perfgate.document.message import QUOTE, Message, MessageValue
from perfgate.document.run import Finding, Severity
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.kernels import kernel_name, with_short_kernel
from perfgate.judging.report.text.numbers import percent
from perfgate.judging.report.text.words import (
    EMPTY,
    Prose,
    Words,
    joined,
    phrase,
    phrases,
    pieces_of,
    say,
)
from perfgate.locale import current_language, translate

# Names of timelines in recordings (trace/summary.py, shape_names).
_RANK = re.compile(r"rank \d+")
_MOST_RANKS = 8
_SEVERITIES: tuple[Severity, ...] = ("severe", "warning", "info")


def word(message: Message | str) -> str:
    """The sentence of a message; an unknown code or value is shown verbatim.

    The English sentence is one text, which is escaped word by word; a Chinese one comes
    in pieces.
    """
    if isinstance(message, str):  # text of another program, never translated
        return message
    if message.code == QUOTE:
        return str(message.values.get("text", ""))
    sentence = MESSAGES.get(message.code)
    if sentence is None:
        return _uncatalogued(message)
    english = sentence.for_count(message.values.get("count"))
    try:
        return _fill(translate(english), message.values)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError):
        return _uncatalogued(message)


def told(message: Message | str) -> str:
    """A message as a part of a sentence of ours, which templates escape word by word."""
    first, *rest = pieces_of(word(message))
    pieces = [_prose(first, begins=True)]
    for piece in rest:
        pieces.append(_prose(piece, begins=False))
    return joined(*pieces)


def _prose(piece: str, *, begins: bool) -> str:
    if isinstance(piece, Words):
        return piece
    return Prose(piece, begins=begins)


def word_all(messages: Sequence[Message]) -> str:
    return _word_list(messages, say("; "))


def word_finding(finding: Finding) -> str:
    """A finding in the words of its rule; an unknown rule or unknown evidence is shown
    verbatim.
    """
    rule = RULES.get(finding.rule)
    try:
        if rule is not None:
            return _fill(translate(rule.message), finding.evidence)
    except (KeyError, ValueError, TypeError, AttributeError):
        pass
    return word(finding.message or Message(finding.rule, finding.evidence))


def word_findings(findings: Iterable[Finding]) -> list[tuple[Finding, str]]:
    """The findings in words, one each; equal findings of several ranks become the worst
    rank's, with the others' names.
    """
    alike: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        alike.setdefault(_of_any_rank(finding) or number, []).append(finding)
    worded = []
    for group in alike.values():
        worst = min(group, key=_badness)
        worded.append((worst, _of_ranks(worst, group)))
    return worded


def _of_any_rank(finding: Finding) -> tuple[object, ...] | None:
    """The key that findings of several ranks share, None for a finding without a rank."""
    if not _RANK.match(str(finding.evidence.get("shape", ""))):
        return None
    words = []
    for name, value in sorted(finding.evidence.items()):
        if isinstance(value, str) and name != "shape":
            words.append((name, value))
    return (finding.rule, *words)


def _badness(finding: Finding) -> tuple[int, float]:
    """Sort key, the worst finding first: by severity, then by the distance of the value
    from its limit.
    """
    value = finding.evidence.get(finding.rule)
    bound = finding.evidence.get("limit")
    distance = 0.0
    if isinstance(value, (int, float)) and isinstance(bound, (int, float)):
        distance = abs(value - bound)
    return _SEVERITIES.index(finding.severity), -distance


def _of_ranks(worst: Finding, group: Sequence[Finding]) -> str:
    words = word_finding(worst)
    rank = str(worst.evidence.get("shape", ""))
    further = [
        str(finding.evidence["shape"]) for finding in group if finding is not worst
    ]
    if not _RANK.match(rank) or (rank in words and not further):
        return words
    pieces = [*pieces_of(words), Words(" ("), rank]
    if further:
        pieces.append(say("; also "))
        pieces += pieces_of(_word_list(further[:_MOST_RANKS], say(", ")))
    if len(further) > _MOST_RANKS:
        pieces.append(
            say(
                " and {more}",
                more=numbers.counted(len(further) - _MOST_RANKS, "more", "more"),
            )
        )
    return _joined([*pieces, Words(")")])


def _fill(sentence: str, values: Mapping[str, MessageValue]) -> str:
    """Put values into a sentence of ours, piece by piece."""
    pieces: list[str] = []
    for literal, name, spec, _ in Formatter().parse(sentence):
        if literal:
            pieces.append(Words(literal))
        if name is not None:
            pieces += pieces_of(_word_value(values[name], spec or ""))
    return _joined(pieces)


def _joined(pieces: list[str]) -> str:
    if current_language() == "en":
        return "".join(pieces)
    return joined(*pieces)


def _word_value(value: MessageValue, spec: str) -> str:
    if isinstance(value, Message):
        return word(value)
    if isinstance(value, (list, tuple)):
        separator = say(", ")
        if any(isinstance(item, Message) for item in value):
            separator = say("; ")
        return _word_list(value, separator, spec)
    if spec in _FORMATS:
        return _FORMATS[spec](value)
    if isinstance(value, str):
        return format(with_short_kernel(value), spec)
    return Words(format(value, spec))


def _word_list(values: Sequence[MessageValue], separator: str, spec: str = "") -> str:
    pieces = []
    for position, value in enumerate(values):
        if position:
            pieces.append(separator)
        pieces += pieces_of(_word_value(value, spec))
    return _joined(pieces)


def _uncatalogued(message: Message) -> str:
    """A message of a newer perfgate or of a hostile document: all of it is outside
    text.
    """
    values = ", ".join(
        f"{name}={_word_value(value, '')}" for name, value in message.values.items()
    )
    if values:
        return f"{message.code} ({values})"
    return message.code


def _metric(name: MessageValue) -> str:
    if isinstance(name, str) and name in METRICS:
        return say(METRICS[name].title)
    return str(name)


def _number(wording: Callable[[float], str]) -> Callable[[MessageValue], str]:
    def word_number(value: MessageValue) -> str:
        if isinstance(value, (int, float)):
            return Words(wording(value))
        raise TypeError(f"{value!r} is no number")

    return word_number


_FORMATS: dict[str, Callable[[MessageValue], str]] = {
    "clock": _number(lambda value: f"{value / 1e9:.2f} GHz"),
    "duration": _number(numbers.duration),
    "level": _number(lambda value: f"{100 * value:.1f} %"),
    "metric": _metric,
    "number": _number(lambda value: numbers.amount(value, "1")),
    "percent": _number(numbers.percent),
    "setting": _number(numbers.setting),
    "share": _number(lambda value: f"{float(f'{100 * value:.2g}'):g} %"),
    "size": _number(lambda value: numbers.amount(value, "B")),
    "time": _number(lambda value: numbers.amount(value, "s")),
    "whole": _number(numbers.whole),
}


# A smaller gain reads as none.
_NOTICEABLE = 0.005
_LONGEST_OPERATOR = 48
_OF = phrases(
    {
        "call": "a call",
        "item": "an item",
        "answer": "an answer under traffic",
        "input": "an input on its way to the output",
    }
)


def unnamed_operator(suggestion: Suggestion) -> str:
    """The operator of a suggestion, empty if its sentence names it; a kernel of a GPU
    by its short name.
    """
    op = str(suggestion.evidence.get("op") or "")
    if with_short_kernel(op) in word(suggestion.message):
        return ""
    return kernel_name(op, limit=_LONGEST_OPERATOR)


def gain_words(suggestion: Suggestion) -> Words:
    """The measured speed-up, or its upper bound; empty if it is not noticeable."""
    gain = suggestion.gain
    if gain is None or gain.speedup <= 1 + _NOTICEABLE:
        return EMPTY
    of = say(_OF[gain.of])
    speedup = times(gain.speedup)
    if not gain.is_measured:
        sentence = phrase(
            "; estimate: {of} at most {speedup} times as fast without these {share}"
        )
        return say(sentence, of=of, speedup=speedup, share=percent(gain.share))
    if gain.interval is None:
        return say("; measured: {of} {speedup} times as fast", of=of, speedup=speedup)
    low, high = map(times, gain.interval)
    sentence = phrase("; measured: {of} {speedup} times as fast ({low} to {high})")
    return say(sentence, of=of, speedup=speedup, low=low, high=high)


def times(speedup: float) -> Words:
    """A speed-up with enough digits to differ from none: ``1.08``, ``2.3``, ``14``."""
    if speedup < 2:
        return Words(f"{speedup:.2f}")
    if speedup < 10:
        return Words(f"{speedup:.1f}")
    return Words(f"{speedup:.0f}")
