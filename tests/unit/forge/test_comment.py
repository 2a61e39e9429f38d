"""The text of our comment: marker, hidden state, length, commands."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.judging.forge.comment import (
    MAX_CHARACTERS,
    TEXT_BUDGET,
    CommentState,
    can_hold,
    compose,
    find_own,
    marker,
    read_state,
)
from perfgate.judging.forge.forge import Comment

MARKER = marker("default")


def _state(run: int = 3, attempt: int = 2) -> CommentState:
    return CommentState(run=run, attempt=attempt, head="a" * 40, verdict="WARN", decided="PASS")


def test_marker__any_key__is_one_html_comment_without_the_key() -> None:
    line = marker("--> <script>\n")
    assert line.startswith("<!-- perfgate:sticky v1 key=")
    assert line.count("-->") == 1
    assert "script" not in line
    assert "\n" not in line


def test_marker__other_key__other_marker() -> None:
    assert marker("a") != marker("b")


def test_compose__state_line__reads_back() -> None:
    assert read_state(compose("text", _state(), MARKER)) == _state()


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_compose__line_endings_of_the_forge__still_found_and_read(ending: str) -> None:
    body = compose("text", _state(), MARKER).replace("\n", ending)
    assert find_own([Comment(1, body, own=True)], MARKER) != []
    assert read_state(body) == _state()


@pytest.mark.parametrize(
    "line", ["", "text", "<!-- perfgate:state { -->", '<!-- perfgate:state {"run": "x"} -->', "<!-- perfgate:state"]
)
def test_read_state__no_state__none(line: str) -> None:
    assert read_state(f"{MARKER}\n{line}\n") is None
    assert read_state(MARKER) is None


@pytest.mark.parametrize(
    ("run", "attempt", "older"), [(2, 9, True), (3, 1, True), (3, 2, False), (3, 3, False), (4, 1, False)]
)
def test_is_older_than__run_then_attempt__in_this_order(run: int, attempt: int, older: bool) -> None:
    assert _state(run, attempt).is_older_than(_state()) is older


def test_compose__at_the_limit__is_kept_whole() -> None:
    hidden = len(compose("", _state(), MARKER))
    text = "x" * (MAX_CHARACTERS - hidden - 1)
    assert len(compose(text, _state(), MARKER)) == MAX_CHARACTERS
    assert len(compose(text + "x", _state(), MARKER)) < 1000


@pytest.mark.parametrize("metric", ["latency.low@encoder/long", "--><script>", "编码器", '"\\'])
def test_compose__metrics_that_accept__fit_beside_the_longest_text_and_read_back(metric: str) -> None:
    most = max(count for count in range(1, 1_000, 9) if can_hold([[metric] * count]))
    assert most < 991
    state = msgspec.structs.replace(_state(), accepts=[[metric] * most])
    body = compose("x" * TEXT_BUDGET, state, MARKER)
    assert body.count("-->") == 2
    assert "x" * TEXT_BUDGET in body
    assert len(body) <= MAX_CHARACTERS
    assert read_state(body) == state


def test_compose__slash_lines__are_no_commands_even_indented() -> None:
    body = compose("/approve\n\t/merge\na /path", _state(), MARKER)
    assert "\n/approve" not in body
    assert "\n\t/merge" not in body
    assert "\na /path\n" in body
