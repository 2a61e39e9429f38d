"""Points in time as documents write them."""

from __future__ import annotations

from datetime import datetime, timezone


def moment(text: str) -> datetime:
    """Return a point in time of ISO 8601, in UTC where it does not say. Raises ValueError for anything else."""
    # Python 3.10 does not read the Z of ISO 8601.
    read = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
    return read if read.tzinfo else read.replace(tzinfo=timezone.utc)
