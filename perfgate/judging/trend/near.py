"""The place of a commit in a series, and how far a change may move from it: further
runs shift it by a version or two.
"""

from __future__ import annotations

from perfgate.document.trend import TrendSeries

# Within this many points it is still the same change.
NEAR = 3


def index_of(series: TrendSeries, commit: str) -> int | None:
    """The newest point of a commit, which may be cut to its first digits."""
    if not commit:
        return None
    for newer, point in enumerate(reversed(series.points), 1):
        if (point.commit or "").startswith(commit):
            return len(series.points) - newer
    return None
