"""A suggestion in words: the action, the reason, the gain, and how to see it."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.document.decision import Gain, Suggestion
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import MAX_PROSE, clean
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.records import GainView, SuggestionView

_OURS = "perfgate"
# A smaller gain reads as none.
_NOTICEABLE = 0.005
_OF = {
    "call": phrase("a call"),
    "item": phrase("an item"),
    "answer": phrase("an answer under traffic"),
    "input": phrase("an input on its way to the output"),
}


def worded_suggestion(suggestion: Suggestion) -> SuggestionView:
    """The values of ``shared/suggestion.j2``."""
    op = suggestion.evidence.get("op")
    message = word(suggestion.message)
    return SuggestionView(
        message=message,
        line=suggestion.line,
        op=str(op) if op is not None and str(op) not in message else None,
        step=suggestion.step,
        gain=_worded_gain(suggestion.gain) if suggestion.gain and suggestion.gain.speedup > 1 + _NOTICEABLE else None,
        code=suggestion.code,
        command=suggestion.command,
        source=None if suggestion.source == _OURS else suggestion.source,
    )


def suggestion_lines(suggestion: Suggestion) -> list[str]:
    words = line("shared/suggestion.j2", "plain", {"suggestion": worded_suggestion(suggestion)})
    to_copy = (clean(text, limit=MAX_PROSE) for text in (suggestion.code, suggestion.command) if text)
    return [words, *to_copy]


def introduced(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    distinct: dict[tuple[str, str, object], Suggestion] = {}
    for suggestion in suggestions:
        if suggestion.introduced:
            distinct.setdefault((suggestion.rule, word(suggestion.message), suggestion.line), suggestion)
    return list(distinct.values())


def _worded_gain(gain: Gain) -> GainView:
    low, high = gain.interval or (None, None)
    return GainView(
        measured=gain.kind == "measured",
        of=say(_OF[gain.of]),
        speedup=_times(gain.speedup),
        low=None if low is None else _times(low),
        high=None if high is None else _times(high),
        share=None if gain.share is None else numbers.percent(gain.share),
    )


def _times(speedup: float) -> Words:
    """A speed-up with enough digits to differ from none: ``1.08``, ``2.3``, ``14``."""
    return Words(f"{speedup:.2f}" if speedup < 2 else f"{speedup:.1f}" if speedup < 10 else f"{speedup:.0f}")
