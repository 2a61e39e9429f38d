"""Every card of the checklist says everything, in both languages."""

from __future__ import annotations

from collections.abc import Iterator
from string import Formatter

import pytest

from perfgate.catalogue.card import DEVICE_KINDS, StepCard, Text
from perfgate.catalogue.lookup import CARDS, RULES


def texts(card: StepCard) -> Iterator[tuple[str, str]]:
    """Yield where a text of a card stands, and the text."""
    yield from (("title", card.title), ("question", card.question), ("how", card.how))
    yield from (("remedy", card.remedy), ("cost", card.cost))
    for kind in DEVICE_KINDS:
        yield f"devices {kind}", card.devices.get(kind, "")
    for metric in card.metrics:
        yield from ((f"{metric.name} title", metric.title), (f"{metric.name} explanation", metric.explanation))
    yield from ((f"{limit.name} source", limit.source) for limit in card.limits)
    yield from ((f"{rule.name} message", rule.message) for rule in card.rules)


def has_chinese(text: str) -> bool:
    """Tell whether there are Chinese words; a text without letters, such as a number, needs none."""
    words = text.zh if isinstance(text, Text) else ""
    return any("\u4e00" <= character <= "\u9fff" for character in words)


def names(message: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(message) if name is not None}


@pytest.mark.parametrize("number", CARDS)
def test_card__every_text__is_there_in_both_languages(number: int) -> None:
    missing = [where for where, text in texts(CARDS[number]) if not text or not has_chinese(text)]
    assert missing == []


@pytest.mark.parametrize("rule", sorted(RULES))
def test_rule__chinese_message__names_the_evidence_that_the_english_names(rule: str) -> None:
    message = RULES[rule].message
    assert names(message.zh) == names(message)
