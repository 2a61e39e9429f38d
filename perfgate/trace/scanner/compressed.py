"""Files of trace events as they lie on disk: plain, gzipped, or compressed with zstd, by the end of their names."""

from __future__ import annotations

import gzip
import importlib
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from perfgate.errors import DocumentError

SUFFIXES = (".json", ".json.gz", ".json.zst")
_GZIP = 31  # zlib's manual, inflateInit2: 15 bits of window, and 16 for gzip
_PACKED_BYTES = 256 << 10
# Four bytes of zstd may stand for 128 KiB, so the output is taken in pieces.
_PIECE_BYTES = 4 << 20


def is_json(path: Path) -> bool:
    """Whether a file's name is one of JSON, compressed or not."""
    return path.name.endswith(SUFFIXES)


def bare_name(path: Path) -> str:
    """The name of the file without compression."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


def named(*names: str) -> tuple[str, ...]:
    """The names of JSON files, or patterns of them, and those of the same files compressed."""
    return tuple(f"{name}{suffix.removeprefix('.json')}" for name in names for suffix in SUFFIXES)


def opened(path: Path) -> IO[bytes]:
    """The text of a file. Raises OSError, and DocumentError if it needs a package that is not installed."""
    if path.suffix == ".gz":
        return cast(IO[bytes], (_isal("igzip") or gzip).open(path, "rb"))
    return cast(IO[bytes], _zstd(path).open(path, "rb")) if path.suffix == ".zst" else path.open("rb")


def damage(path: Path) -> tuple[type[Exception], ...]:
    """The exceptions besides OSError from reading a damaged file."""
    with suppress(DocumentError):
        if path.suffix == ".zst":
            return EOFError, _zstd(path).ZstdError
    isal = _isal("isal_zlib")
    return EOFError, zlib.error, gzip.BadGzipFile, *(() if isal is None else (isal.error,))


def readable(path: Path) -> Iterator[bytes]:
    """The text of a compressed file as far as it can be read: it may be cut off at any byte."""
    with path.open("rb") as stream:
        yield from _readable_gzip(stream) if path.suffix == ".gz" else _readable_zstd(stream, _zstd(path))


def gzipped(content: bytes) -> bytes:
    """The same bytes each time: by ISA-L in a seventh of zlib's time, if it is installed, for a twentieth more of them."""
    packer = _isal("igzip") or gzip
    packed: bytes = packer.compress(content, compresslevel=1, mtime=0)
    return packed


def _readable_gzip(stream: IO[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=_GZIP)
    while packed := stream.read(_PACKED_BYTES):
        while packed:
            try:
                yield member.decompress(packed)
            except zlib.error:
                return
            packed = member.unused_data
            if member.eof:
                member = zlib.decompressobj(wbits=_GZIP)


def _readable_zstd(stream: IO[bytes], zstd: Any) -> Iterator[bytes]:
    member, packed = zstd.ZstdDecompressor(), stream.read(_PACKED_BYTES)
    while True:
        try:
            yield member.decompress(packed, _PIECE_BYTES)
        except zstd.ZstdError:
            return
        packed = b""
        if member.eof:
            member, packed = zstd.ZstdDecompressor(), member.unused_data or stream.read(_PACKED_BYTES)
        elif member.needs_input:
            packed = stream.read(_PACKED_BYTES)
        else:
            continue
        if not packed:
            return


def _isal(name: str) -> Any:
    """A module of python-isal, which unpacks gzip in a fraction of zlib's time; None if it is not installed."""
    try:
        return importlib.import_module(f"isal.{name}")
    except ImportError:
        return None


def _zstd(path: Path) -> Any:
    """The module for zstd, which Python has from 3.14 on, if it was built with it."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise DocumentError(
            "{path}: reading zstd takes Python 3.14, or a package: pip install 'perfgate[zstd]'; or unpack it with zstd -d",
            path=path,
        ) from None
    return zstd
