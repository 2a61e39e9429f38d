"""What is missing from the documents of a check, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.document.decision import Missing
from perfgate.judging.report.text.names import part_of, place_of
from perfgate.judging.report.text.numbers import beyond, counted
from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.text.words import Words, joined, phrase, say

_NAMED_MISSING = 8
_ALTHOUGH = {
    "configuration": phrase(", although the base's perfgate.toml requires it"),
    "store": phrase(", although main's stored run has it"),
}


@dataclass(frozen=True)
class MissingList(TemplateView):
    """The first missing numbers, and how many others there are."""

    missing: list[str]
    more_missing: int


def missing_list(missing: Sequence[Missing]) -> MissingList:
    named = [missing_words(entry) for entry in missing[:_NAMED_MISSING]]
    return MissingList(named, beyond(missing, _NAMED_MISSING))


def missing_words(entry: Missing) -> str:
    words = [_missing(entry)]
    if entry.pairs:
        words.append(say(" in {pairs}", pairs=counted(len(entry.pairs), "pair")))
    if not entry.differs and entry.named_by in _ALTHOUGH:
        words.append(say(_ALTHOUGH[entry.named_by]))
    return joined(words)


def _missing(entry: Missing) -> str:
    metric, place, side = part_of(entry), place_of(entry), Words(entry.side)
    if entry.differs and entry.named_by == "configuration":
        return say("{metric} of {place} does not match the base's perfgate.toml", metric=metric, place=place)
    if entry.differs:
        return say("{metric} of {place} differs between base and head", metric=metric, place=place)
    if not entry.metric and entry.side == "both":
        return say("{place} was not measured", place=place)
    if not entry.metric:
        return say("{place} is missing in the {side}", place=place, side=side)
    if entry.side == "both":
        return say("{metric} of {place} is missing on both sides", metric=metric, place=place)
    return say("{metric} of {place} is missing in the {side}", metric=metric, place=place, side=side)
