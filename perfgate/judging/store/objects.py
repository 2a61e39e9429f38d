"""Files below a URL, through fsspec: each is written whole or not at all, read in
ranges, listed and removed.

fsspec brings folders and memory; every other protocol has its own package (s3fs, gcsfs,
adlfs …), which reads the usual settings of its protocol, such as AWS_ACCESS_KEY_ID or
AWS_ENDPOINT_URL. Every error of such a package becomes a StoreError.
"""

from __future__ import annotations

import errno
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from perfgate.errors import PerfgateError, StoreError, StoreRefusedError
from perfgate.judging.store.store import shown_location
from perfgate.locale import Activity

# Object stores show an object once it is complete. Elsewhere a file grows under its
# name, so it gets another one until then.
_OBJECT_STORES = frozenset(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"))
_UNFINISHED = ".part"
_CHUNK = 4 * 1024 * 1024
_LONGEST_REASON = 300
_SECRET_NAME = re.compile(
    r"(?i)(secret|token|password|passwd|credential|account_key|sas)"
)
_SHORTEST_SECRET = 6
_PASSWORD = re.compile(r"//[^/:]*:(.*)@")


class _System(NamedTuple):
    """A file system of fsspec, and the path in it below which everything lies."""

    files: Any
    root: str


class ObjectPlace:
    """A URL of fsspec, opened on first use; ``environ`` gives the secrets to leave out
    of errors.
    """

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self.name = shown_location(url).rstrip("/")
        self._url = url
        self._protocol = "file"
        if "://" in url:
            self._protocol = url.partition("://")[0]
        self._secrets: list[str] = _PASSWORD.findall(url)
        for name, value in environ.items():
            if _SECRET_NAME.search(name):
                self._secrets.append(value)

    @cached_property
    def _system(self) -> _System:
        try:
            from fsspec.core import url_to_fs
        except ModuleNotFoundError as error:
            raise StoreError(
                "artifacts are kept through fsspec, which is not installed; run pip install 'perfgate[artifacts]', or "
                "'perfgate[s3]' for s3://"
            ) from error
        try:
            return _System(*url_to_fs(self._url, skip_instance_cache=True))
        except ImportError as error:
            remedy: str = Activity("its package")
            if isinstance(error.__cause__, ImportError) and error.__cause__.name:
                remedy = error.__cause__.name
            if remedy == "s3fs":
                remedy = "'perfgate[s3]'"
            raise StoreError(
                "{place} needs a package that is not installed ({error}); run pip install {remedy}",
                place=self.name,
                error=error,
                remedy=remedy,
            ) from error
        except ValueError as error:
            raise StoreError(
                "artifacts cannot be kept at {place}: {error}; give a folder, or a URL of fsspec such as s3://BUCKET/PREFIX, "
                "as [artifacts] path in perfgate.toml",
                place=self.name,
                error=self._reason(error),
            ) from error

    def put(self, path: str, source: Path) -> None:
        """Write a file; it appears under its name once it is complete."""
        files, target = self._system.files, self._at(path)
        with self._refusals(path):
            if self._protocol in _OBJECT_STORES:
                files.put_file(str(source), target)
                return
            parent, _, name = target.rpartition("/")
            unfinished = f"{parent}/.{name}-{secrets.token_hex(8)}{_UNFINISHED}"
            files.makedirs(parent, exist_ok=True)
            try:
                files.put_file(str(source), unfinished)
                files.mv(unfinished, target)
            except BaseException:
                if files.exists(unfinished):
                    files.rm_file(unfinished)
                raise

    def write(self, path: str, data: bytes) -> None:
        """Write bytes as ``put`` writes a file."""
        with tempfile.NamedTemporaryFile(
            suffix=Path(path).suffix
        ) as file:  # by the suffix S3 knows the type
            file.write(data)
            file.flush()
            self.put(path, Path(file.name))

    def size(self, path: str) -> int | None:
        """The bytes of a file; None if there is none."""
        with self._refusals(path):
            try:
                info = self._system.files.info(self._at(path))
            except FileNotFoundError:
                return None
        return int(info["size"]) if info["type"] == "file" else None

    def read(self, path: str, *, most: int) -> bytes | None:
        """The first ``most`` bytes of a file; None if there is none."""
        with self._refusals(path):
            try:
                return bytes(
                    self._system.files.cat_file(self._at(path), start=0, end=most)
                )
            except FileNotFoundError:
                return None

    def chunks(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes from ``start`` up to ``end`` in pieces, so that no file has to fit
        into memory.
        """
        for first in range(start, end, _CHUNK):
            with self._refusals(path):
                yield bytes(
                    self._system.files.cat_file(
                        self._at(path), start=first, end=min(first + _CHUNK, end)
                    )
                )

    def names(self, folder: str) -> list[str]:
        """The names right below a folder, sorted; empty if there is none. Raises
        StoreError for a missing bucket.
        """
        with self._refusals(folder):
            try:
                paths = self._system.files.ls(self._at(folder), detail=False)
            except FileNotFoundError:
                bucket = self._system.root.lstrip("/").partition("/")[0]
                if self._protocol in _OBJECT_STORES and not self._system.files.exists(
                    bucket
                ):
                    raise FileNotFoundError(
                        errno.ENOENT, "there is no such bucket", bucket
                    ) from None
                return []
        names = [str(path).rstrip("/").rpartition("/")[2] for path in paths]
        return sorted(name for name in names if not name.endswith(_UNFINISHED))

    def changed_at(self, folder: str) -> datetime | None:
        """The time of the newest file below a folder; None if it holds none."""
        files = self._system.files
        times: list[datetime] = []
        with self._refusals(folder):
            try:
                for path in files.find(self._at(folder)):
                    changed = files.modified(path)
                    times.append(
                        changed
                        if changed.tzinfo
                        else changed.replace(tzinfo=timezone.utc)
                    )
            except FileNotFoundError:
                return None
        return max(times, default=None)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        with self._refusals(path), suppress(FileNotFoundError):
            self._system.files.rm(self._at(path), recursive=True)

    def url(self, path: str) -> str:
        """The URL of a file for people, without secrets."""
        return f"{self.name}/{path}"

    def _at(self, path: str) -> str:
        return f"{self._system.root.rstrip('/')}/{path}"

    @contextmanager
    def _refusals(self, path: str) -> Iterator[None]:
        try:
            self._system.files.invalidate_cache()  # others write there too
            yield
        except PerfgateError:
            raise
        except Exception as error:  # the package of each protocol has its own errors
            raise self._refusal(error, path) from error

    def _refusal(self, error: Exception, path: str) -> StoreError:
        place, why = self.url(path), self._reason(error)
        if isinstance(error, FileNotFoundError):
            return StoreError(
                "{place} cannot be written or read: {why}; create the bucket, or correct [artifacts] path",
                place=place,
                why=why,
            )
        if isinstance(error, PermissionError) or _is_about_credentials(error):
            return StoreError(
                "{place} refuses access: {why}; give this job credentials that may read and write there (of s3:// in "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or correct [artifacts] path",
                place=place,
                why=why,
            )
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreRefusedError(
                "{place} has no space left ({why}); free some with `perfgate store prune`, then repeat the command; "
                "files that arrived are not sent again",
                place=place,
                why=why,
            )
        return StoreRefusedError(
            "{place} cannot be reached, or refuses: {why}; repeat the command when it is back; files that arrived "
            "are not sent again",
            place=place,
            why=why,
        )

    def _reason(self, error: Exception) -> str:
        """The first line of an error, without the secrets of the environment and of the
        address.
        """
        text = (
            shown_location(str(error).replace(self._url, self.name))
            or type(error).__name__
        )
        for secret in self._secrets:
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "***")
        return " ".join(text.split())[:_LONGEST_REASON]


def _is_about_credentials(error: Exception) -> bool:
    """By the names that botocore, google-auth and azure-core give such errors; those
    packages are not ours to import.
    """
    return (
        re.search("Credential|Authentication|TokenRetrieval|SSO", type(error).__name__)
        is not None
    )
