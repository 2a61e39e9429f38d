"""The parts of a suggestion that a template words: its operator and its gain."""

from __future__ import annotations

from perfgate.document.decision import Gain, Suggestion
from perfgate.judging.report.text.kernels import kernel_name, with_short_kernel
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.words import Words, phrase, say

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
    return "" if with_short_kernel(op) in word(suggestion.message) else kernel_name(op, limit=_LONGEST_OPERATOR)


def noticeable_gain(suggestion: Suggestion) -> Gain | None:
    return suggestion.gain if suggestion.gain and suggestion.gain.speedup > 1 + _NOTICEABLE else None


def part_of_gain(gain: Gain) -> Words:
    return say(_OF[gain.of])


def times(speedup: float) -> Words:
    """A speed-up with enough digits to differ from none: ``1.08``, ``2.3``, ``14``."""
    return Words(f"{speedup:.2f}" if speedup < 2 else f"{speedup:.1f}" if speedup < 10 else f"{speedup:.0f}")
