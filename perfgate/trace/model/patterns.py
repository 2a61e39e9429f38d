"""Regular expressions that are compiled when first used: a question needs few of them,
and each takes as long as an import.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LazyPattern:
    """Has the methods and attributes of the compiled expression."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)  # found without this method the next time
        return value


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As ``re.compile``, but an invalid expression is an error at its first use."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))
