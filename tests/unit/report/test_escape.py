"""Every outside string becomes one harmless piece of text."""

from __future__ import annotations

from perfgate.judging.report.text.escape import clean, code_span, fenced, prose
from tests.each import each


@each(
    "text, expected",
    [
        ("aten::add", "`aten::add`"),
        ("a|b", "`a\u2223b`"),
        ("a`b", "``a`b``"),
        ("a``b", "```a``b```"),
        ("`x`", "`` `x` ``"),
        ("", "`(empty)`"),
        (" \n ", "`(empty)`"),
        ("two\nlines", "`two lines`"),
        ("left\u202eright", "`left\ufffdright`"),
        ("\x1b[31mred", "`\ufffd[31mred`"),
        ("@octocat", "`@octocat`"),
        ("/approve", "`/approve`"),
    ],
)
def test_code_span__hostile_text__fence_is_longer_and_nothing_splits(text: str, expected: str) -> None:
    assert code_span(text) == expected


def test_clean__long_text__is_cut_at_120_characters_with_an_ellipsis() -> None:
    assert clean("x" * 500) == "x" * 119 + "…"


def test_clean__lone_surrogate__is_replaced_so_that_it_can_be_encoded() -> None:
    assert clean("a\ud800b").encode() == "a\ufffdb".encode()


@each(
    "text, expected",
    [
        ("merge-base with main", "merge-base with main"),
        ("aten::add runs 24 times", "`aten::add` runs 24 times"),
        ("do it once (stack, or a broadcast).", "do it once (stack, or a broadcast)."),
        ("thanks @octocat, see #12", "thanks `@octocat`, see `#12`"),
        ("/approve this", "`/approve` this"),
        ("1. not a list", "`1`. not a list"),
        ("see https://evil.example/x", "see `https://evil.example/x`"),
        ("call `aten::add` once", "call `aten::add` once"),
        ("no time: `perfgate check --steps 9`, or wait", "no time: `perfgate check --steps 9`, or wait"),
        ("an odd ` and @octocat", "an odd `` ` `` and `@octocat`"),
        ("write e.g. ranks=2", "write e.g. `ranks=2`"),
        ("add traffic=Traffic(rate=...) or (see aten::mm).", "add `traffic=Traffic(rate=...)` or (see `aten::mm`)."),
        ("a_b <b> [x](y) *z*", "`a_b` `<b>` `[x](y)` `*z*`"),
    ],
)
def test_prose__sentence_around_outside_names__only_plain_words_stay_words(text: str, expected: str) -> None:
    assert prose(text) == expected


def test_fenced__text_that_tries_to_close_the_block__gets_a_longer_fence() -> None:
    assert fenced("one\n```\n# heading\n````", lines=12) == "`````\none\n```\n# heading\n````\n`````"


def test_fenced__many_lines__the_last_twelve_are_kept() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    assert fenced(text, lines=12).splitlines()[1] == "line 88"
    assert fenced(text, lines=12).splitlines()[-2] == "line 99"


def test_fenced__quick_action_inside__never_starts_a_line_with_a_slash() -> None:
    assert fenced("/close\n/merge", lines=12) == "```\n /close\n /merge\n```"
