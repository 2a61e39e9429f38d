"""Hostile text in every field of every document, through every medium: its structure is that of harmless text.

Each text that users choose becomes a hostile name, equal texts the same one, so that the joins of a document hold. A medium
written with these must have the tags, rows, elements and lines that it has with harmless names, judged by the
parsers of its readers: cmark-gfm (GitHub) and comrak (GitLab) for Markdown, and those of HTML, XML, JSON, CSV and OpenMetrics.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from perfgate.catalogue.lookup import CARDS, FAMILIES, LIMITS, MESSAGES, METRICS, RULES
from perfgate.judging.report import render
from tests.fakes.hostile import hostile_names
from tests.hostile.media import MEDIA
from tests.hostile.poison import Rename
from tests.hostile.rendering import PARSERS, check_posted

# Words of perfgate's own lists keep their meaning, so that the sentences and tables about them are reached.
VOCABULARY = frozenset([*METRICS, *MESSAGES, *RULES, *LIMITS, *FAMILIES, *(card.slug for card in CARDS.values())])
_DATE = re.compile(r"\d{4}-\d\d-\d\d.*")
_ID = re.compile(r"[0-9a-f]{8,64}|run\d+|session\d+")
_LINE = re.compile(r"[\w/]+\.\w+:\d+")
_PACKED = re.compile(r"[A-Za-z0-9+/=]{80,}")
_FOREIGN_SCHEME = re.compile(r"\s*(?:javascript|data|vbscript):", re.IGNORECASE)
# Tags of templates other than those of the comment.
OUR_OTHER_TAGS = frozenset({"h3", "br"})
# Which name becomes which is drawn; other draws run with `make test-slow`.
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]


def is_foreign(text: str) -> bool:
    """Whether users choose the text, or a tool writes it: not a word of perfgate, a date or packed samples."""
    return bool(text) and text not in VOCABULARY and not _DATE.fullmatch(text) and not _PACKED.fullmatch(text)


def is_name(text: str) -> bool:
    """Whether it is no id either: pages link what has an id, so their structure depends on one."""
    return is_foreign(text) and not _ID.fullmatch(text)


def renaming(names: list[str], is_renamed: Callable[[str], bool]) -> Rename:
    """Each of these texts becomes the next name, with a number behind it that keeps different texts different."""
    renamed: dict[str, str] = {}

    def rename(text: str) -> str:
        if not is_renamed(text):
            return text
        if text not in renamed:
            name = f"{names[len(renamed) % len(names)]}{len(renamed)}"
            renamed[text] = f"{name}.py:7" if _LINE.fullmatch(text) else name
        return renamed[text]

    return rename


@cache
def harmless_texts(name: str) -> list[str]:
    return MEDIA[name].write(renaming(["name"], is_name))


def is_printable(text: str) -> bool:
    return all(
        character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        for character in text
    )


class _Page(HTMLParser):
    """Tags, names of attributes, and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("href", "src", "action"):
                self.addresses.append(value or "")


def check_markdown(text: str, harmless: str) -> None:
    for parser in PARSERS:
        tags = check_posted(text, parser, more=OUR_OTHER_TAGS).tags
        expected = check_posted(harmless, parser, more=OUR_OTHER_TAGS).tags
        assert {**tags, "code": 0} == {**expected, "code": 0}


def check_html(text: str, harmless: str) -> None:
    page, expected = _Page(text), _Page(harmless)
    assert page.tags == expected.tags
    assert page.attributes == expected.attributes
    assert not [address for address in page.addresses if _FOREIGN_SCHEME.match(address)]
    text.encode("utf-8")


def check_terminal(text: str, _: str) -> None:
    assert is_printable(text)


def check_line(text: str, _: str) -> None:
    # The path of an annotation is that of a file, whatever characters it has, but no control of a line or terminal.
    assert not [character for character in text if unicodedata.category(character) == "Cc"]


def check_xml(text: str, harmless: str) -> None:
    tags = Counter(element.tag for element in ET.fromstring(text).iter())
    assert tags == Counter(element.tag for element in ET.fromstring(harmless).iter())


def check_json(text: str, harmless: str) -> None:
    assert _shape(json.loads(text)) == _shape(json.loads(harmless))
    text.encode("utf-8")


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(map(repr, map(_shape, value.values())))
    return list(map(_shape, value)) if isinstance(value, list) else type(value).__name__


def check_csv(text: str, harmless: str) -> None:
    rows = list(csv.reader(io.StringIO(text)))
    expected = list(csv.reader(io.StringIO(harmless)))
    assert list(map(len, rows)) == list(map(len, expected))
    # A spreadsheet computes a cell that begins with one of these.
    assert not [cell for row in rows for cell in row if re.match(r"[=+@\t\r]|-(?![\d.])", cell)]


def check_openmetrics(text: str, harmless: str) -> None:
    assert _sample_counts(text) == _sample_counts(harmless)


def _sample_counts(text: str) -> dict[str, int]:
    return {family.name: len(family.samples) for family in text_string_to_metric_families(text)}


CHECKS: dict[str, Callable[[str, str], None]] = {
    "markdown": check_markdown,
    "html": check_html,
    "terminal": check_terminal,
    "line": check_line,
    "xml": check_xml,
    "json": check_json,
    "csv": check_csv,
    "openmetrics": check_openmetrics,
}


def hostile(seed: int, is_renamed: Callable[[str], bool]) -> Rename:
    """Names without lone surrogates: documents with these are not read."""
    names = [re.sub("[\ud800-\udfff]", "", name) for name in hostile_names(997, seed)]
    return renaming(names, is_renamed)


def check_medium(name: str, seed: int) -> None:
    medium = MEDIA[name]
    texts = medium.write(hostile(seed, is_name))
    harmless = harmless_texts(name)
    # A place with a hostile path has no annotation.
    assert len(harmless) >= len(texts) > 0
    assert name == "annotations" or len(harmless) == len(texts)
    for text, expected in zip(texts, harmless):
        CHECKS[medium.dialect](text, expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MEDIA)
def test_medium__hostile_names_in_every_field__has_the_structure_of_harmless_names(name: str, seed: int) -> None:
    check_medium(name, seed)


@pytest.mark.parametrize("name", [name for name, medium in MEDIA.items() if medium.dialect == "html"])
def test_page__hostile_ids_too__adds_no_tag_attribute_or_address(name: str) -> None:
    expected = _Page("".join(harmless_texts(name)))
    page = _Page("".join(MEDIA[name].write(hostile(4, is_foreign))))
    assert set(page.tags) <= set(expected.tags)
    assert page.attributes <= expected.attributes
    assert not [address for address in page.addresses if _FOREIGN_SCHEME.match(address)]


@pytest.mark.parametrize("name", [name for name, medium in MEDIA.items() if medium.dialect == "terminal"])
def test_terminal__markup_of_the_console_in_every_field__stays_text(name: str) -> None:
    texts = MEDIA[name].write(renaming(["[red]x[/red] [/] [link=x]"], is_name))
    assert any("[red]x[/red] [/]" in re.sub(r"\s+", " ", text) for text in texts)


def test_media__modules_of_the_report__each_writes_one() -> None:
    """Besides these, a Parquet file is binary and has the rows of the CSV, and `explain` words no text of others."""
    modules = {path.stem for path in Path(next(iter(render.__path__))).iterdir() if not path.name.startswith("__")}
    without_foreign_text = {"explain"}
    of_terminals = {"tables", "trace_answer", "trace_diff"}
    of_pages = {"trend_svg"}
    assert modules - without_foreign_text - of_terminals - of_pages == {medium.module for medium in MEDIA.values()}
