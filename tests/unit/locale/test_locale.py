"""The Chinese catalogue holds every sentence of ours and nothing else, with the same values in it."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from perfgate.locale import filled, speaking, translate
from tests.source import PLUGINS
from tests.translations import as_po, english_sentences, read_chinese, updated

CHINESE = {message.id: message.string for message in read_chinese() if message.id}
PERCENT_PLACE = re.compile(r"%\(\w+\)s")


def places(sentence: str) -> list[str]:
    """The values in a sentence, each with how it is written."""
    if PERCENT_PLACE.search(sentence):
        return sorted(PERCENT_PLACE.findall(sentence))
    return sorted(f"{name}!{how}:{spec}" for _, name, spec, how in Formatter().parse(sentence) if name is not None)


@pytest.mark.skipif(not PLUGINS.is_dir(), reason="the sdist lacks the plug-ins, whose sentences are in the catalogue")
def test_catalogue__after_make_locale__is_the_one_committed() -> None:
    current = updated(read_chinese(), english_sentences())
    assert as_po(current) == as_po(updated(read_chinese(), set(CHINESE))), "run `make locale`"


def test_catalogue__every_sentence__has_its_chinese() -> None:
    assert [english for english, chinese in CHINESE.items() if not chinese] == []


def test_catalogue__chinese__has_the_values_of_the_sentence() -> None:
    assert [english for english, chinese in CHINESE.items() if places(chinese) != places(english)] == []


def test_translate__every_sentence__as_babel_reads_the_catalogue() -> None:
    assert {english: translate(english, "zh") for english in CHINESE} == CHINESE


def test_translate__other_languages_and_unknown_text__stay_as_they_are() -> None:
    assert translate("no change", "en") == "no change"
    assert (translate("", "zh"), translate("nobody says this", "zh")) == ("", "nobody says this")


def test_translate__inside_speaking__in_that_language() -> None:
    with speaking("zh"):
        assert translate("no change") == "无变化"
    assert translate("no change") == "no change"


# Words of a translation and the terms of the documentation of CANN and MindStudio.
TERMS = {
    "轨迹": "Trace",
    "录制": "采集",
    "代价": "影响、开销",
    "取舍": "舍入",
    "背后的算子": "相关算子",
    "快速路径": "无干扰",
    "工作负载": "workload",
    "裁决": "判定",
}
IN_TEXT = re.compile(r"`[^`]*`|\{[^{}]*\}|%\(\w+\)s")


def test_catalogue__chinese__uses_the_terms_of_cann() -> None:
    assert [(word, chinese) for chinese in CHINESE.values() for word in TERMS if word in chinese] == []


def test_catalogue__chinese__latin_words_stand_apart() -> None:
    touching = re.compile("[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]")
    assert [chinese for chinese in CHINESE.values() if any(map(touching.search, IN_TEXT.split(chinese)))] == []


def test_say__value_of_latin_letters__stands_apart_and_a_chinese_one_does_not() -> None:
    assert filled("{metric}的变化，共{count}", {"metric": "P50", "count": "3 项"}) == "P50 的变化，共 3 项"
    assert filled("{metric}的变化", {"metric": "时延"}) == "时延的变化"
    assert filled("{metric} changed", {"metric": "P50"}) == "P50 changed"
