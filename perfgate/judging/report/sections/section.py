"""A section of the comment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.view.summary import Summary

KEEP = 0
Fill = Callable[[Summary], "TemplateView | None"]


@dataclass(frozen=True)
class Section:
    """One section of the comment, rendered with ``templates/comment/NAME.md.j2``.

    ``fill`` gives the view that the template shows, None if there is nothing to show. ``title`` names the section in the
    comment's list of omissions. ``drop`` is its rank for removal if the comment is over its size budget: KEEP never, else the
    highest first. Neighbours of the same ``fold`` share one, each under the ``summary`` that its template sets; a section
    without a summary stays outside.
    """

    name: str
    title: str
    fill: Fill
    drop: int = KEEP
    fold: str = ""


def section(title: str, *, drop: int = KEEP, fold: str = "") -> Callable[[Fill], Section]:
    """A decorator that makes a section of the function that fills it, with the name of the function."""
    return lambda fill: Section(fill.__name__, title, fill, drop, fold)
