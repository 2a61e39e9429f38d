"""A comment is read in a minute: the title fits two lines, and what stands before the folds is short."""

from __future__ import annotations

import re
from pathlib import Path

from tests.each import each
from tests.golden.lengths import MOST_TITLE_CHARACTERS, MOST_TITLE_WORDS, MOST_WORDS, before_folds, title, words

DATA = Path(__file__).parent / "data"
ROOT = DATA.parents[2]
QUOTED = re.compile(r"(?:^> .*\n|^>\n)+", re.MULTILINE)
COMMENTS = {
    **{path.stem: path.read_text() for path in DATA.glob("*-*.md") if "hostile" not in path.name},
    "the one that docs/comment.md quotes": max(QUOTED.findall((ROOT / "docs/comment.md").read_text()), key=len),
}


@each("name", COMMENTS)
def test_comment__of_a_decision__title_and_what_is_not_folded_are_short(name: str) -> None:
    shown = title(COMMENTS[name])
    assert words(shown) <= MOST_TITLE_WORDS, shown
    assert len(shown) <= MOST_TITLE_CHARACTERS, shown
    assert words(before_folds(COMMENTS[name])) <= MOST_WORDS
