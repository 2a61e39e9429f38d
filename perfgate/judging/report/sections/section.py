"""What a section of the comment is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfgate.judging.report.view.summary import Summary

KEEP = 0
Values = Mapping[str, object]


@dataclass(frozen=True)
class Section:
    """One section of the comment, rendered with ``templates/comment/NAME.md.j2``.

    ``fill`` gives the values that the template shows, None if there is nothing to show. ``title`` names the section
    where the comment says what was left out. ``drop`` says when it goes if the comment is over its size budget: KEEP never,
    else the highest first. Neighbours of the same ``fold`` stand in one, each under the ``summary`` that its template sets;
    one that sets none stands outside.
    """

    name: str
    title: str
    fill: Callable[[Summary], Values | None]
    drop: int = KEEP
    fold: str = ""
