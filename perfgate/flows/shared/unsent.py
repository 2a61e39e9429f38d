"""Runs of main that a service could not take: they wait on this machine and are sent
later.

A run of main costs minutes of a device. If the service is down when it is recorded, the
document is kept in the user's state folder. The next `perfgate baseline record` of the
project sends it, or `perfgate store push`. Each file is signed with the token of the
service: code that was measured here has no token, so it cannot plant a run of main.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfgate.document.files import (
    canonical_bytes,
    content_sha256,
    parse_run,
    write_atomically,
)
from perfgate.document.run import RunDocument
from perfgate.errors import DocumentError, SessionKeptError, UnfitRunError
from perfgate.judging.store.backends.service import service_token
from perfgate.judging.store.runs import record_run
from perfgate.judging.store.store import SERVICE_SCHEMES, Store

_SUFFIX = ".run"
_SIGNATURE_LENGTH = hashlib.sha256().digest_size * 2
_REFUSED = ".refused"


@dataclass(frozen=True)
class PushedRuns:
    """The waiting runs that were sent, and the files of the others with the reason why
    they cannot be.
    """

    sent: tuple[str, ...] = ()
    refused: tuple[tuple[Path, str], ...] = ()


NONE_WAITED = PushedRuns()


class UnsentRuns:
    """The waiting runs of one project for one service."""

    def __init__(self, folder: Path, token: str) -> None:
        self._folder = folder
        self._token = token.encode()

    def add(self, run: RunDocument) -> Path:
        """Keep a run. Raises OSError or PerfgateError if the file cannot be written."""
        data = canonical_bytes(run, name="the run")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / f"{content_sha256(run)}{_SUFFIX}"
        write_atomically(path, self._signature(data) + data)
        return path

    def push(self, store: Store) -> PushedRuns:
        """Send all runs, the oldest first, and forget each that is stored.

        Raises StoreError if the service takes none.

        A file that is gone was sent by another job of this machine.
        """
        sent: list[str] = []
        refused: list[tuple[Path, str]] = []
        written: dict[Path, int] = {}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):
                written[path] = path.stat().st_mtime_ns
        for path in sorted(written, key=written.__getitem__):
            try:
                content = path.read_bytes()
                signature = content[:_SIGNATURE_LENGTH]
                data = content[_SIGNATURE_LENGTH:]
                if not hmac.compare_digest(signature, self._signature(data)):
                    raise DocumentError(
                        "{path} was not written with the present token of the service; if the token was renewed, check the "
                        "file and record its document with `perfgate baseline record --run FILE`",
                        path=path,
                    )
                run = parse_run(data, name=str(path))
                # Its uncommitted changes were accepted when it was recorded.
                sent.append(record_run(store, run, allow_dirty=True))
            except FileNotFoundError:
                continue
            except (DocumentError, SessionKeptError, UnfitRunError) as error:
                with suppress(FileNotFoundError):
                    refused.append(
                        (path.rename(path.with_suffix(_REFUSED)), str(error))
                    )
                continue
            path.unlink(missing_ok=True)
        return PushedRuns(tuple(sent), tuple(refused))

    def _signature(self, data: bytes) -> bytes:
        return hmac.new(self._token, data, hashlib.sha256).hexdigest().encode()


def unsent_runs(
    location: str, project: str, environ: Mapping[str, str]
) -> UnsentRuns | None:
    """Where runs of a project wait for a service; None for another store, without a
    token, or without a home.
    """
    token = service_token(environ)
    if token is None or not location.startswith(SERVICE_SCHEMES):
        return None
    # XDG Base Directory Specification 0.8, which ignores a relative XDG_STATE_HOME.
    state = Path(environ.get("XDG_STATE_HOME", ""))
    home = environ.get("HOME")
    if not state.is_absolute():
        if not home:
            return None
        state = Path(home) / ".local" / "state"
    place = hashlib.sha256(f"{location}\n{project}".encode()).hexdigest()[:16]
    return UnsentRuns(state / "perfgate" / "unsent" / place, token)
