"""How the numbers in a decision's words are rounded."""

from __future__ import annotations

import pytest

from perfgate.judging.gate.comparison import percent


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.02, "2"), (0.0253, "2.5"), (0.00034, "0.034"), (0.233, "23"), (1.0, "100"), (1.234, "120"), (-0.005, "-0.5")],
)
def test_percent__share__two_digits_without_an_exponent(share: float, words: str) -> None:
    assert percent(share) == words
