"""Which kept artifacts may go: by age and size, the oldest first, and never those that a regression or main's level needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from perfgate.document.history import moment
from perfgate.document.kept import ArtifactSet


class ExpiredSets(NamedTuple):
    """The sets that may go, how many others are retained, and by how many bytes what stays exceeds the limit."""

    sets: list[ArtifactSet]
    retained: int
    larger_by: int

    @property
    def removed_bytes(self) -> int:
        return sum(one.bytes for one in self.sets)


def expired_sets(
    sets: Sequence[ArtifactSet],
    retained_runs: Collection[str],
    now: datetime,
    *,
    older_than: timedelta | None = None,
    larger_than: int | None = None,
) -> ExpiredSets:
    """Of ``sets``, oldest first, those that may go; ``retained_runs`` are the ids of runs of main whose sets stay.

    They may go above an age, and above so many bytes of the project; None is no limit.
    """
    # A check that found a regression holds the traces of its base too.
    free = [one for one in sets if one.verdict != "FAIL" and one.id not in retained_runs]
    expired = [one for one in free if older_than is not None and now - moment(one.kept_at) > older_than]
    size = sum(one.bytes for one in sets) - sum(one.bytes for one in expired)
    for one in free[len(expired) :]:
        if larger_than is None or size <= larger_than:
            break
        expired.append(one)
        size -= one.bytes
    above = size - larger_than if larger_than is not None else 0
    return ExpiredSets(expired, len(sets) - len(free), max(0, above))
