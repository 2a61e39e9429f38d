"""Counters over time of a SQLite export: a device's clock, memory, caches, links and
accelerators.

Tables and units: Huawei, CANN 9.1.0, "Description of .db Data Exported by msprof" and
"ascend_pytorch_profiler_{Rank_ID}.db" (bytes a second, nanoseconds, MHz). A counter is
named as in a timeline, with the slash of MindStudio Insight: ``app/HBM``,
``Accelerator 0/readBwLevel``. The rate of a port (column ``bandwidth`` of NIC and ROCE)
is not read: it is documented in bytes a second, but msprof and Insight divide bits by
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

import numpy as np

from perfgate.trace.model.arithmetic import NO_NUMBER, FloatColumn
from perfgate.trace.model.readings import (
    CORE_CLOCK,
    MEMORY_READ,
    MEMORY_WRITE,
    PCIE_LATENCY,
    Direction,
    Level,
    Link,
    Readings,
    accelerator_level,
    link_traffic,
    lost_packets,
)
from perfgate.trace.readers.ascend.columns import TableColumns
from perfgate.trace.readers.ascend.database import ExportTables, owned
from perfgate.trace.readers.ascend.files import Device
from perfgate.trace.readers.ascend.tables import held_name

_MEGAHERTZ = 1e6
_TIME = "timestampNs"
_PACKETS = "packets"
# Older versions write RoCE; SQLite does not distinguish the two, so a file has one of
# them.
_PORTS: Mapping[str, Link] = {"NIC": "NIC", "ROCE": "RoCE", "RoCE": "RoCE"}
_PORT_RATES: Mapping[Direction, str] = {"sent": "txByteRate", "received": "rxByteRate"}
# Since the device was started.
_PORT_LOSSES = ("rxErrors", "rxDropped", "txErrors", "txDropped")
_HCCS_RATES: Mapping[Direction, str] = {
    "sent": "txThroughput",
    "received": "rxThroughput",
}
# Posted writes, requests to read, and the data that answer them, each the mean since
# the reading before.
_PCIE_RATES: Mapping[Direction, tuple[str, ...]] = {
    "sent": ("txPostAvg", "txNonpostAvg", "txCplAvg"),
    "received": ("rxPostAvg", "rxNonpostAvg", "rxCplAvg"),
}
_PCIE_LATENCY = "txNonpostLatencyAvg"
# NETDEV_STATS has counts since the reading before; the last are packets sent again
# after a timeout.
_NETDEV_RATES: Mapping[Direction, str] = {
    "sent": "nicTxBandwidth",
    "received": "nicRxBandwidth",
}
_NETDEV_LOSSES = ("roceTxErrPkt", "roceRxErrPkt", "roceNewPktRty")
_LEVELS: tuple[Level, ...] = get_args(Level)


class ExportReadings:
    """The counters of an export; if it has one device ``alone``, rows that name none
    are of it.
    """

    def __init__(self, tables: ExportTables, *, alone: bool) -> None:
        self._tables = tables
        self._alone = alone

    def of(self, device: Device) -> dict[str, Readings]:
        """All counters of a device by name; those that were not recorded are left out."""
        readings = dict(self._memory(device))
        # NETDEV_STATS counts all ports together, and only newer versions have it: the
        # counters of ports replace it.
        readings.update(self._network(device))
        readings.update(self._links(device))
        readings.update(self._accelerators(device))
        return readings

    def _memory(self, device: Device) -> Iterator[tuple[str, Readings]]:
        """The clock of the AI core, reads and writes of all memories together, their
        contents, and the cache.
        """
        clock = self._read("AICORE_FREQ", device, reals=("freq",))
        yield from _rate(CORE_CLOCK, clock, clock.real("freq") * _MEGAHERTZ, "Hz")
        memory = self._read(
            "HBM", device, "hbmId", "type", named=("type",), reals=("bandwidth",)
        )
        texts = self._tables.words.texts
        for word, name in (("read", MEMORY_READ), ("write", MEMORY_WRITE)):
            if word in texts:
                own = (memory.wholes("type") == texts.index(word)) & (
                    memory.wholes("hbmId") != NO_NUMBER
                )
                chosen = memory.select(np.flatnonzero(own))
                yield from _sum(name, chosen, chosen.real("bandwidth"), "hbmId", "B/s")
        yield from self._held(device)
        memory = self._read(
            "NPU_MEM", device, "type", named=("type",), reals=("ddr", "hbm")
        )
        yield from self._of_each(
            memory, "type", {"ddr": ("DDR", "B"), "hbm": ("HBM", "B")}, "{word}/{part}"
        )
        cache = self._read(
            "LLC",
            device,
            "llcId",
            "mode",
            named=("mode",),
            reals=("hitRate", "throughput"),
        )
        parts = {"hitRate": ("Hit Rate", "%"), "throughput": ("Throughput", "B/s")}
        for llc, own in _by_number(cache, "llcId"):
            yield from self._of_each(own, "mode", parts, f"LLC {llc} {{word}}/{{part}}")

    def _held(self, device: Device) -> Iterator[tuple[str, Readings]]:
        """The memory that each component of the framework held over time."""
        parts = {"allocated": "totalAllocated", "reserved": "totalReserved"}
        memory = self._read(
            "MEMORY_RECORD",
            device,
            "component",
            named=("component",),
            reals=tuple(parts.values()),
            time="timestamp",
        )
        for place, own in _by_number(memory, "component"):
            component = self._tables.words.texts[place]
            for part, column in parts.items():
                size = own.real(column)
                if size[~np.isnan(size)].any():
                    yield from _rate(
                        held_name(component, part), own, size, "B", time="timestamp"
                    )

    def _links(self, device: Device) -> Iterator[tuple[str, Readings]]:
        """Bytes a second over each kind of link, all ports together, and the packets
        that its ports lost.
        """
        for table, link in _PORTS.items():
            ports = self._read(
                table, device, "funcId", reals=(*_PORT_RATES.values(), *_PORT_LOSSES)
            )
            for direction, column in _PORT_RATES.items():
                yield from _sum(
                    link_traffic(link, direction),
                    ports,
                    ports.real(column),
                    "funcId",
                    "B/s",
                )
            yield from _sum(
                lost_packets(link),
                ports,
                _added(ports, _PORT_LOSSES),
                "funcId",
                _PACKETS,
            )
        between = self._read("HCCS", device, reals=tuple(_HCCS_RATES.values()))
        for direction, column in _HCCS_RATES.items():
            yield from _rate(
                link_traffic("HCCS", direction), between, between.real(column), "B/s"
            )
        host = self._read(
            "PCIE",
            device,
            reals=(*_PCIE_RATES["sent"], *_PCIE_RATES["received"], _PCIE_LATENCY),
        )
        for direction, of_direction in _PCIE_RATES.items():
            yield from _rate(
                link_traffic("PCIe", direction), host, _added(host, of_direction), "B/s"
            )
        yield from _rate(PCIE_LATENCY, host, host.real(_PCIE_LATENCY), "ns")

    def _network(self, device: Device) -> Iterator[tuple[str, Readings]]:
        """The same of NETDEV_STATS, which counts all ports together."""
        card = self._read(
            "NETDEV_STATS", device, reals=(*_NETDEV_RATES.values(), *_NETDEV_LOSSES)
        )
        for direction, column in _NETDEV_RATES.items():
            yield from _rate(
                link_traffic("NIC", direction), card, card.real(column), "B/s"
            )
        for name, packets in _rate(
            lost_packets("RoCE"), card, _added(card, _NETDEV_LOSSES), _PACKETS
        ):
            yield name, Readings(packets.time, np.cumsum(packets.value), packets.unit)

    def _accelerators(self, device: Device) -> Iterator[tuple[str, Readings]]:
        """Levels of bandwidth and concurrent accesses of DVPP and DSA, the accelerators
        other than the AI cores.
        """
        levels = self._read("ACC_PMU", device, "accId", reals=_LEVELS)
        for number, own in _by_number(levels, "accId"):
            for level in _LEVELS:
                yield from _rate(
                    accelerator_level(number, level), own, own.real(level), ""
                )

    def _of_each(
        self,
        columns: TableColumns,
        key: str,
        parts: Mapping[str, tuple[str, str]],
        title: str,
    ) -> Iterator[tuple[str, Readings]]:
        """The readings of each word of a column; ``parts`` are the columns of values,
        with names and units.
        """
        for place, own in _by_number(columns, key):
            for column, (part, unit) in parts.items():
                name = title.format(word=self._tables.words.texts[place], part=part)
                yield from _rate(name, own, own.real(column), unit)

    def _read(
        self,
        table: str,
        device: Device,
        *wholes: str,
        named: tuple[str, ...] = (),
        reals: tuple[str, ...],
        time: str = _TIME,
    ) -> TableColumns:
        """The rows of a device that have a time."""
        columns = self._tables.read(
            table, ("deviceId", time, *wholes), named=named, reals=reals
        )
        columns = owned(columns, device, alone=self._alone)
        return columns.select(np.flatnonzero(columns.wholes(time) != NO_NUMBER))


def _rate(
    name: str,
    columns: TableColumns,
    value: FloatColumn,
    unit: str,
    *,
    time: str = _TIME,
) -> Iterator[tuple[str, Readings]]:
    """The known values of one counter, if there are any."""
    present = ~np.isnan(value)
    if present.any():
        yield name, Readings.of(columns.wholes(time)[present], value[present], unit)


def _sum(
    name: str, columns: TableColumns, value: FloatColumn, source: str, unit: str
) -> Iterator[tuple[str, Readings]]:
    """The sum of several sources of one counter."""
    present = ~np.isnan(value)
    if present.any():
        yield (
            name,
            Readings.summed(
                columns.wholes(_TIME)[present],
                value[present],
                columns.wholes(source)[present],
                unit,
            ),
        )


def _added(columns: TableColumns, names: tuple[str, ...]) -> FloatColumn:
    """The sum of some columns, NaN in a row that lacks one of them."""
    total: FloatColumn = np.sum([columns.real(name) for name in names], axis=0)
    return total


def _by_number(columns: TableColumns, name: str) -> Iterator[tuple[int, TableColumns]]:
    """The rows of each number in a column; rows without one are left out."""
    numbers = columns.wholes(name)
    for number in np.unique(numbers[numbers >= 0]).tolist():
        yield number, columns.select(np.flatnonzero(numbers == number))
