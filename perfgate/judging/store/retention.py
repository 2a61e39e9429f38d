"""Which kept artifacts may go: by age and size, the oldest first, and never those that
a regression or main's level needs.
"""

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
    older_than: timedelta | None,
    larger_than: int | None,
) -> tuple[list[ArtifactSet], int, int]:
    """The sets that may go, oldest first; the number of retained sets; and the bytes by
    which the rest is too large.

    Sets may go above an age, and above a total size of the project; None means no
    limit. The sets of ``retained_runs``, ids of runs of main, stay.
    """
    # A check that found a regression holds the traces of its base too.
    free = [
        entry
        for entry in sets
        if entry.verdict != "FAIL" and entry.id not in retained_runs
    ]
    size = sum(entry.bytes for entry in sets)
    expired: list[ArtifactSet] = []
    for entry in free:
        is_old = older_than is not None and now - moment(entry.kept_at) > older_than
        is_too_much = larger_than is not None and size > larger_than
        if is_old or is_too_much:
            expired.append(entry)
            size -= entry.bytes
    above = 0
    if larger_than is not None:
        above = max(0, size - larger_than)
    return expired, len(sets) - len(free), above
