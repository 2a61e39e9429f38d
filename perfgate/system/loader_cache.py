"""The dynamic loader's cache of libraries: which file it loads for a name (ld.so(8),
ldconfig(8)).
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from perfgate.system.stamps import Stamps

LOADER_CACHE = Path("/etc/ld.so.cache")
# glibc, sysdeps/generic/dl-cache.h: struct cache_file_new and file_entry_new. Offsets
# of strings count from its beginning.
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("=20sII20x")
_ENTRY = struct.Struct("=iIIIQ")


def entries_of_loader_cache(file: Path = LOADER_CACHE) -> Stamps:
    """A number for each library in the cache, by its name, that tells which files it is
    loaded from; empty without a cache.
    """
    try:
        data = file.read_bytes()
    except OSError:
        return {}
    begin = data.find(_MAGIC)
    if begin < 0:
        return {".": (zlib.crc32(data),)}
    data = data[begin:]
    files: dict[str, list[bytes]] = {}
    try:
        _, count, _ = _HEADER.unpack_from(data)
        for number in range(count):
            _, name, path, _, capabilities = _ENTRY.unpack_from(
                data, _HEADER.size + number * _ENTRY.size
            )
            text = _text_at(data, name).decode(errors="replace")
            files.setdefault(text, []).append(
                b"%s %d" % (_text_at(data, path), capabilities)
            )
    except (struct.error, ValueError):
        return {".": (zlib.crc32(data),)}
    return {name: (zlib.crc32(b"\0".join(paths)),) for name, paths in files.items()}


def _text_at(data: bytes, offset: int) -> bytes:
    return data[offset : data.index(b"\0", offset)]
