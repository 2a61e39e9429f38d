"""Which torch_npu goes with which torch and which CANN, as published, and the judgement of an installed three.

Source: COMPATIBILITY.md of github.com/Ascend/pytorch at b48e6481 (2026), torch_npu 2.1.0 and later. What the table does not
know is unknown, which is not a mismatch: pre-releases, patches of CANN, and what came out later.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

# torch_npu, CANN. The torch of a torch_npu is its own version without what follows the third number.
PAIRS = (
    ("2.12.0", "9.1.0"),
    ("2.11.0", "9.1.0"),
    ("2.10.0.post4", "9.1.0"),
    ("2.9.0.post6", "9.1.0"),
    ("2.7.1.post8", "9.1.0"),
    ("2.9.0.post2", "9.0.0"),
    ("2.8.0.post4", "9.0.0"),
    ("2.7.1.post4", "9.0.0"),
    ("2.9.0", "8.5.0"),
    ("2.8.0.post2", "8.5.0"),
    ("2.7.1.post2", "8.5.0"),
    ("2.6.0.post5", "8.5.0"),
    ("2.8.0", "8.3.RC1"),
    ("2.7.1", "8.3.RC1"),
    ("2.6.0.post3", "8.3.RC1"),
    ("2.1.0.post17", "8.3.RC1"),
    ("2.6.0", "8.2.RC1"),
    ("2.5.1.post1", "8.2.RC1"),
    ("2.1.0.post13", "8.2.RC1"),
    ("2.5.1", "8.1.RC1"),
    ("2.4.0.post4", "8.1.RC1"),
    ("2.3.1.post6", "8.1.RC1"),
    ("2.1.0.post12", "8.1.RC1"),
    ("2.4.0.post2", "8.0.0"),
    ("2.3.1.post4", "8.0.0"),
    ("2.1.0.post10", "8.0.0"),
    ("2.4.0", "8.0.RC3"),
    ("2.3.1.post2", "8.0.RC3"),
    ("2.1.0.post8", "8.0.RC3"),
    ("2.3.1", "8.0.RC2"),
    ("2.2.0.post2", "8.0.RC2"),
    ("2.1.0.post6", "8.0.RC2"),
    ("2.2.0", "8.0.RC1"),
    ("2.1.0.post4", "8.0.RC1"),
    ("2.1.0", "7.0.0"),
)
Match = Literal["good", "mismatch", "unknown"]

_RELEASE = re.compile(r"([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})(.{0,80})", re.DOTALL)
# 2.7.1.post2, 2.7.1.post2+git1a2b3c, 2.7.1rc1, 2.7.1.dev20250901
_TAIL = re.compile(r"(\.post[0-9]{1,4})?(\+.{0,60})?", re.DOTALL)


class Compatibility(msgspec.Struct, frozen=True, kw_only=True):
    """Whether two packages go together; ``remedy`` is None unless they are known not to."""

    match: Match
    detail: str
    remedy: str | None = None


def check_torch(torch: str, torch_npu: str) -> Compatibility:
    """Judge torch against torch_npu: each torch_npu is built for one release of torch."""
    own, needed = _release(torch), _release(torch_npu)
    detail = f"torch {torch}, torch_npu {torch_npu}"
    if own is None or needed is None:
        return Compatibility(match="unknown", detail=f"{detail}: no release numbers to compare")
    if own == needed:
        return Compatibility(match="good", detail=detail)
    return Compatibility(
        match="mismatch",
        detail=f"{detail}, which is built for torch {needed}",
        remedy=f"pip install torch=={needed}, or the torch_npu whose version begins with {own}",
    )


def check_cann(torch_npu: str, cann: str) -> Compatibility:
    """Judge torch_npu against CANN by the published table."""
    detail = f"torch_npu {torch_npu}, CANN {cann}"
    published = _published(torch_npu)
    needed = next((listed for name, listed in PAIRS if name == published), None)
    release = _release(torch_npu)
    if needed is not None and needed.upper() == cann.upper():
        return Compatibility(match="good", detail=detail)
    if needed is None or cann.upper() not in {listed.upper() for _, listed in PAIRS}:
        unlisted = f"torch_npu {torch_npu}" if needed is None else f"CANN {cann}"
        listed = "" if needed is None else f"; torch_npu {published} is listed with CANN {needed}"
        return Compatibility(match="unknown", detail=f"{detail}: {unlisted} is not in the published table{listed}")
    matches = [name for name, listed in PAIRS if listed.upper() == cann.upper() and _release(name) == release]
    alternative = f", or torch_npu {matches[0]} for CANN {cann}" if matches else ""
    return Compatibility(
        match="mismatch",
        detail=f"{detail}; the published table lists torch_npu {published} with CANN {needed}",
        remedy=f"install CANN {needed}{alternative}",
    )


def check_compatibility(
    torch: str | None, torch_npu: str | None, cann: str | None
) -> tuple[Compatibility, Compatibility]:
    """Judge what is installed: torch_npu with torch, and with CANN; a pair with a part missing is unknown."""
    if torch_npu is None:
        missing = Compatibility(match="unknown", detail="torch_npu is not installed")
        return missing, missing
    first = (
        check_torch(torch, torch_npu)
        if torch is not None
        else Compatibility(match="unknown", detail=f"torch_npu {torch_npu} without torch")
    )
    second = (
        check_cann(torch_npu, cann)
        if cann is not None
        else Compatibility(match="unknown", detail=f"torch_npu {torch_npu}, and no CANN whose version can be read")
    )
    return first, second


def cann_for(torch_npu: str) -> str | None:
    published = _published(torch_npu)
    return next((cann for name, cann in PAIRS if name == published), None)


def _release(version: str) -> str | None:
    match = _RELEASE.match(version.strip())
    return match[1] if match else None


def _published(torch_npu: str) -> str | None:
    """The version as the table writes it, None for a pre-release, which the table does not know."""
    match = _RELEASE.match(torch_npu.strip())
    tail = _TAIL.fullmatch(match[2]) if match else None
    return match[1] + (tail[1] or "") if match and tail else None
