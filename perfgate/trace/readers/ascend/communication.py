"""Collectives of a rank: communication.json, communication_matrix.json, and
analysis.db, which has steps too.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.model.events import MAX_NS, nanoseconds, nanoseconds_of_milliseconds
from perfgate.trace.model.recording import (
    Collective,
    CollectiveKind,
    LinkUse,
    Packets,
    ProfilerStep,
    RankLink,
)
from perfgate.trace.readers.ascend.database import Database, open_database
from perfgate.trace.readers.ascend.files import Device, decode_file

_KINDS: tuple[CollectiveKind, ...] = ("collective", "p2p")
# Decimal units: 2064384 bytes of a task are 2.064384 MB here, unlike in the tables of
# memory.
_MEGABYTE, _GIGABYTE = 1e6, 1e9
_MICROSECOND, _MILLISECOND = 1e3, 1e6
_COUNT_AND_TIME = 2
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
    # Per packet size, the count of packets and their time; values of another form are
    # not counts.
    packets: dict[str, list[float] | float] = msgspec.field(
        default_factory=dict, name="Size Distribution"
    )


class _Operation(msgspec.Struct):
    # Text, so that a time since 1970 does not pass through a float.
    times: dict[str, msgspec.Raw] = msgspec.field(
        default_factory=dict, name="Communication Time Info"
    )
    links: dict[str, _Link] = msgspec.field(
        default_factory=dict, name="Communication Bandwidth Info"
    )

    def start(self) -> int | None:
        start = self.times.get("Start Timestamp(us)")
        return nanoseconds(bytes(start)) if start else None

    def part(self, name: str) -> int | None:
        """The nanoseconds of a part of the operation.

        Raises ValueError for an invalid time.
        """
        return _duration(self.times.get(f"{name} Time(ms)"))


def read_collectives(path: Path) -> tuple[Collective, ...]:
    """Every operation of communication.json, in file order; links without traffic are
    left out.
    """
    collectives = []
    for step, kind, name, operation in _entries(decode_file(path, _File[_Operation])):
        plain, _, group = name.partition("@")
        with _named(path, name):
            uses = [_link_use(link, use) for link, use in operation.links.items()]
            collective = Collective(
                name=plain,
                kind=kind,
                group=group or None,
                step=step,
                start_ns=operation.start(),
                elapsed_ns=operation.part("Elapse"),
                transit_ns=operation.part("Transit"),
                wait_ns=operation.part("Wait"),
                idle_ns=operation.part("Idle"),
                links=tuple(use for use in uses if use.size_bytes or use.transit_ns),
            )
        collectives.append(collective)
    return tuple(collectives)


def read_rank_links(path: Path) -> tuple[RankLink, ...]:
    """Every pair of ranks of communication_matrix.json; a rank's copies to itself are
    link LOCAL.
    """
    links = []
    for step, kind, name, pairs in _entries(decode_file(path, _File[dict[str, _Link]])):
        operation, _, group = name.partition("@")
        for pair, link in pairs.items():
            match = _PAIR.match(pair)
            if match is None:
                continue
            with _named(path, name):
                use = _link_use(link.transport, link)
            rank_link = RankLink(
                operation=operation,
                kind=kind,
                group=group or None,
                step=step,
                source=int(match[1]),
                target=int(match[2]),
                link=use.link,
                size_bytes=use.size_bytes,
                transit_ns=use.transit_ns,
                bandwidth=use.bandwidth,
            )
            links.append(rank_link)
    return tuple(links)


def read_database_steps(path: Path) -> Iterator[tuple[Device, ProfilerStep]]:
    """The steps of analysis.db.

    Huawei's description specifies milliseconds, but the recorded values are
    microseconds: 8903.431 for kernels of the same run that take 8903431 ns (sample
    msinsight-910B-alexnet-2501).
    """
    parts = (
        "computing",
        "communication",
        "communication_not_overlapped",
        "free",
        "preparing",
        "bubble",
    )
    with open_database(path) as database:
        for row in database.rows("StepTraceTime", ("deviceId", "step", *parts)):
            (
                device,
                number,
                computing,
                communication,
                exposed,
                free,
                preparing,
                bubble,
            ) = row
            step = ProfilerStep(
                number=_step(number),
                computing_ns=_time(database, computing, _MICROSECOND),
                communication_ns=_time(database, communication, _MICROSECOND),
                exposed_communication_ns=_time(database, exposed, _MICROSECOND),
                preparing_ns=_time(database, preparing, _MICROSECOND),
                free_ns=_time(database, free, _MICROSECOND),
                bubble_ns=_time(database, bubble, _MICROSECOND),
            )
            yield database.whole(device), step


def read_database_collectives(path: Path) -> tuple[Collective, ...] | None:
    """The operations of analysis.db with their links; None if it has none."""
    operation = ("hccl_op_name", "group_name", "step", "type", "start_timestamp")
    parts = ("elapse_time", "transit_time", "wait_time", "idle_time")
    with open_database(path) as database:
        if not database.has("CommAnalyzerTime"):
            return None
        links = _database_links(database)
        collectives = []
        for row in database.rows("CommAnalyzerTime", (*operation, *parts)):
            name, group, step, kind, start, elapsed, transit, wait, idle = row
            if str(name) == _TOTAL:
                continue
            of_operation = links.get((str(name), str(group), str(step)), {})
            collective = Collective(
                name=str(name),
                kind="p2p" if kind == "p2p" else "collective",
                group=None if group is None else str(group),
                step=_step(step),
                # Stored as a float in the database: some 250 ns off.
                start_ns=_time(database, start, _MICROSECOND),
                elapsed_ns=_time(database, elapsed, _MILLISECOND),
                transit_ns=_time(database, transit, _MILLISECOND),
                wait_ns=_time(database, wait, _MILLISECOND),
                idle_ns=_time(database, idle, _MILLISECOND),
                links=tuple(of_operation.values()),
            )
            collectives.append(collective)
        return tuple(collectives)


def _entries(
    steps: _File[_Entry],
) -> Iterator[tuple[int | None, CollectiveKind, str, _Entry]]:
    for name, kinds in steps.items():
        for kind in _KINDS:
            for operation, entry in kinds.get(kind, {}).items():
                if operation != _TOTAL:
                    yield _step(name), kind, operation, entry


def _step(value: object) -> int | None:
    match = _STEP.match(str(value))
    if match is None:
        return None
    return int(match[1])


def _link_use(link: str, use: _Link) -> LinkUse:
    if not math.isfinite(use.size):
        raise ValueError(Activity("its size is not a number"))
    packets = []
    for size, counted in use.packets.items():
        if isinstance(counted, list) and len(counted) == _COUNT_AND_TIME:
            packets.append(_packets(float(size), *counted))
    return LinkUse(
        link=link,
        size_bytes=round(use.size * _MEGABYTE, 3),
        transit_ns=_duration(use.time) or 0,
        bandwidth=(use.bandwidth or 0.0) * _GIGABYTE or None,
        packets=tuple(packets),
    )


def _packets(megabytes: float, number: float, milliseconds: float) -> Packets:
    counts = 0 <= number < MAX_NS and 0 <= milliseconds < MAX_NS / _MILLISECOND
    if not counts or not math.isfinite(megabytes):
        raise ValueError(Activity("its packet sizes are not numbers"))
    return Packets(
        round(megabytes * _MEGABYTE, 3),
        round(number),
        round(milliseconds * _MILLISECOND),
    )


def _duration(raw: msgspec.Raw | None) -> int | None:
    if not raw or bytes(raw) == b"null":
        return None
    return nanoseconds_of_milliseconds(bytes(raw))


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


def _database_links(
    database: Database,
) -> dict[tuple[str, str, str], dict[str, LinkUse]]:
    """The links of each operation; a row for every size of package repeats the sums of
    its link.
    """
    links: dict[tuple[str, str, str], dict[str, LinkUse]] = defaultdict(dict)
    operation = ("hccl_op_name", "group_name", "step")
    sums = ("transport_type", "transit_size", "transit_time", "bandwidth")
    of_packets = ("package_size", "count", "total_duration")
    number = database.number
    for row in database.rows("CommAnalyzerBandwidth", (*operation, *sums, *of_packets)):
        name, group, step, link, size, time, bandwidth, package, count, duration = row
        megabytes = number(size) or 0.0
        transit = _time(database, time, _MILLISECOND) or 0
        speed = number(bandwidth) or 0.0
        if not megabytes and not transit:
            continue
        of_operation = links[str(name), str(group), str(step)]
        packets: tuple[Packets, ...] = ()
        if str(link) in of_operation:
            packets = of_operation[str(link)].packets
        in_packet = number(package)
        counted = number(count)
        total = number(duration)
        if counted:
            packets = (*packets, _packets(in_packet or 0.0, counted, total or 0.0))
        of_operation[str(link)] = LinkUse(
            link=str(link),
            size_bytes=round(megabytes * _MEGABYTE, 3),
            transit_ns=transit,
            bandwidth=speed * _GIGABYTE or None,
            packets=packets,
        )
    return links


def _time(database: Database, value: object, unit: float) -> int | None:
    number = database.number(value)
    if number is None:
        return None
    if not abs(number) * unit < MAX_NS:
        raise database.wrong(
            Activity(
                "{number!r} is not a time; analyse the profile again", number=number
            )
        )
    return round(number * unit)
