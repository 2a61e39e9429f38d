"""What a part of the comment is: its place, how dear it is, and the template it fills."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Protocol

from perfgate.judging.report import sections
from perfgate.judging.report.summary import Summary
from perfgate.plugins import load_members

KEEP = 0


class Section(Protocol):
    """One part of the comment. A module in ``sections/`` exposes one as ``SECTION``.

    ``order`` is its place from the top. ``drop`` says when it goes if the comment is over its size budget: KEEP never,
    else the highest first. ``title`` names it where the comment says what was left out. ``template`` is its file in
    ``templates/comment/``. ``numbered`` parts get the next number of the walk-through (1. Why, 2. Try …) as ``number``.
    """

    order: int
    drop: int
    title: str
    template: str
    numbered: bool

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """What the template needs, or None when there is nothing to say."""


@cache
def all_sections() -> tuple[Section, ...]:
    members: list[Section] = [member.SECTION for member in load_members(sections)]
    return tuple(sorted(members, key=lambda section: section.order))
