"""The parts of a suggestion that a template words: its operator and its gain."""

from __future__ import annotations

from perfgate.document.decision import Suggestion
from perfgate.judging.report.text.kernels import kernel_name, with_short_kernel
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.numbers import percent
from perfgate.judging.report.text.words import EMPTY, Words, phrase, say

# A smaller gain reads as none.
_NOTICEABLE = 0.005
_LONGEST_OPERATOR = 48
_OF = {
    "call": phrase("a call"),
    "item": phrase("an item"),
    "answer": phrase("an answer under traffic"),
    "input": phrase("an input on its way to the output"),
}


def unnamed_operator(suggestion: Suggestion) -> str:
    """The operator of a suggestion, empty if its sentence names it; a kernel of a GPU by its short name."""
    op = str(suggestion.evidence.get("op") or "")
    if with_short_kernel(op) in word(suggestion.message):
        return ""
    return kernel_name(op, limit=_LONGEST_OPERATOR)


def gain_words(suggestion: Suggestion) -> Words:
    """The measured speed-up, or its upper bound; empty if it is not noticeable."""
    gain = suggestion.gain
    if gain is None or gain.speedup <= 1 + _NOTICEABLE:
        return EMPTY
    of, speedup = say(_OF[gain.of]), times(gain.speedup)
    if not gain.is_measured:
        sentence = phrase(
            "; estimate: {of} at most {speedup} times as fast without these {share}"
        )
        return say(sentence, of=of, speedup=speedup, share=percent(gain.share))
    if gain.interval is None:
        return say("; measured: {of} {speedup} times as fast", of=of, speedup=speedup)
    low, high = map(times, gain.interval)
    sentence = phrase("; measured: {of} {speedup} times as fast ({low} to {high})")
    return say(sentence, of=of, speedup=speedup, low=low, high=high)


def times(speedup: float) -> Words:
    """A speed-up with enough digits to differ from none: ``1.08``, ``2.3``, ``14``."""
    if speedup < 2:
        return Words(f"{speedup:.2f}")
    if speedup < 10:
        return Words(f"{speedup:.1f}")
    return Words(f"{speedup:.0f}")
