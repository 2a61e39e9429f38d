"""Ten thousand hostile names in a comment: no table, mention, link or command breaks, and each is shown as it is.

Judged by the parsers the forges use, cmark-gfm (GitHub) and comrak (GitLab), and by a filter with GitHub's allow-list. One
decision carries many names, so that all of them take seconds; tests/ci has them in every place and language.
"""

from __future__ import annotations

import pytest

from perfgate.judging.report.text.escape import code_span
from tests.fakes.hostile import hostile_names
from tests.hostile.rendering import PARSERS, RENDER, check_comment, check_spans, see

COUNT, AT_ONCE = 10_000, 250


@pytest.mark.parametrize("parser", PARSERS)
def test_code_span_and_prose__hostile_names__one_cell_each_with_the_text_of_the_name(parser: str) -> None:
    check_spans(hostile_names(COUNT, seed=6), parser)


@pytest.mark.parametrize("count", [4 * AT_ONCE, pytest.param(COUNT, marks=pytest.mark.slow)])
def test_render_comment__hostile_names__keep_every_table_and_link_mention_command_nothing(count: int) -> None:
    names = hostile_names(count, seed=20261122)
    for at in range(0, count, AT_ONCE):
        parser = PARSERS[at // AT_ONCE % len(PARSERS)]
        check_comment(names[at : at + AT_ONCE], parser, "en")


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("count", [1, 3, 79, 80, 81, 119, 500])
def test_code_span__more_backticks_than_parsers_match__nothing_behind_them_comes_alive(parser: str, count: int) -> None:
    # cmark and comrak match fences of 80 backticks at most; what is behind a longer one would be Markdown again.
    html = RENDER[parser](f"before {code_span('@octocat <img src=x> ' + '`' * count)} after")
    seen = see(html)
    assert seen.tags == {"p": 1, "code": 1}
    assert [text.strip() for text in seen.plain if text.strip()] == ["before", "after"]
