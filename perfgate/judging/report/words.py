"""Text that perfgate itself wrote: templates show it as it is, while every other string is escaped."""

from __future__ import annotations


class Words(str):
    """Our own words and numbers, free of Markdown and of anything from outside."""

    __slots__ = ()
