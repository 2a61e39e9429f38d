"""Raw samples inside a JSON document, and the blocks and pairs that they come from.

Samples are unsigned integers, byte-shuffled, zlib, base64; about 4 bytes a sample. Shuffling stores all lowest bytes first,
then all second bytes, and so on: the high bytes of nearby durations are equal and compress to nothing (the idea of the HDF5
shuffle filter).
"""

from __future__ import annotations

import base64
import zlib
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.document.telemetry import TelemetryReading
from perfgate.errors import DocumentError

MAX_SAMPLES = 50_000_000
# A call of a function, or a gap between two tokens of a server, is a stall if it is longer than so many medians.
STALL_FACTOR = 3.0

# Pairs of base and head, pairs of base and base, and stretches: long turns of base and head, calls as a server makes them.
Arm = Literal["ab", "aa", "stretch"]


class PackedArray(msgspec.Struct, frozen=True, kw_only=True):
    """An array of unsigned integers: nanoseconds, or bytes if its metric counts bytes."""

    count: int
    width: Literal[4, 8]
    data: str


def pack(values: npt.NDArray[np.integer] | list[int]) -> PackedArray:
    """Pack non-negative integers; 4 bytes each if the largest fits, else 8."""
    array = np.asarray(values, dtype=np.uint64)
    width: Literal[4, 8] = 8 if array.size and int(array.max()) > 0xFFFFFFFF else 4
    raw = array.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T.tobytes()
    return PackedArray(count=int(array.size), width=width, data=base64.b64encode(zlib.compress(raw, 6)).decode())


def unpack(packed: PackedArray) -> npt.NDArray[np.int64]:
    """The integers of a packed array.

    Raises DocumentError if the data does not match its header (a truncated or hostile document); memory stays within the
    announced count, which itself is limited to MAX_SAMPLES.
    """
    if not 0 <= packed.count <= MAX_SAMPLES:
        raise DocumentError(
            "packed samples announce {count} values; at most {most} are accepted", count=packed.count, most=MAX_SAMPLES
        )
    size = packed.count * packed.width
    try:
        decompressor = zlib.decompressobj()
        raw = decompressor.decompress(base64.b64decode(packed.data, validate=True), size + 1)
    except (ValueError, zlib.error) as error:
        raise DocumentError(
            "packed samples cannot be unpacked ({error}); the document is damaged", error=error
        ) from error
    if len(raw) != size:
        raise DocumentError(
            "packed samples hold {count} bytes instead of the announced {size}; the document is damaged",
            count=len(raw),
            size=size,
        )
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(packed.width, packed.count)
    values = np.ascontiguousarray(planes.T).view(f"<u{packed.width}").reshape(-1)
    if packed.width == 8 and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise DocumentError("packed samples hold a value above 2^63 - 1; the document is damaged")
    return values.astype(np.int64)


class SampleSet(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of one metric in call order, packed."""

    metric: str
    samples: PackedArray
    labels: dict[str, str] = {}


class StageTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one preprocessing stage in every call, in call order; ``line`` is the start of its function."""

    name: str
    wall: PackedArray
    line: str | None = None


class BlockColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks of one worker for one shape, column by column, in the order they ran.

    ``wall`` and ``cpu`` hold every call of every block, one block after another; ``calls`` is the number of calls per block.
    ``cpu`` is thread CPU time, or the span of device time from before the call to after it, if the device has a clock of its
    own (``cpu_source``). ``host`` is then the time until each call returned, without the wait for the device.

    Observed by the conductor from outside, one entry per block: ``asked_ns`` when it asked and ``seen_ns`` until the reply, by
    its own clock, ``run_delay_ns`` in which the worker was ready to run and another process had the CPU, ``used_ns`` of CPU
    time that the worker and its descendants used, and ``out_of_turn_ns`` that they had used since its last block, while it
    was not their turn for ``waited_ns``; ``conductor_delay_ns`` in which the conductor itself was ready to run without a
    CPU. Reported by the worker for the same time: ``took_ns`` from the request to the reply by its clock, ``took_delay_ns``
    of it in which it was ready to run without a CPU, and the user-space ``instructions``, ``cycles`` and ``cache_misses``
    of all its threads, the unrecorded call of every block included. Reported by the device: ``throttled``,
    ``power_capped``, ``clock_share`` (clock over rated clock) and ``foreign_processes`` on it. A column that is empty, or a
    None in it, was not available.

    Calls of the preprocessing also have ``stages``, with times that add up to ``wall``.
    """

    quad: list[int]
    sequence: list[int]
    calls: list[int]
    start_ns: list[int]
    end_ns: list[int]
    involuntary_switches: list[int]
    minor_faults: list[int]
    wall: PackedArray
    cpu: PackedArray
    cpu_source: Literal["thread_cpu", "device"] = "thread_cpu"
    host: PackedArray | None = None
    seen_ns: list[int] = []
    run_delay_ns: list[int] = []
    used_ns: list[int] = []
    out_of_turn_ns: list[int] = []
    waited_ns: list[int] = []
    asked_ns: list[int] = []
    conductor_delay_ns: list[int] = []
    took_ns: list[int] = []
    took_delay_ns: list[int] = []
    instructions: list[int] = []
    cycles: list[int] = []
    cache_misses: list[int] = []
    throttled: list[bool | None] = []
    power_capped: list[bool | None] = []
    clock_share: list[float | None] = []
    foreign_processes: list[int | None] = []
    stages: list[StageTimes] = []


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """The launches of one kernel of one size: how many in a call, and the nanoseconds that they take in a typical call."""

    name: str
    launch: str = ""
    count: float
    ns: float


class KernelBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """The profiled blocks of one worker for one shape, at most one in each quad; both sides make equally many calls.

    ``busy_ns`` is the sum of the durations of all kernels of a block, copies left out, and ``cycles`` those that the device
    counted for them; empty if it counts none. ``work`` is a hash of the names, launch sizes and order of the kernels of each
    block. ``rows`` are the kernels, the longest first: the last row holds the rest of many.
    """

    quad: list[int]
    calls: list[int]
    busy_ns: list[int]
    cycles: list[int] = []
    work: list[str]
    rows: list[KernelRow] = []


# The setting that counts how often a signal stopped a worker.
STOPPED = "stopped"


class Replicate(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process of a pair. In arm ``aa`` both members of the pair run the base.

    In arm ``stretch`` the process makes hundreds of calls a turn without moving in memory, and collects its garbage inside
    them; ``wall`` leaves out the waits of each call for a CPU. ``pair`` numbers the starts.

    ``round`` counts the jobs that contributed pairs: 0 is the first, each job that added pairs is one more.
    ``operators`` maps shape and operator to the typical self time of the operator in one call, in seconds, and
    OUTSIDE_OPERATORS to the rest of the call; ``subroutines`` maps shape and ``module.NAME`` or ``function.FILE:NAME`` to the
    typical time of those in one call with all that they call, in seconds of the host.
    ``settings`` are those that the worker had after its last block and that must be equal on both sides: of its threads as the
    kernel reports them, of torch and the garbage collector as the worker does.
    ``kernels`` are the profiled blocks of a device, by shape.
    ``preprocess`` holds blocks of the preprocessing alone, by shape; a call of them takes a raw batch made beforehand.
    ``readings`` are the device's sensor values while the blocks ran, by the clock of their ``asked_ns``. ``moved`` is
    whether weights and inputs lay elsewhere in every quad, at addresses drawn from ``layout_seed`` and the quad; None if
    unknown, which is held to the stricter rules. ``stalled_at`` maps shapes to lines of the project, ``file:line``, and how
    often a slow call was sampled at each, after a stretch. ``start_up`` and ``warm_up_calls`` are those of the warm process
    of that number that it was ``forked_from``; None if it loaded and warmed up by itself. On an accelerator the processes of a
    ``start``, which has the number of its first pair, stay loaded for several pairs; None if they are of one pair alone.
    """

    pair: int
    arm: Arm
    member: Literal["first", "second"]
    workload: str
    layout_seed: int
    cpus: list[int]
    start_up: float
    forked_from: int | None = None
    start: int | None = None
    warm_up_calls: int
    steady: bool
    moved: bool | None = None
    shapes: dict[str, BlockColumns]
    preprocess: dict[str, BlockColumns] = {}
    kernels: dict[str, KernelBlocks] = {}
    round: int = 0
    operators: dict[str, dict[str, float]] = {}
    subroutines: dict[str, dict[str, float]] = {}
    settings: dict[str, str] = {}
    stalled_at: dict[str, dict[str, int]] = {}
    readings: list[TelemetryReading] = []

    @property
    def lanes(self) -> list[tuple[str, BlockColumns]]:
        """The blocks of calls and those of the preprocessing, each with their shape."""
        return [*self.shapes.items(), *self.preprocess.items()]
