"""Raw samples inside a JSON document: unsigned integers, byte-shuffled, zlib, base64; about 4 bytes a sample.

Shuffling stores all lowest bytes first, then all second bytes, and so on: the high bytes of nearby durations are equal and
compress to nothing (the idea of the HDF5 shuffle filter).
"""

from __future__ import annotations

import base64
import zlib
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.errors import DocumentError

MAX_SAMPLES = 50_000_000


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """An array of unsigned integers. ``unit`` is that of one step of the integer, e.g. ``ns``."""

    unit: str
    count: int
    width: Literal[4, 8]
    data: str


def pack(values: npt.NDArray[np.integer] | list[int], *, unit: str = "ns") -> Packed:
    """Pack non-negative integers; 4 bytes each where the largest fits, else 8."""
    array = np.asarray(values, dtype=np.uint64)
    width: Literal[4, 8] = 8 if array.size and int(array.max()) > 0xFFFFFFFF else 4
    raw = array.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T.tobytes()
    return Packed(unit=unit, count=int(array.size), width=width, data=base64.b64encode(zlib.compress(raw, 6)).decode())


def unpack(packed: Packed) -> npt.NDArray[np.int64]:
    """The integers of a packed array.

    Raises DocumentError when the data is not what its header says (a cut or hostile document); memory stays within the
    announced count, which itself is limited to MAX_SAMPLES.
    """
    if not 0 <= packed.count <= MAX_SAMPLES:
        raise DocumentError(f"packed samples announce {packed.count} values; at most {MAX_SAMPLES} are accepted")
    size = packed.count * packed.width
    try:
        decompressor = zlib.decompressobj()
        raw = decompressor.decompress(base64.b64decode(packed.data, validate=True), size + 1)
    except (ValueError, zlib.error) as error:
        raise DocumentError(f"packed samples cannot be unpacked ({error}); the document is damaged") from error
    if len(raw) != size:
        raise DocumentError(
            f"packed samples hold {len(raw)} bytes where {size} were announced; the document is damaged"
        )
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(packed.width, packed.count)
    values = np.ascontiguousarray(planes.T).view(f"<u{packed.width}").reshape(-1)
    if packed.width == 8 and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise DocumentError("packed samples hold a value above 2^63 - 1; the document is damaged")
    return values.astype(np.int64)
