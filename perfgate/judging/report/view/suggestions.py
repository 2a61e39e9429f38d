"""Suggestions: those of the change, and each in lines of plain text."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.document.decision import Suggestion
from perfgate.judging.report.text.escape import MAX_PROSE, clean
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.templates import line


def suggestion_lines(suggestion: Suggestion) -> list[str]:
    words = line("shared/suggestion.j2", "plain", suggestion=suggestion)
    to_copy = (clean(text, limit=MAX_PROSE) for text in (suggestion.code, suggestion.command) if text)
    return [words, *to_copy]


def introduced(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    distinct: dict[tuple[str, str, object], Suggestion] = {}
    for suggestion in suggestions:
        if suggestion.introduced:
            distinct.setdefault((suggestion.rule, word(suggestion.message), suggestion.line), suggestion)
    return list(distinct.values())
