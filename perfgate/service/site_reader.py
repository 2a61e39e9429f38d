"""Read the content of a project's pages in a separate process, which knows it from
before, and store it for the next start.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import OrderedDict
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

import msgspec

from perfgate.document.columns import SiteColumns
from perfgate.errors import PerfgateError
from perfgate.flows.shared.doors import Quiet
from perfgate.flows.shared.site.read import ChangesRemembered, read_site
from perfgate.judging.store.index import FollowedLog
from perfgate.judging.store.layout import project_key
from perfgate.service.helper_process import begin_helper
from perfgate.service.served_store import StoreAddress
from perfgate.version import __version__

MOST_PROJECTS = 20
# Uploads and pages come first.
_NICENESS = 10


class ReadContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a project's pages at a revision of its log."""

    version: str = __version__
    revision: str
    columns: SiteColumns


class SiteReader:
    """Reads the projects of one store."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._pool: ProcessPoolExecutor | None = None
        self._process: Future[int] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def read(
        self, project: str, revision: str, seconds_since_1970: float
    ) -> ReadContent:
        """The content of a project with runs.

        Raises StoreError or UsageError if it cannot be read.
        """
        pool: ProcessPoolExecutor | None = None
        try:
            with self._lock:
                if self._is_closed:
                    raise PerfgateError("the service ends; open this page again")
                if self._pool is None:
                    self._pool = _pool()
                    self._process = self._pool.submit(os.getpid)
                pool = self._pool
                reading = pool.submit(
                    _read, self._address, project, revision, seconds_since_1970
                )
            return _decode(reading.result())
        except (BrokenProcessPool, CancelledError) as error:
            if self._pool is pool:
                self._pool = None
            raise PerfgateError(
                "the process that makes the pages was killed; it may need more memory"
            ) from error

    def stored(self, project: str) -> ReadContent | None:
        """The content that was read last, perhaps before the start of this service."""
        file = _file(self._address, project)
        with suppress(OSError, msgspec.DecodeError):
            if (
                file is not None
                and (stored := _decode(file.read_bytes())).version == __version__
            ):
                return stored
        return None

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
        # The service would not end before a reading does, which takes long for a large
        # project.
        if self._process is not None and self._process.done():
            with suppress(BrokenProcessPool, CancelledError, ProcessLookupError):
                os.kill(self._process.result(), signal.SIGTERM)


def _pool() -> ProcessPoolExecutor:
    # A child forked from a process with threads may inherit a lock that is never
    # released. A fork server listens at a socket below TMPDIR, and that path may be too
    # long for one.
    return ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin
    )


def _begin() -> None:
    begin_helper()
    os.nice(_NICENESS)


# The projects that this process has read, with the changes that were found in them.
_projects: OrderedDict[tuple[str, str], tuple[FollowedLog, ChangesRemembered]] = (
    OrderedDict()
)


def _read(
    address: StoreAddress, project: str, revision: str, seconds_since_1970: float
) -> bytes:
    key = (address.location, project)
    log, search = (
        _projects.pop(key)
        if key in _projects
        else (FollowedLog(project), ChangesRemembered())
    )
    search.begin()
    content = read_site(
        log.read(address.open()),
        address.root,
        Quiet(),
        seconds_since_1970=seconds_since_1970,
        search=search,
    )
    _projects[key] = (log, search)
    if len(_projects) > MOST_PROJECTS:
        _projects.popitem(last=False)
    read = ReadContent(revision=revision, columns=SiteColumns.of(content))
    data = msgspec.msgpack.encode(read)
    if file := _file(address, project):
        with suppress(OSError):
            _write(file, data)
    return data


def _write(file: Path, data: bytes) -> None:
    """Write a file whole or not at all; after a crash of the machine it is read again
    from the store.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}-{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(file)


def _file(address: StoreAddress, project: str) -> Path | None:
    """The file of a project's content in the cache folder of the user (XDG Base
    Directory Specification 0.8).
    """
    home = address.environ.get("HOME")
    cache = Path(
        address.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    )
    if not cache.is_absolute():
        return None
    store = hashlib.sha256(address.place.encode()).hexdigest()[:16]
    return cache / "perfgate" / store / f"{project_key(project)}.site"


_decoder = msgspec.msgpack.Decoder(ReadContent)


def _decode(data: bytes) -> ReadContent:
    return _decoder.decode(data)
