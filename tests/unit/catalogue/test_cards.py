"""Every card of the checklist says everything, in both languages."""

from __future__ import annotations

from collections.abc import Iterator
from string import Formatter

import pytest

from perfgate.catalogue.card import DEVICE_KINDS, StepCard, Text
from perfgate.catalogue.lookup import CARDS, RULES
from perfgate.catalogue.sources import CHECKLIST, CI_CHECK


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


SOURCES = {limit.name: limit.source for card in CARDS.values() for limit in card.limits}


def test_limits__source__is_the_checklist_for_the_eight_numbers_that_it_names() -> None:
    """The list of the twenty steps gives numbers in steps 2, 3 and 4 alone."""
    named = {name for name, source in SOURCES.items() if source in (CHECKLIST, CI_CHECK)}
    assert named == {
        "utilization.busy.warning", "utilization.busy.severe",
        "transfer.share.warning", "transfer.share.severe",
        "ops.share.conv_matmul.info", "ops.share.copy.severe",
        "ops.share.reshape.warning", "ops.share.softmax.warning",
        "ops.kernel_time.warning",
    }  # fmt: skip
    assert [name for name, source in SOURCES.items() if source == CI_CHECK] == ["ops.kernel_time.warning"]


def test_limits__nobodys_number__says_that_perfgate_chose_it_and_why() -> None:
    whys = {name: source.removeprefix("perfgate's own mark").strip(": ,") for name, source in SOURCES.items()}
    short = [name for name, why in whys.items() if len(why) < 10 and SOURCES[name] not in (CHECKLIST, CI_CHECK)]
    assert short == []
