"""Many ranks as their page draws them."""

from __future__ import annotations

from typing import Literal

import msgspec

from perfgate.document.timeline import DrawnTimeline
from perfgate.document.trace import RanksDocument

HeatKind = Literal["computing", "exposed", "free", "bubble", "late", "bandwidth"]


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """A number for every rank and column, None if missing: seconds of a step, seconds after the first to come to a
    collective, or bytes a second over one kind of ``link`` to another rank.

    ``left_out`` is how many columns are not drawn: earlier steps, and collectives with a smaller skew.
    """

    kind: HeatKind
    columns: list[str]
    values: list[list[float | None]]
    link: str = ""
    left_out: int = 0


class DrawnRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about the ranks, the heat maps with a row for each of ``labels``, and the timelines of some of them.

    ``unaligned`` are the drawn ranks with a clock that no collective relates to the others.
    """

    document: RanksDocument
    labels: list[str]
    maps: list[HeatMap]
    timeline: DrawnTimeline | None
    unaligned: list[str]
