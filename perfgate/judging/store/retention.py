"""Which kept artifacts may go: by age and size, the oldest first, and never those that a regression or main's level needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from perfgate.document.history import moment
from perfgate.document.kept import ArtifactSet


def expired_sets(
    sets: Sequence[ArtifactSet],
    retained_runs: Collection[str],
    now: datetime,
    *,
    older_than: timedelta | None = None,
    larger_than: int | None = None,
) -> tuple[list[ArtifactSet], int, int]:
    """Of ``sets``, oldest first, those that may go; how many others are retained; and by how many bytes the rest is too large.

    Sets may go above an age, and above so many bytes of the project; None is no limit. The sets of
    ``retained_runs``, ids of runs of main, stay.
    """
    # A check that found a regression holds the traces of its base too.
    free = [entry for entry in sets if entry.verdict != "FAIL" and entry.id not in retained_runs]
    expired = [entry for entry in free if older_than is not None and now - moment(entry.kept_at) > older_than]
    size = sum(entry.bytes for entry in sets) - sum(entry.bytes for entry in expired)
    for entry in free[len(expired) :]:
        if larger_than is None or size <= larger_than:
            break
        expired.append(entry)
        size -= entry.bytes
    above = size - larger_than if larger_than is not None else 0
    return expired, len(sets) - len(free), max(0, above)
