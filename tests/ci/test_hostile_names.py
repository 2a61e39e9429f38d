"""Ten thousand hostile names in every place of a comment, in both languages, by both parsers."""

from __future__ import annotations

import pytest

from perfgate.catalogue.card import Language
from tests.fakes.hostile import hostile_names
from tests.unit.report.rendering import PARSERS, check_comment, decision_of

# A decision has some 150 places that hold one name only; so few names at once that each comes into several of them.
COUNT, AT_ONCE = 10_000, 40

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("parser", PARSERS)
def test_render_comment__hostile_names_everywhere__mean_nothing(parser: str, language: Language) -> None:
    names = hostile_names(COUNT, seed=7)
    for at in range(0, COUNT, AT_ONCE):
        check_comment(decision_of(names[at : at + AT_ONCE]), parser, language, rows=AT_ONCE)
