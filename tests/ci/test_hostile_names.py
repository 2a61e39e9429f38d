"""Ten thousand hostile names in every place of a comment, in both languages, by both parsers."""

from __future__ import annotations

import pytest

from perfgate.judging.report.render.trend import render_issue, render_news
from perfgate.judging.report.view.summary import CommentContext
from perfgate.locale import Language
from tests.fakes.hostile import hostile_names
from tests.fakes.trends import hostile_trend
from tests.unit.report.rendering import PARSERS, check_comment, check_posted

# A decision has some 150 places that hold one name only; so few names at once that each comes into several of them.
COUNT, AT_ONCE = 10_000, 40
ISSUE_TAGS = frozenset({"h3", "br"})


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("parser", PARSERS)
def test_render_comment__hostile_names_everywhere__mean_nothing(parser: str, language: Language) -> None:
    names = hostile_names(COUNT, seed=7)
    for at in range(0, COUNT, AT_ONCE):
        check_comment(names[at : at + AT_ONCE], parser, language)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("parser", PARSERS)
def test_render_issue__hostile_names__mean_nothing(parser: str, language: Language) -> None:
    for name in hostile_names(500, seed=8):
        trend = hostile_trend(name)
        seen = check_posted(render_issue(trend, CommentContext(language=language)), parser, more=ISSUE_TAGS)
        assert {len(row) for table in seen.tables for row in table} == {6}
        check_posted(render_news(trend, language) or "", parser, more=ISSUE_TAGS)
