"""Files of trace events as they lie on disk: plain, gzipped, or compressed with zstd,
by the end of their names.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, cast

from perfgate.document.isal import isal_module
from perfgate.errors import DocumentError

Compression = Literal["gzip", "zstd"]
SUFFIXES = (".json", ".json.gz", ".json.zst")
_GZIP = 31  # zlib's manual, inflateInit2: 15 bits of window, and 16 for gzip
_PACKED_BYTES = 256 << 10
# The messages of zlib at the end of a member, and the bytes of it that follow the one
# at which zlib says so.
_CHECKS = {"incorrect data check": 4, "incorrect length check": 0}
_CHECKS_BYTES = 8
# RFC 1952, 2.3.1, and RFC 8878, 3.1.1.
_MAGIC: dict[Compression, bytes] = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_BY_SUFFIX: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
_MOST_MAGIC = 4
_LOOK_BYTES = 64
# Four bytes of zstd may stand for 128 KiB, so the output is taken in pieces.
_PIECE_BYTES = 4 << 20
_MOST_FOLDERS = 10  # named in an error


def is_json(path: Path) -> bool:
    """Whether a file is JSON by its name or, for a file of another name, by its
    content, compressed or not.
    """
    return path.name.endswith(SUFFIXES) or _begins_like_json(path)


def is_compressed(path: Path) -> bool:
    return compression(path) is not None


def compression(path: Path) -> Compression | None:
    """How a file is compressed by its first bytes, whatever its name; by its name if it
    cannot be read.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_MOST_MAGIC)
    except OSError:
        head = b""
    for kind, magic in _MAGIC.items():
        if head.startswith(magic):
            return kind
    # Some downloads are unpacked already, although the name says otherwise.
    if head.lstrip()[:1] in (b"{", b"["):
        return None
    return _BY_SUFFIX.get(path.suffix)


def bare_name(path: Path) -> str:
    """The name of the file without compression."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


def named(*names: str) -> tuple[str, ...]:
    """The names of JSON files, or patterns of them, and the names of the same files
    compressed.
    """
    every = []
    for name in names:
        every += [name + suffix.removeprefix(".json") for suffix in SUFFIXES]
    return tuple(every)


def files_named(folder: Path, patterns: Iterable[str], *, below: bool) -> list[Path]:
    """The files in a folder, or anywhere ``below`` it, with a name that one of the
    patterns matches.
    """
    search = folder.rglob if below else folder.glob
    files: set[Path] = set()
    for pattern in patterns:
        files.update(file for file in search(pattern) if file.is_file())
    return sorted(files)


def refuse_several_folders(path: Path, files: Iterable[Path]) -> None:
    """Raise DocumentError if files below a path lie in several folders."""
    folders = sorted({str(file.parent.relative_to(path)) for file in files})
    if len(folders) > 1:
        raise DocumentError(
            "{path}: several folders below it have recordings: {folders}; name one of them",
            path=path,
            folders=", ".join(folders[:_MOST_FOLDERS]),
        )


def opened(path: Path) -> IO[bytes]:
    """The text of a file. Raises OSError, and DocumentError if it needs a package that
    is not installed.
    """
    kind = compression(path)
    if kind == "gzip":
        return cast(IO[bytes], (isal_module("igzip") or gzip).open(path, "rb"))
    if kind == "zstd":
        return cast(IO[bytes], _zstd(path).open(path, "rb"))
    return path.open("rb")


def damage(path: Path) -> tuple[type[Exception], ...]:
    """The exceptions besides OSError from reading a damaged file."""
    with suppress(DocumentError):
        if compression(path) == "zstd":
            return EOFError, _zstd(path).ZstdError
    errors = EOFError, zlib.error, gzip.BadGzipFile
    isal = isal_module("isal_zlib")
    return errors if isal is None else (*errors, isal.error)


def unreadable(path: Path) -> tuple[type[Exception], ...]:
    """All exceptions from opening and reading a file."""
    return (DocumentError, OSError, *damage(path))


class ReadableText:
    """The text of a compressed file as far as it can be read, block by block.

    ``fault`` is known at the end: the file is ``cut`` off or damaged at some byte, or
    only its ``checksum`` is wrong, or ``more`` follows its end, which is not compressed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fault: Literal["cut", "checksum", "more"] | None = None

    def __iter__(self) -> Iterator[bytes]:
        unpack = self._gzip if compression(self._path) == "gzip" else self._zstd
        with self._path.open("rb") as stream:
            yield from unpack(stream)

    def _gzip(self, stream: IO[bytes]) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=_GZIP)
        is_new = True
        while packed := stream.read(_PACKED_BYTES):
            while packed:
                before = member.copy()
                try:
                    text = member.decompress(packed)
                    packed = member.unused_data
                    is_new = member.eof
                except zlib.error:
                    text, packed = self._bytewise(
                        before, packed + stream.read(_CHECKS_BYTES)
                    )
                    is_new = True
                yield text
                if self.fault == "cut":
                    return
                if is_new:
                    member = zlib.decompressobj(wbits=_GZIP)
                    packed = packed.lstrip(b"\0")  # gzip(1) allows padding too
                    if packed and not _MAGIC["gzip"].startswith(packed[:2]):
                        self.fault = self.fault or "more"
                        return
        if not is_new:
            self.fault = "cut"

    def _bytewise(self, member: Any, packed: bytes) -> tuple[bytes, bytes]:
        """The text before the damage, byte by byte, because zlib returns no data of a
        damaged block; and what follows a check.

        zlib compares the checksum and the length behind the last byte of a member, so
        the next member may be intact.
        """
        text = bytearray()
        for place in range(len(packed)):
            try:
                text += member.decompress(packed[place : place + 1])
            except zlib.error as error:
                for check, behind in _CHECKS.items():
                    if check in str(error):
                        self.fault = "checksum"
                        return bytes(text), packed[place + 1 + behind :]
                break
        self.fault = "cut"
        return bytes(text), b""

    def _zstd(self, stream: IO[bytes]) -> Iterator[bytes]:
        zstd = _zstd(self._path)
        size = 0
        try:
            for text in _unpacked(stream, zstd, whole_until=None):
                size += len(text)
                yield text
        except EOFError:
            self.fault = "cut"
        except zstd.ZstdError as error:
            self.fault = "checksum" if "checksum" in str(error) else "cut"
            # zstd returns no data of a damaged block, and its state cannot be copied:
            # unpack again up to it, then byte by byte.
            whole_until = max(stream.tell() - _PACKED_BYTES, 0)
            stream.seek(0)
            with suppress(zstd.ZstdError, EOFError):
                for text in _unpacked(stream, zstd, whole_until=whole_until):
                    new = text[size:]
                    size = max(size - len(text), 0)
                    if new:
                        yield new


def _unpacked(
    stream: IO[bytes], zstd: Any, *, whole_until: int | None
) -> Iterator[bytes]:
    """The text of all frames; from a byte on, each byte is unpacked alone. Raises
    EOFError if the last frame is cut off.
    """

    def more() -> bytes:
        is_whole = whole_until is None or stream.tell() < whole_until
        return stream.read(_PACKED_BYTES if is_whole else 1)

    member = zstd.ZstdDecompressor()
    packed = more()
    while packed or not member.needs_input:
        yield member.decompress(packed, _PIECE_BYTES)
        packed = b""
        if member.eof:
            packed = member.unused_data or more()
            if not packed:
                return
            member = zstd.ZstdDecompressor()
        elif member.needs_input:
            packed = more()
    raise EOFError


def gzipped(content: bytes) -> bytes:
    """The same bytes each time: by ISA-L in a seventh of zlib's time, if it is
    installed, for a twentieth more of them.
    """
    packer = isal_module("igzip") or gzip
    packed: bytes = packer.compress(content, compresslevel=1, mtime=0)
    return packed


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


def _begins_like_json(path: Path) -> bool:
    """Whether the text of a file begins with a list or an object."""
    try:
        with opened(path) as stream:
            return stream.read(_LOOK_BYTES).lstrip()[:1] in (b"[", b"{")
    except unreadable(path):
        return False
