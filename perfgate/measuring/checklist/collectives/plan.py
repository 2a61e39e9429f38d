"""What the processes of a job are told, and what each of them tells back: files of JSON in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Operation = Literal["all_reduce", "all_gather", "reduce_scatter"]
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter")
PLAN_FILE = "plan.json"
SMALLEST = 1 << 10
_STEP = 4


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One job. ``sizes`` are bytes, rising; each is timed ``repetitions`` times, or fewer where that takes ``seconds``.

    ``rounds`` is how often all ranks do the same work and then meet, to see who comes last.
    """

    kind: str
    backend: str
    sizes: list[int]
    repetitions: int
    seconds: float
    rounds: int
    timeout_seconds: float


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank saw of one operation at one size: nanoseconds of each repetition, and whether the result was right."""

    operation: Operation
    size: int
    nanoseconds: list[int]
    right: bool


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """One round: when a rank was through with its work, by the clock that a machine's processes share, and how long it took."""

    arrived_ns: int
    worked_ns: int


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank saw. ``refused`` says why the backend does not have an operation."""

    rank: int
    timed: list[Timed]
    meetings: list[Meeting]
    refused: dict[str, str] = {}


def sizes_up_to(largest: int) -> list[int]:
    """Return 1 KiB, 4 KiB, 16 KiB … up to ``largest`` bytes."""
    sizes = [SMALLEST]
    while sizes[-1] * _STEP <= largest:
        sizes.append(sizes[-1] * _STEP)
    return sizes


def report_file(folder: Path, rank: int) -> Path:
    """Return where a rank writes its report."""
    return folder / f"rank-{rank}.json"


def failure_file(folder: Path, rank: int) -> Path:
    """Return where a rank writes why it failed."""
    return folder / f"rank-{rank}.failure"
