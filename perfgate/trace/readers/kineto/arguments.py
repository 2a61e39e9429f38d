"""The arguments of Kineto's events that are read."""

from __future__ import annotations

from perfgate.trace.model.readings import MEMORY_ALLOCATED, MEMORY_RESERVED
from perfgate.trace.scanner.library import COUNTER_ARGUMENTS

CORRELATION = "correlation"
DEVICE = "device"
STREAM = "stream"
SHAPES = "Input Dims"
REQUEST = "request_id"
TYPE = "type"
# The current key, and the key of 2021.
EXTERNAL, FORMER_EXTERNAL = "External id", "external id"
# torch numbers all events of the host in a recording from 0 on (torch/csrc/profiler/collection.cpp).
EVENT_INDEX = "Ev Idx"
# torch's arguments for a kernel of a collective (torch/csrc/distributed/c10d/ParamCommsUtils.hpp).
GROUP, GROUP_RANKS, GROUP_SIZE = (
    "Process Group Name",
    "Process Group Ranks",
    "Group size",
)
OPERATION, DTYPE, ELEMENTS = "Collective name", "dtype", "In msg nelems"
# The arguments of an allocation: the memory that the allocator of a device had handed out and held after it. Device type 0 is
# the host (c10/core/DeviceType.h).
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
