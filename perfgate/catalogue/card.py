"""What a card of the checklist says: one step, its metrics, limits and rules, in English and in Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", "neutral"]
Kind = Literal["noisy", "exact"]
DeviceKind = Literal["npu", "cuda", "cpu"]
DEVICE_KINDS: tuple[DeviceKind, ...] = ("npu", "cuda", "cpu")
Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Text(str):
    """English words that carry the Chinese ones with them; where nobody asks for a language they read as English."""

    __slots__ = ("zh",)
    zh: str

    def __new__(cls, en: str, zh: str = "") -> Text:
        """Make the text; without Chinese words the English ones stand for them."""
        made = super().__new__(cls, en)
        made.zh = zh or en
        return made

    def worded(self, language: Language) -> str:
        """Return the words of a language."""
        return self.zh if language == "zh" else str(self)


@dataclass(frozen=True)
class Metric:
    """A measured quantity: its base unit, which way is better, and whether repetition gives the same number.

    ``explanation`` is what ``perfgate explain`` prints; ``step`` is the checklist step it belongs to (20: the gate). A
    ``share`` is a part of a whole, unit 1, and reads as a percentage.
    """

    name: str
    title: Text
    unit: str
    better: Better
    kind: Kind
    step: int
    explanation: Text
    source: str
    share: bool = False


@dataclass(frozen=True)
class Limit:
    """A bound inside one run that ``[limits]`` in perfgate.toml may override.

    ``name`` is a rule and a severity, such as ``transfer.share.warning``; ``source`` says where the number comes from.
    """

    name: str
    default: float
    source: Text


@dataclass(frozen=True)
class Rule:
    """What a step may notice, and in which words; ``{name}`` in them is an entry of the finding's evidence."""

    name: str
    message: Text


@dataclass(frozen=True)
class StepCard:
    """One step of the checklist.

    ``slug`` names it in files, documents and options. ``question`` is what it answers, ``how`` how it is measured,
    ``devices`` what each kind of device shows, ``remedy`` what to do when it asks to be looked at, ``cost`` what it takes:
    seconds on a model of 5 ms a call on two cores, quick and full.
    """

    number: int
    slug: str
    title: Text
    question: Text
    how: Text
    remedy: Text
    cost: Text
    devices: Mapping[DeviceKind, Text]
    metrics: tuple[Metric, ...] = ()
    limits: tuple[Limit, ...] = ()
    rules: tuple[Rule, ...] = ()
