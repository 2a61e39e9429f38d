"""Collectives of a rank: communication.json, communication_matrix.json, and analysis.db, which has steps too."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.model.events import MAX_NS, nanoseconds, nanoseconds_of_milliseconds
from perfgate.trace.model.recording import Collective, CollectiveKind, LinkUse, Packets, ProfilerStep, RankLink
from perfgate.trace.readers.ascend.database import Database, open_database
from perfgate.trace.readers.ascend.files import Device, decode_file

_KINDS: tuple[CollectiveKind, ...] = ("collective", "p2p")
# Decimal units: 2064384 bytes of a task are 2.064384 MB here, unlike in the tables of memory.
_MEGABYTE, _GIGABYTE = 1e6, 1e9
_MICROSECOND, _MILLISECOND = 1e3, 1e6
_COUNT_AND_TIME = 2
_PARTS = ("Elapse", "Transit", "Wait", "Idle")
_TOTAL = "Total Op Info"
_STEP = re.compile(r"(?:step)?(\d{1,18})$")
_PAIR = re.compile(r"(\d{1,9})-(\d{1,9})$")
_Entry = TypeVar("_Entry")
_File = dict[str, dict[str, dict[str, _Entry]]]


class _Link(msgspec.Struct):
    size: float = msgspec.field(default=0.0, name="Transit Size(MB)")
    time: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Transit Time(ms)")
    bandwidth: float | None = msgspec.field(default=None, name="Bandwidth(GB/s)")
    transport: str = msgspec.field(default="", name="Transport Type")
    # Per packet size, the count of packets and their time; values of another form are not counts.
    packets: dict[str, list[float] | float] = msgspec.field(default_factory=dict, name="Size Distribution")


class _Operation(msgspec.Struct):
    # Text, so that a time since 1970 does not pass through a float.
    times: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="Communication Time Info")
    links: dict[str, _Link] = msgspec.field(default_factory=dict, name="Communication Bandwidth Info")


def read_collectives(path: Path) -> tuple[Collective, ...]:
    """Every operation of communication.json, in file order; links without traffic are left out."""
    collectives = []
    for step, kind, name, operation in _entries(decode_file(path, _File[_Operation])):
        plain, _, group = name.partition("@")
        start = operation.times.get("Start Timestamp(us)")
        with _named(path, name):
            elapsed, transit, wait, idle = (_duration(operation.times.get(f"{part} Time(ms)")) for part in _PARTS)
            uses = [_link_use(link, use) for link, use in operation.links.items()]
            collectives.append(
                Collective(
                    name=plain,
                    kind=kind,
                    group=group or None,
                    step=step,
                    start_ns=nanoseconds(bytes(start)) if start else None,
                    elapsed_ns=elapsed,
                    transit_ns=transit,
                    wait_ns=wait,
                    idle_ns=idle,
                    links=tuple(use for use in uses if use.size_bytes or use.transit_ns),
                )
            )
    return tuple(collectives)


def read_rank_links(path: Path) -> tuple[RankLink, ...]:
    """Every pair of ranks of communication_matrix.json; a rank's copies to itself are link LOCAL."""
    links = []
    for step, kind, name, pairs in _entries(decode_file(path, _File[dict[str, _Link]])):
        operation, _, group = name.partition("@")
        for pair, link in pairs.items():
            if (match := _PAIR.match(pair)) is None:
                continue
            with _named(path, name):
                used = _link_use(link.transport, link)
            amounts = used.link, used.size_bytes, used.transit_ns, used.bandwidth
            links.append(RankLink(operation, kind, group or None, step, int(match[1]), int(match[2]), *amounts))
    return tuple(links)


def read_database_steps(path: Path) -> Iterator[tuple[Device, ProfilerStep]]:
    """The steps of analysis.db.

    Huawei's description specifies milliseconds, but the recorded values are microseconds: 8903.431 for kernels of the same
    run that take 8903431 ns (sample msinsight-910B-alexnet-2501).
    """
    columns = (
        "deviceId",
        "step",
        "computing",
        "communication",
        "communication_not_overlapped",
        "free",
        "preparing",
        "bubble",
    )
    with open_database(path) as database:
        for device, step, *times in database.rows("StepTraceTime", columns):
            computing, communication, exposed, free, preparing, bubble = (
                _time(database, time, _MICROSECOND) for time in times
            )
            yield (
                database.whole(device),
                ProfilerStep(
                    _step(step),
                    computing_ns=computing,
                    communication_ns=communication,
                    exposed_communication_ns=exposed,
                    preparing_ns=preparing,
                    free_ns=free,
                    bubble_ns=bubble,
                ),
            )


def read_database_collectives(path: Path) -> tuple[Collective, ...] | None:
    """The operations of analysis.db with their links; None if it has none."""
    columns = (
        *("hccl_op_name", "group_name", "step", "type", "start_timestamp"),
        *("elapse_time", "transit_time", "wait_time", "idle_time"),
    )
    with open_database(path) as database:
        if not database.has("CommAnalyzerTime"):
            return None
        links = _database_links(database)
        collectives = []
        for name, group, step, kind, start, *times in database.rows("CommAnalyzerTime", columns):
            if str(name) == _TOTAL:
                continue
            elapsed, transit, wait, idle = (_time(database, time, _MILLISECOND) for time in times)
            collectives.append(
                Collective(
                    name=str(name),
                    kind="p2p" if kind == "p2p" else "collective",
                    group=None if group is None else str(group),
                    step=_step(step),
                    # Stored as a float in the database: some 250 ns off.
                    start_ns=_time(database, start, _MICROSECOND),
                    elapsed_ns=elapsed,
                    transit_ns=transit,
                    wait_ns=wait,
                    idle_ns=idle,
                    links=tuple(links.get((str(name), str(group), str(step)), {}).values()),
                )
            )
        return tuple(collectives)


def _entries(steps: _File[_Entry]) -> Iterator[tuple[int | None, CollectiveKind, str, _Entry]]:
    for name, kinds in steps.items():
        for kind in _KINDS:
            for operation, entry in kinds.get(kind, {}).items():
                if operation != _TOTAL:
                    yield _step(name), kind, operation, entry


def _step(value: object) -> int | None:
    match = _STEP.match(str(value))
    return int(match[1]) if match else None


def _link_use(link: str, use: _Link) -> LinkUse:
    if not math.isfinite(use.size):
        raise ValueError(Activity("its size is not a number"))
    return LinkUse(
        link=link,
        size_bytes=round(use.size * _MEGABYTE, 3),
        transit_ns=_duration(use.time) or 0,
        bandwidth=None if not use.bandwidth else use.bandwidth * _GIGABYTE,
        packets=tuple(
            _packets(float(size), *counted)
            for size, counted in use.packets.items()
            if isinstance(counted, list) and len(counted) == _COUNT_AND_TIME
        ),
    )


def _packets(megabytes: float, number: float, milliseconds: float) -> Packets:
    if not (math.isfinite(megabytes) and 0 <= number < MAX_NS and 0 <= milliseconds < MAX_NS / _MILLISECOND):
        raise ValueError(Activity("its packet sizes are not numbers"))
    return Packets(round(megabytes * _MEGABYTE, 3), round(number), round(milliseconds * _MILLISECOND))


def _duration(raw: msgspec.Raw | None) -> int | None:
    return nanoseconds_of_milliseconds(bytes(raw)) if raw and bytes(raw) != b"null" else None


@contextmanager
def _named(path: Path, operation: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise DocumentError(
            "{path}: operation {operation!r}: {fault}; analyse the profile again",
            path=path,
            operation=operation[:80],
            fault=error.args[0],
        ) from error


def _database_links(database: Database) -> dict[tuple[str, str, str], dict[str, LinkUse]]:
    """The links of each operation; a row for every size of package repeats the sums of its link."""
    links: dict[tuple[str, str, str], dict[str, LinkUse]] = {}
    columns = (
        *("hccl_op_name", "group_name", "step", "transport_type", "transit_size", "transit_time", "bandwidth"),
        *("package_size", "count", "total_duration"),
    )
    number = database.number
    for name, group, step, link, size, time, bandwidth, *counted in database.rows("CommAnalyzerBandwidth", columns):
        megabytes, transit = number(size) or 0.0, _time(database, time, _MILLISECOND) or 0
        speed = number(bandwidth)
        if megabytes or transit:
            of_operation = links.setdefault((str(name), str(group), str(step)), {})
            package, packets, duration = (number(value) for value in counted)
            more = () if not packets else (_packets(package or 0.0, packets, duration or 0.0),)
            of_operation[str(link)] = LinkUse(
                link=str(link),
                size_bytes=round(megabytes * _MEGABYTE, 3),
                transit_ns=transit,
                bandwidth=speed * _GIGABYTE if speed else None,
                packets=(*of_operation[str(link)].packets, *more) if str(link) in of_operation else more,
            )
    return links


def _time(database: Database, value: object, unit: float) -> int | None:
    number = database.number(value)
    if number is None:
        return None
    if not abs(number) * unit < MAX_NS:
        raise database.wrong(Activity("{number!r} is not a time; analyse the profile again", number=number))
    return round(number * unit)
