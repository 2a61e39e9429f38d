"""The hash that says whether two testbeds are comparable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def fingerprint(comparable: Mapping[str, str]) -> str:
    """The hash of the fields that must be equal: 16 hex digits of SHA-256 over sorted JSON."""
    return hashlib.sha256(json.dumps(dict(comparable), sort_keys=True).encode()).hexdigest()[:16]
