"""Ten thousand hostile names in every place of a comment, in both languages, by both parsers; all media with many seeds."""

from __future__ import annotations

import pytest

from perfgate.locale import Language
from tests.fakes.hostile import hostile_names
from tests.hostile.rendering import PARSERS, check_comment
from tests.hostile.test_media import MEDIA, check_medium

# A decision has some 150 places that hold one name only; so few names at once that each comes into several of them.
COUNT, AT_ONCE = 10_000, 40


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("parser", PARSERS)
def test_render_comment__hostile_names_everywhere__mean_nothing(parser: str, language: Language) -> None:
    names = hostile_names(COUNT, seed=7)
    for at in range(0, COUNT, AT_ONCE):
        check_comment(names[at : at + AT_ONCE], parser, language)


@pytest.mark.parametrize("seed", range(100, 150))
@pytest.mark.parametrize("name", MEDIA)
def test_medium__hostile_names_in_every_field__has_the_structure_of_harmless_names(name: str, seed: int) -> None:
    check_medium(name, seed)
