"""A section of the comment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfgate.judging.report.text.templates import render_with_summary
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.summary import Summary

KEEP = 0


@dataclass(frozen=True)
class SectionText:
    """The Markdown of a section, and the title of its fold, which is empty if the section stays outside of folds."""

    text: Words
    summary: Words


Fill = Callable[[Summary], "SectionText | None"]


@dataclass(frozen=True)
class Section:
    """One section of the comment.

    ``fill`` gives its text, None if the section does not apply. ``title`` names the section in the comment's list of omissions.
    ``drop`` is its rank for removal if the comment is over its size budget: KEEP never, else the highest first. Neighbours of
    the same ``fold`` share one.
    """

    title: str
    fill: Fill
    drop: int = KEEP
    fold: str = ""


def section(
    title: str, *, drop: int = KEEP, fold: str = ""
) -> Callable[[Fill], Section]:
    """A decorator that makes a section of the function that fills it."""
    return lambda fill: Section(title, fill, drop, fold)


def section_text(summary: Summary, name: str, **values: object) -> SectionText:
    """Render ``templates/comment/NAME.md.j2``, which may set a ``summary``."""
    return SectionText(
        *render_with_summary(f"comment/{name}.md.j2", summary.medium, **values)
    )
