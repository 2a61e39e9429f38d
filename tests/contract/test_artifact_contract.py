"""The artifact store in a folder and in memory; `make test-s3` runs the same against a server of S3."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from perfgate.errors import StoreError, StoreRefusedError
from perfgate.judging.store.artifacts import ArtifactStore
from perfgate.judging.store.objects import ObjectPlace
from tests.contract.artifact_suite import *  # noqa: F403 - the tests themselves
from tests.contract.artifact_suite import Sent
from tests.fakes.artifacts import artifact_set


@pytest.fixture(params=["folder", "file://", "memory://"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    folder = tmp_path / "place" / "kept here"
    return {"folder": str(folder), "file://": f"file://{folder}", "memory://": f"memory://{uuid.uuid4().hex}/perf"}[
        request.param
    ]


class BrokenDisk(LocalFileSystem):
    """A folder on a disk that fails in the middle of a file, by an error or by the end of the process."""

    protocol = "broken"
    failure: BaseException = SystemExit()

    def put_file(self, path1: str, path2: str, callback: Any = None, **options: Any) -> None:
        Path(self._strip_protocol(path2)).write_bytes(Path(path1).read_bytes()[:3])
        raise self.failure

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("broken://"))


class Refusing(MemoryFileSystem):
    """A server that refuses everything."""

    protocol = "refusing"
    failure: Exception = OSError()

    def info(self, *paths: str, **options: Any) -> Any:
        raise self.failure

    put_file = cat_file = ls = info


for _kind in (BrokenDisk, Refusing):
    fsspec.register_implementation(_kind.protocol, _kind, clobber=True)


@pytest.mark.parametrize("failure", [SystemExit("killed"), OSError(errno.ENOSPC, "No space left on device")])
def test_put__ends_in_the_middle__no_file_under_its_name_and_the_next_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    made = artifact_set(tmp_path / "run")
    monkeypatch.setattr(BrokenDisk, "failure", failure)
    with pytest.raises((SystemExit, StoreRefusedError)):
        ArtifactStore(ObjectPlace(f"broken://{tmp_path}/place", {}), "").keep(made, tmp_path / "run", Sent())
    store = ArtifactStore(ObjectPlace(str(tmp_path / "place"), {}), "")
    assert [path.name for path in (tmp_path / "place").rglob("*") if path.is_file()] == []
    assert store.keep(made, tmp_path / "run", Sent()).sent == 2


def test_put__killed_without_a_trace__what_it_left_is_not_listed(tmp_path: Path) -> None:
    place = ObjectPlace(str(tmp_path), {})
    (tmp_path / ".trace.json.gz-0011223344556677.part").write_bytes(b"half")
    assert place.names("") == []


SECRETS = {"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEBY", "HOME": "/root"}


class NoCredentialsError(Exception):
    """Named as botocore names it."""


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (FileNotFoundError("The specified bucket does not exist"), StoreError, "create the bucket"),
        (PermissionError("Access Denied for wJalrXUtnFEMI"), StoreError, "AWS_ACCESS_KEY_ID"),
        (NoCredentialsError("Unable to locate credentials"), StoreError, "give this job credentials"),
        (OSError(errno.ENOSPC, "No space left on device"), StoreRefusedError, "perfgate store prune"),
        (OSError("connection reset; token=FwoGZXIvYXdzEBY"), StoreRefusedError, "repeat the command"),
        (RuntimeError("user:pa55word at refusing://user:pa55word@host/x"), StoreRefusedError, "repeat the command"),
    ],
)
def test_refusal__any_error__what_where_and_the_remedy_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, kind: type[StoreError], words: str
) -> None:
    monkeypatch.setattr(Refusing, "failure", failure)
    place = ObjectPlace("refusing://user:pa55word@host/perf", SECRETS)
    with pytest.raises(kind, match=words) as raised:
        place.put("shop/x", tmp_path)
    assert type(raised.value) is kind
    text = f"{raised.value} {raised.value.shown}"
    assert "refusing://***@host/perf/shop/x" in text
    assert not [secret for secret in ("wJalrXUtnFEMI", "FwoGZXIvYXdzEBY", "pa55word") if secret in text]


@pytest.mark.parametrize(
    ("url", "words"),
    [("nonsense://x", "Protocol not known: nonsense"), ("oss://bucket/x", "pip install ossfs")],
)
def test_place__protocol_unknown_or_without_its_package__the_remedy(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        ObjectPlace(url, {}).size("x")
