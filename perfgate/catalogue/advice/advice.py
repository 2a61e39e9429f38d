"""What a piece of advice says: in which words, what it gains, and what to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfgate.catalogue.card import Text

# What a gain is one of: a call, an item of a batch, an answer under traffic, a raw input on its way to the output.
GainOf = Literal["call", "item", "answer", "input"]


@dataclass(frozen=True)
class Measured:
    """The gain that a step measured by trying it: its speed-up ``metric``, of the finding's shape.

    ``inverse`` where the slower way is the one that was tried second, ``lost`` where the metric is the share that is lost.
    """

    metric: str
    of: GainOf = "call"
    inverse: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Estimated:
    """The most that may be gained, by Amdahl's law: the finding's evidence ``share`` is the part of the time that may go.

    Of it ``stays`` is the evidence that says which share stays at best. ``of_busy`` where it is a share of the time that the
    device works in, which is a part of the call. ``rest`` where the evidence is what would stay. ``seconds`` where it is
    seconds of a call instead of a share.
    """

    share: str
    stays: str = ""
    of_busy: bool = False
    rest: bool = False
    seconds: bool = False


@dataclass(frozen=True)
class Advice:
    """What to try about one rule; ``{name}`` in its words is an entry of the suggestion's evidence.

    ``tried`` is what a step measured that tried this very remedy: where the run has it, it is the gain, and where it is none
    beyond doubt, ``instead`` is said, which names no evidence and no such remedy, or nothing is suggested.

    ``code`` is what to write, ``steps`` the steps of the checklist that show what it brings: the rule's own unless said.
    """

    rule: str
    message: Text
    gain: Measured | Estimated | None = None
    code: str = ""
    steps: tuple[int, ...] = ()
    tried: Measured | None = None
    instead: Text | None = None
