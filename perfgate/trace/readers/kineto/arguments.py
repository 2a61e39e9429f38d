"""The arguments of Kineto's events that are read, and the collectives that they name."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from perfgate.trace.model.arithmetic import IntColumn, Positions
from perfgate.trace.model.events import EventTable
from perfgate.trace.model.readings import MEMORY_ALLOCATED, MEMORY_RESERVED
from perfgate.trace.model.recording import CollectiveKernel
from perfgate.trace.scanner.chrome_events import UNNAMED
from perfgate.trace.scanner.library import COUNTER_ARGUMENTS
from perfgate.trace.scanner.scanned import NO_NUMBER, ScannedEvents

CORRELATION = "correlation"
DEVICE = "device"
STREAM = "stream"
SHAPES = "Input Dims"
REQUEST = "request_id"
TYPE = "type"
# The current key, and the key of 2021.
EXTERNAL, FORMER_EXTERNAL = "External id", "external id"
# torch numbers all events of the host in a recording from 0 on
# (torch/csrc/profiler/collection.cpp).
EVENT_INDEX = "Ev Idx"
# torch's arguments for a kernel of a collective
# (torch/csrc/distributed/c10d/ParamCommsUtils.hpp).
GROUP, GROUP_RANKS, GROUP_SIZE = (
    "Process Group Name",
    "Process Group Ranks",
    "Group size",
)
OPERATION, DTYPE, ELEMENTS = "Collective name", "dtype", "In msg nelems"
# The arguments of an allocation: the memory that the allocator of a device had handed
# out and held after it. Device type 0 is the host (c10/core/DeviceType.h).
DEVICE_TYPE, DEVICE_ID = "Device Type", "Device Id"
HELD = {MEMORY_ALLOCATED: "Total Allocated", MEMORY_RESERVED: "Total Reserved"}

NUMBERS = (
    *(
        CORRELATION,
        EXTERNAL,
        FORMER_EXTERNAL,
        EVENT_INDEX,
        GROUP_SIZE,
        ELEMENTS,
        DEVICE_TYPE,
        DEVICE_ID,
    ),
    *HELD.values(),
)
TEXTS = (
    DEVICE,
    STREAM,
    SHAPES,
    REQUEST,
    TYPE,
    GROUP,
    GROUP_RANKS,
    OPERATION,
    DTYPE,
    COUNTER_ARGUMENTS,
)


# Bytes per element by c10::ScalarType's names (c10/core/ScalarType.h).
_BYTES = {
    **dict.fromkeys(
        ("byte", "char", "bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1
    ),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "complexfloat"), 8),
}

KernelsByDevice = dict[int | None, tuple[CollectiveKernel, ...]]


def collective_kernels(
    events: EventTable, spans: ScannedEvents, devices: IntColumn
) -> KernelsByDevice:
    """The collectives by device, None for an unnamed one; no entry for a device if its
    kernels name no group.
    """
    described = np.zeros(len(events), dtype=bool)
    described[spans.arguments[GROUP].rows] = True
    rows = np.flatnonzero(described & events.is_kind("comm"))
    if not rows.size:
        return {}
    arguments = _Arguments(spans, rows)
    by_device: dict[int | None, list[CollectiveKernel]] = defaultdict(list)
    for place, row in enumerate(rows.tolist()):
        device = int(devices[row])
        kernel = CollectiveKernel(
            name=events.names[events.name[row]],
            operation=arguments.text(OPERATION, place),
            group=arguments.text(GROUP, place),
            ranks=_rank_list(arguments.text(GROUP_RANKS, place)),
            size=arguments.number(GROUP_SIZE, place),
            start_ns=int(events.start[row]),
            elapsed_ns=int(events.duration[row]),
            sent=arguments.sent(place),
        )
        by_device[None if device == UNNAMED else device].append(kernel)
    return {device: tuple(kernels) for device, kernels in by_device.items()}


class _Arguments:
    """The arguments of the spans at some rows, by their places among these."""

    def __init__(self, spans: ScannedEvents, rows: Positions) -> None:
        self._word = spans.of.word
        keys = (GROUP, GROUP_RANKS, GROUP_SIZE, OPERATION, DTYPE, ELEMENTS)
        # Few spans of a file are collectives.
        place = np.full(len(spans), NO_NUMBER, dtype=np.int32)
        place[rows] = np.arange(rows.size, dtype=np.int32)
        is_chosen = place != NO_NUMBER
        self._columns = {}
        for key in keys:
            of_rows = spans.arguments[key].select(is_chosen, place)
            self._columns[key] = of_rows.dense(rows.size)

    def text(self, key: str, place: int) -> str:
        return self._word(int(self._columns[key][place]))

    def number(self, key: str, place: int) -> int | None:
        number = int(self._columns[key][place])
        return None if number < 0 else number

    def sent(self, place: int) -> int | None:
        """The bytes that the rank put in."""
        width = _BYTES.get(self.text(DTYPE, place).lower())
        elements = self.number(ELEMENTS, place)
        if width is None or elements is None:
            return None
        return width * elements


def _rank_list(text: str) -> tuple[int, ...]:
    """The ranks in ``[0, 1]``; empty for a long list, because torch truncates it."""
    try:
        return tuple(msgspec.json.decode(text, type=list[int]))
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return ()
