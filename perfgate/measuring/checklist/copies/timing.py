"""The messages between copies and the process that starts them, and the loop that times one copy among others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec


class Go(msgspec.Struct, frozen=True, kw_only=True):
    """Make calls from ``begin_ns`` of the monotonic clock, which processes of a machine share, until ``end_ns``."""

    begin_ns: int
    end_ns: int


class Stands(msgspec.Struct, frozen=True, kw_only=True):
    """A copy is ready: nanoseconds from its process's start to an imported framework, of loading, and of the first call."""

    import_ns: int
    load_ns: int
    first_call_ns: int
    error: str = ""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of every call."""

    walls_ns: list[int]


def time_copy(call: Callable[[], Any], wait: Callable[[], object], go: Go) -> list[int]:
    """Make calls, each waited for, from the moment that all copies begin; one at least."""
    clock = time.monotonic_ns
    time.sleep(max(0, go.begin_ns - clock()) / 1e9)
    walls: list[int] = []
    ended = clock()
    while not walls or ended < go.end_ns:
        began = clock()
        call()
        wait()
        ended = clock()
        walls.append(ended - began)
    return walls
