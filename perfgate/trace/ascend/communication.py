"""Collectives of a rank: communication.json, communication_matrix.json, and analysis.db in their place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from perfgate.errors import DocumentError
from perfgate.trace.ascend.database import Database, opened
from perfgate.trace.ascend.files import decode_file
from perfgate.trace.events import MAX_NS, nanoseconds, nanoseconds_of_milliseconds
from perfgate.trace.recording import Collective, LinkUse, RankLink, TabledStep

Kind = Literal["collective", "p2p"]
_KINDS: tuple[Kind, ...] = ("collective", "p2p")
# 2064384 bytes of a task are 2.064384 MB here, unlike the tables of memory.
_MEGABYTE, _GIGABYTE = 1e6, 1e9
_TOTAL = "Total Op Info"
_PAIR = re.compile(r"(\d{1,9})-(\d{1,9})$")
_Entry = TypeVar("_Entry")
_File = dict[str, dict[str, dict[str, _Entry]]]


class _Times(
    msgspec.Struct,
    rename={
        "start": "Start Timestamp(us)",
        "elapsed": "Elapse Time(ms)",
        "transit": "Transit Time(ms)",
        "wait": "Wait Time(ms)",
        "synchronization": "Synchronization Time(ms)",
        "idle": "Idle Time(ms)",
    },
):
    # Text, so that a time since 1970 does not pass through a float here too.
    start: msgspec.Raw = msgspec.Raw()
    elapsed: msgspec.Raw = msgspec.Raw()
    transit: msgspec.Raw = msgspec.Raw()
    wait: msgspec.Raw = msgspec.Raw()
    synchronization: msgspec.Raw = msgspec.Raw()
    idle: msgspec.Raw = msgspec.Raw()


class _Link(
    msgspec.Struct,
    rename={
        "size": "Transit Size(MB)",
        "time": "Transit Time(ms)",
        "bandwidth": "Bandwidth(GB/s)",
        "transport": "Transport Type",
    },
):
    size: float = 0.0
    time: msgspec.Raw = msgspec.Raw()
    bandwidth: float | None = None
    transport: str = ""


class _Operation(msgspec.Struct, rename={"times": "Communication Time Info", "links": "Communication Bandwidth Info"}):
    times: _Times = msgspec.field(default_factory=_Times)
    links: dict[str, _Link] = msgspec.field(default_factory=dict)


def read_collectives(path: Path) -> tuple[Collective, ...]:
    """Every operation of communication.json, in the order of the file; links that carried nothing are left out."""
    return tuple(
        _checked(path, name, lambda: _collective(step, kind, name, operation))  # noqa: B023 - called at once
        for step, kind, name, operation in _entries(decode_file(path, _File[_Operation]))
    )


def read_rank_links(path: Path) -> tuple[RankLink, ...]:
    """Every pair of ranks of communication_matrix.json; a rank's copies to itself are link LOCAL."""
    found = []
    for step, kind, name, pairs in _entries(decode_file(path, _File[dict[str, _Link]])):
        operation, _, group = name.partition("@")
        for pair, link in pairs.items():
            if (match := _PAIR.match(pair)) is None:
                continue
            use = _checked(path, name, lambda: _use(link.transport, link))  # noqa: B023 - called at once
            found.append(RankLink(operation, kind, group or None, step, int(match[1]), int(match[2]), *use))
    return tuple(found)


def _entries(steps: _File[_Entry]) -> Iterator[tuple[int | None, Kind, str, _Entry]]:
    for name, kinds in steps.items():
        match = _STEP.match(name)
        for kind in _KINDS:
            for operation, entry in kinds.get(kind, {}).items():
                if operation != _TOTAL:
                    yield int(match[1]) if match else None, kind, operation, entry


def _collective(step: int | None, kind: Kind, name: str, operation: _Operation) -> Collective:
    plain, _, group = name.partition("@")
    times = operation.times
    uses = (_use(link, use) for link, use in operation.links.items())
    return Collective(
        name=plain,
        kind=kind,
        group=group or None,
        step=step,
        start_ns=nanoseconds(bytes(times.start)) if times.start else None,
        elapsed_ns=_lasting(times.elapsed),
        transit_ns=_lasting(times.transit),
        wait_ns=_lasting(times.wait),
        synchronization_ns=_lasting(times.synchronization),
        idle_ns=_lasting(times.idle),
        links=tuple(use for use in uses if use.size_bytes or use.transit_ns),
    )


def _use(link: str, use: _Link) -> LinkUse:
    if not math.isfinite(use.size):
        raise ValueError("its size is no number")
    return LinkUse(
        link=link,
        size_bytes=round(use.size * _MEGABYTE, 3),
        transit_ns=_lasting(use.time) or 0,
        bandwidth=None if not use.bandwidth else use.bandwidth * _GIGABYTE,
    )


def _lasting(raw: msgspec.Raw) -> int | None:
    return nanoseconds_of_milliseconds(bytes(raw)) if raw and bytes(raw) != b"null" else None


def _checked(path: Path, name: str, make: Callable[[], _Entry]) -> _Entry:
    try:
        return make()
    except ValueError as error:
        raise DocumentError(f"{path}: operation {name[:80]!r}: {error}; analyse the profile again") from error


_MEGABYTE, _GIGABYTE = 1e6, 1e9
_MICROSECOND, _MILLISECOND = 1e3, 1e6
_STEP = re.compile(r"(?:step)?(\d{1,18})$")


def read_database_steps(path: Path) -> Mapping[int | None, tuple[TabledStep, ...]]:
    """The steps of StepTraceTime by device.

    Huawei's description says milliseconds; recorded are microseconds: 8903.431 where the kernels of the same run take
    8903431 ns (sample msinsight-910B-alexnet-2501).
    """
    found: dict[int | None, list[TabledStep]] = {}
    columns = ("deviceId", "step", "computing", "communication", "communication_not_overlapped", "free", "preparing")
    with opened(path) as database:
        for device, step, *times in database.rows("StepTraceTime", columns):
            computing, communication, exposed, free, preparing = (
                _nanoseconds(database, time, _MICROSECOND) for time in times
            )
            found.setdefault(database.whole(device), []).append(
                TabledStep(
                    number=_step(step),
                    computing_ns=computing,
                    communication_ns=communication,
                    exposed_communication_ns=exposed,
                    free_ns=free,
                    preparing_ns=preparing,
                )
            )
    return {device: tuple(steps) for device, steps in found.items()}


def read_database_collectives(path: Path) -> tuple[Collective, ...] | None:
    """The operations of CommAnalyzerTime with the links of CommAnalyzerBandwidth; None where neither is there."""
    with opened(path) as database:
        if not database.has("CommAnalyzerTime"):
            return None
        links = _links(database)
        columns = (
            "hccl_op_name", "group_name", "step", "type", "start_timestamp", "elapse_time", "transit_time", "wait_time",
            "synchronization_time", "idle_time",
        )  # fmt: skip
        found = []
        for name, group, step, kind, start, *times in database.rows("CommAnalyzerTime", columns):
            if str(name) == "Total Op Info":
                continue
            elapsed, transit, wait, synchronization, idle = (
                _nanoseconds(database, time, _MILLISECOND) for time in times
            )
            found.append(
                Collective(
                    name=str(name),
                    kind=_kind(kind),
                    group=None if group is None else str(group),
                    step=_step(step),
                    # A float of the database itself: some 250 ns off.
                    start_ns=_nanoseconds(database, start, _MICROSECOND),
                    elapsed_ns=elapsed,
                    transit_ns=transit,
                    wait_ns=wait,
                    synchronization_ns=synchronization,
                    idle_ns=idle,
                    links=tuple(links.get((str(name), str(group), str(step)), {}).values()),
                )
            )
        return tuple(found)


def _links(database: Database) -> dict[tuple[str, str, str], dict[str, LinkUse]]:
    found: dict[tuple[str, str, str], dict[str, LinkUse]] = {}
    columns = ("hccl_op_name", "group_name", "step", "transport_type", "transit_size", "transit_time", "bandwidth")
    for name, group, step, link, size, time, bandwidth in database.rows("CommAnalyzerBandwidth", columns):
        megabytes, transit = database.number(size) or 0.0, _nanoseconds(database, time, _MILLISECOND) or 0
        speed = database.number(bandwidth)
        if megabytes or transit:
            found.setdefault((str(name), str(group), str(step)), {})[str(link)] = LinkUse(
                link=str(link),
                size_bytes=round(megabytes * _MEGABYTE, 3),
                transit_ns=transit,
                bandwidth=speed * _GIGABYTE if speed else None,
            )
    return found


def _nanoseconds(database: Database, value: object, unit: float) -> int | None:
    number = database.number(value)
    if number is None:
        return None
    if not abs(number) * unit < MAX_NS:
        raise database.wrong(f"{number!r} is no time; analyse the profile again")
    return round(number * unit)


def _step(value: object) -> int | None:
    match = _STEP.match(str(value))
    return int(match[1]) if match else None


def _kind(value: object) -> Literal["collective", "p2p"]:
    return "p2p" if value == "p2p" else "collective"
