"""One record for each piece of evidence that is expected and not present."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from perfgate.document.decision import Missing
from perfgate.document.run import Side

SIDES: tuple[Side, Side] = ("base", "head")


def one_a_piece(lacking: Iterable[Missing], stored: Collection[tuple[str, str]] = ()) -> list[Missing]:
    """Join what base and head lack alike. If main's stored run has its shape and metric, the stored run names it."""
    pieces: dict[tuple[object, ...], Missing] = {}
    for entry in lacking:
        key = (entry.workload, entry.shape, entry.metric, *entry.pairs, entry.named_by, entry.differs)
        first = pieces.setdefault(key, entry)
        if first.side != entry.side:
            named_by = "store" if (entry.shape, entry.metric) in stored else entry.named_by
            pieces[key] = msgspec.structs.replace(first, side="both", named_by=named_by)
    return list(pieces.values())
