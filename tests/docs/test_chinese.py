"""The Chinese pages have the structure, the commands and the links of the English ones."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import DOCS, pages

TRANSLATED = [
    page for page in pages() if page.endswith(".zh.md") and page != "README.zh.md"
]  # tests/unit/test_readme.py
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
HAN = re.compile("[\u4e00-\u9fff]")


def both(page: str) -> tuple[str, str]:
    return (
        (DOCS / page.replace(".zh.md", ".md")).read_text(encoding="utf-8"),
        (DOCS / page).read_text(encoding="utf-8"),
    )


def links(text: str) -> set[str]:
    """The targets of links, whatever their language; an anchor is that of a heading, so of one language."""
    targets = {target.replace(".zh.md", ".md") for target in LINK.findall(text)}
    return {target.partition("#")[0] or target for target in targets}


def shape(text: str) -> list[str]:
    """The levels of headings, the rows of tables and the items of lists, in their order."""
    plain = BLOCK.sub("", text)
    return re.findall(r"^(#+|\||-)(?= )", plain, flags=re.MULTILINE)


@pytest.mark.parametrize("page", TRANSLATED)
def test_chinese_page__headings_tables_lists__are_those_of_the_english_page(page: str) -> None:
    english, chinese = both(page)
    assert shape(chinese) == shape(english)


@pytest.mark.parametrize("page", TRANSLATED)
def test_chinese_page__commands_and_code__are_those_of_the_english_page(page: str) -> None:
    english, chinese = both(page)
    assert BLOCK.findall(chinese) == BLOCK.findall(english)
    texts = [
        {" ".join(code.split()) for code in CODE.findall(" ".join(BLOCK.sub("", text).split()))}
        for text in (chinese, english)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("page", TRANSLATED)
def test_chinese_page__links__lead_where_those_of_the_english_page_do(page: str) -> None:
    english, chinese = both(page)
    assert links(chinese) == links(english)
    assert f"]({page})" in english


@pytest.mark.parametrize("page", TRANSLATED)
def test_chinese_page__latin_words__stand_apart_from_characters(page: str) -> None:
    plain = CODE.sub("", BLOCK.sub("", both(page)[1]))
    assert re.findall(f"{HAN.pattern}[A-Za-z0-9]|[A-Za-z0-9]{HAN.pattern}", LINK.sub("]", plain)) == []
