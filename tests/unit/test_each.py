from __future__ import annotations

import re

import pytest

from tests.each import each


@each("number, square", [(2, 4), (3, 9)])
def test_each__several_names__all_cases_with_the_fixtures(
    number: int, square: int, request: pytest.FixtureRequest
) -> None:
    assert request.node.name == "test_each__several_names__all_cases_with_the_fixtures"
    assert number**2 == square


def test_each__cases_that_fail_in_different_ways__all_are_named() -> None:
    seen = []

    @each("word", lambda: iter(["good", "wrong", "skipped", "not raised", "error", "last"]))
    def test(word: str) -> None:
        seen.append(word)
        assert word != "wrong"
        if word == "skipped":
            pytest.skip("never")
        if word == "not raised":
            with pytest.raises(KeyError):
                pass
        assert word != "error" or 1 / 0

    with pytest.raises(
        AssertionError, match=re.compile("4 of 6 cases:.*wrong: Assert.*skipped: Skipped: never", re.DOTALL)
    ) as caught:
        test()
    assert "\nnot raised: Failed: DID NOT RAISE" in str(caught.value)
    assert "\nerror: ZeroDivisionError: division by zero" in str(caught.value)
    assert seen[-1] == "last"


def test_each__no_case__fails() -> None:
    with pytest.raises(AssertionError, match="no case of word"):
        each("word", [])(lambda word: None)()
