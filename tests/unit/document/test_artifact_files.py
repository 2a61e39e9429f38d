"""The files that a document lists, out of a folder or zip whose maker is not trusted."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from perfgate.document import kept
from perfgate.document.kept import copy_listed
from perfgate.document.run import Artifact
from perfgate.errors import DocumentError

DATA = b"a trace" * 100
PATH = "head/trace-encoder-short.json.gz"
LISTED = Artifact(
    name="trace", kind="trace", path=PATH, bytes=len(DATA), sha256=hashlib.sha256(DATA).hexdigest(), workload=None
)


def listed(**changes: object) -> Artifact:
    return msgspec.structs.replace(LISTED, **changes)


def folder(root: Path, data: bytes = DATA) -> Path:
    file = root / PATH
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    return root


def zipped(*names: str, data: bytes = DATA) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return packed.getvalue()


def copied(source: Path | bytes, target: Path, *files: Artifact) -> tuple[list[Artifact], list[str]]:
    return copy_listed(source, files or (LISTED,), target)


@pytest.mark.parametrize("prefix", ["", "perfgate-out/"])
def test_copy_listed__in_a_zip__with_the_folder_around_it_or_without(tmp_path: Path, prefix: str) -> None:
    assert copied(zipped(prefix + PATH), tmp_path) == ([LISTED], [])
    assert (tmp_path / PATH).read_bytes() == DATA


def test_copy_listed__in_a_folder_and_in_a_zip_on_disk__copied(tmp_path: Path) -> None:
    assert copied(folder(tmp_path / "a"), tmp_path / "b") == ([LISTED], [])
    (tmp_path / "c.zip").write_bytes(zipped(PATH))
    assert copied(tmp_path / "c.zip", tmp_path / "d") == ([LISTED], [])
    assert (tmp_path / "b" / PATH).read_bytes() == (tmp_path / "d" / PATH).read_bytes() == DATA


@pytest.mark.parametrize("data", [DATA[:-1], DATA + b"more", b"x" * len(DATA)], ids=["shorter", "longer", "other"])
def test_copy_listed__other_bytes_than_listed__left_out_and_none_of_it_stays(tmp_path: Path, data: bytes) -> None:
    for number, source in enumerate((folder(tmp_path / "folder", data), zipped(PATH, data=data))):
        target = tmp_path / f"target-{number}"
        assert copied(source, target) == ([], [f"{PATH} is not the file that its document lists"])
        assert not (target / PATH).exists()


def _link(file: Path) -> None:
    file.rename(file.with_name("real"))
    file.symlink_to("real")


def _linked_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("real"))
    file.parent.symlink_to("real")


def _hard_link(file: Path) -> None:
    file.with_name("other").hardlink_to(file)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("plant", [_link, _linked_folder, _hard_link, _pipe, _directory, Path.unlink])
def test_copy_listed__planted_in_the_folder__left_out_with_the_reason(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    plant(folder(tmp_path / "source") / PATH)
    files, left_out = copied(tmp_path / "source", tmp_path / "target")
    assert files == []
    assert PATH in left_out[0]


@pytest.mark.parametrize(
    "path", ["../up", "/etc/passwd", "a//b", "head/.git", "a b", "ä", "", "x" * 300, "a/../b", "a\nb"]
)
def test_copy_listed__path_that_leads_elsewhere__left_out(tmp_path: Path, path: str) -> None:
    for source in (folder(tmp_path / "source"), zipped(path or "empty")):
        files, left_out = copied(source, tmp_path / "target", listed(path=path))
        assert (files, len(left_out)) == ([], 1)


def test_copy_listed__same_path_twice__copied_once(tmp_path: Path) -> None:
    files, left_out = copied(folder(tmp_path / "a"), tmp_path / "b", LISTED, LISTED)
    assert (files, len(left_out)) == ([LISTED], 1)
    assert (tmp_path / "b" / PATH).read_bytes() == DATA


def test_copy_listed__more_than_is_kept_of_a_run__the_rest_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MAX_KEPT_BYTES", len(DATA))
    second = listed(path="base/trace.json.gz")
    source = folder(tmp_path / "a")
    (source / "base").mkdir()
    (source / "base" / "trace.json.gz").write_bytes(DATA)
    files, left_out = copied(source, tmp_path / "b", LISTED, second, listed(path="x", bytes=-1))
    assert files == [LISTED]
    assert [f"at most {len(DATA)}" in why or "beyond what is kept" in why for why in left_out] == [True, True]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"not a zip", "cannot be read"),
        (zipped(*(f"f{number}" for number in range(257)), data=b""), "more than 256 entries"),
        (Path("nothing there"), "nothing there cannot be read"),
    ],
    ids=["not a zip", "many", "missing"],
)
def test_copy_listed__artifact_that_cannot_be_read__refused(tmp_path: Path, source: Path | bytes, words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        copied(source, tmp_path)
