"""Reading an artifact: what is taken from a folder or a zip, and what is refused before it costs anything."""

from __future__ import annotations

import io
import json
import os
import random
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfgate.document import artifact
from perfgate.document.artifact import BASE, HEAD, read_artifact_run, read_check
from perfgate.document.files import canonical_bytes
from perfgate.errors import DocumentError
from tests.fakes.documents import make_run

DOCUMENTS = {
    BASE: canonical_bytes(make_run("base", pairs=2), name=BASE),
    HEAD: canonical_bytes(make_run("head", pairs=2), name=HEAD),
}
MB = 1024 * 1024
SYMLINK, FIFO = 0o120777 << 16, 0o010644 << 16


def _zip(files: dict[str, bytes], *more: tuple[Any, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, text in [*files.items(), *more]:
            archive.writestr(name, text)
    return data.getvalue()


def _entry(name: str, *, attributes: int = 0) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("x" * len(name))
    entry.filename = name  # unlike the constructor, this cuts nothing off
    entry.external_attr = attributes
    return entry


def _folder(root: Path) -> Path:
    for name, text in DOCUMENTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text)
    return root


def test_read_check__folder_zip_and_bytes__the_same_documents(tmp_path: Path) -> None:
    data = _zip(DOCUMENTS)
    (tmp_path / "artifact.zip").write_bytes(data)
    folder = _folder(tmp_path / "folder")
    documents = read_check(folder)
    assert (documents.base.side, documents.head.side) == ("base", "head")
    assert read_check(tmp_path / "artifact.zip") == documents == read_check(data)


@pytest.mark.parametrize("prefix", ["", "perfgate-out/", "models/encoder/perfgate-out/"])
def test_read_check__documents_below_a_folder_of_the_zip__found(prefix: str) -> None:
    data = _zip({prefix + name: text for name, text in DOCUMENTS.items()}, (prefix + "head/logs/", b""))
    assert read_check(data).head.side == "head"


def test_read_artifact_run__run_of_main__read() -> None:
    assert read_artifact_run(_zip({"perfgate-out/run.json": DOCUMENTS[HEAD]})).project == "demo"


def test_read_check__other_files_beside__are_not_even_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = zipfile.ZipFile.open

    def spy(archive: zipfile.ZipFile, entry: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(entry.filename)
        return original(archive, entry, *arguments, **options)

    data = _zip(DOCUMENTS, ("decision.json", b"{"), ("history.json", b"{"), ("inner.zip", _zip(DOCUMENTS)))
    monkeypatch.setattr(zipfile.ZipFile, "open", spy)
    read_check(data)
    assert opened == [BASE, HEAD]


_NAMES = [
    "../head/run.json",
    "/etc/passwd",
    "a/../../b",
    "a\\b",
    "C:/x",
    "a//b",
    "./a",
    "a\0b",
    "a\nb",
    "x" * 600,
    "a/\u202eb",
]


@pytest.mark.parametrize("name", _NAMES)
def test_read_check__hostile_name_in_the_zip__refused(name: str) -> None:
    with pytest.raises(DocumentError, match="is not a valid file name"):
        read_check(_zip(DOCUMENTS, (_entry(name), b"x")))


@pytest.mark.parametrize("attributes", [SYMLINK, FIFO])
def test_read_check__link_or_pipe_in_the_zip__refused(attributes: int) -> None:
    with pytest.raises(DocumentError, match="a link or a device"):
        read_check(_zip(DOCUMENTS, (_entry("head/link", attributes=attributes), b"/etc/passwd")))


def test_read_check__name_twice__refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = _zip(DOCUMENTS, (HEAD, DOCUMENTS[BASE]))
    with pytest.raises(DocumentError, match="twice"):
        read_check(data)


def test_read_check__two_checks_in_one_zip__refused() -> None:
    with pytest.raises(DocumentError, match=r"2 files head/run\.json"):
        read_check(_zip(DOCUMENTS, ("other/head/run.json", b"{}")))


def test_read_check__bomb__refused_before_it_goes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _zip({**DOCUMENTS, HEAD: b" " * (15 * MB)})
    assert len(data) < 60_000
    with pytest.raises(DocumentError, match="more than 100 times its size"):
        read_check(data)
    monkeypatch.setattr(artifact, "MAX_RATIO", 2000)
    with pytest.raises(DocumentError, match=r"expands to more than 16777216 bytes"):
        read_check(_zip({**DOCUMENTS, HEAD: b" " * (17 * MB)}))


def test_read_check__entry_lies_about_its_size__refused() -> None:
    data = _zip({**DOCUMENTS, HEAD: b" " * (9 * MB)})
    small = data.replace(struct.pack("<I", 9 * MB), struct.pack("<I", 100))
    assert small != data
    with pytest.raises(DocumentError, match="cannot be read"):
        read_check(small)


def test_read_check__announces_terabytes__refused() -> None:
    data = bytearray(_zip(DOCUMENTS, ("big", b"x")))
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = struct.pack("<I", 0xFFFFFFF0)
    with pytest.raises(DocumentError, match="would expand to more than"):
        read_check(bytes(data))


def test_read_check__zip64_without_its_field__refused() -> None:
    data = bytearray(_zip(DOCUMENTS))
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = b"\xff" * 4
    with pytest.raises(DocumentError, match=r"cannot be read|would expand"):
        read_check(bytes(data))


def test_read_check__too_many_entries__refused_before_the_list_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(DocumentError, match="more than 256 entries"):
        read_check(b"PK\x01\x02" * 257)


def test_read_check__encrypted__refused() -> None:
    data = bytearray(_zip(DOCUMENTS))
    central = data.rindex(b"PK\x01\x02")
    data[central + 8] |= 1
    with pytest.raises(DocumentError, match="encrypted"):
        read_check(bytes(data))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_read_check__other_compression__refused(method: int) -> None:
    with pytest.raises(DocumentError, match="deflate"):
        read_check(_zip(DOCUMENTS, method=method))


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"\x1f\x8bgzip", b"<html>404</html>", _zip(DOCUMENTS)[:-30], _zip(DOCUMENTS)[:900]]
)
def test_read_check__no_zip_or_cut_off__refused(data: bytes) -> None:
    with pytest.raises(DocumentError, match="cannot be read"):
        read_check(data)


def test_read_check__zip_inside_the_zip__is_not_json() -> None:
    with pytest.raises(DocumentError, match=r"head/run\.json"):
        read_check(_zip({**DOCUMENTS, HEAD: _zip(DOCUMENTS)}))


def test_read_check__archive_too_large__refused(tmp_path: Path) -> None:
    path = tmp_path / "large.zip"
    with path.open("wb") as file:
        file.truncate(21 * MB)
    with pytest.raises(DocumentError, match="at most 20971520"):
        read_check(path)
    with pytest.raises(DocumentError, match="more than 20971520"):
        read_check(bytes(21 * MB))


@pytest.mark.parametrize("files", [{}, {"readme.md": b"x"}, {BASE: DOCUMENTS[BASE]}])
def test_read_check__no_head__says_where_to_look(files: dict[str, bytes]) -> None:
    with pytest.raises(DocumentError, match=r"no head/run\.json; see the log of the measuring job"):
        read_check(_zip(files))


def _link_file(root: Path) -> None:
    (root / HEAD).rename(root / "elsewhere.json")
    (root / HEAD).symlink_to(root / "elsewhere.json")


def _link_folder(root: Path) -> None:
    (root / "head").rename(root / "elsewhere")
    (root / "head").symlink_to(root / "elsewhere")


def _hard_link(root: Path) -> None:
    os.link(root / HEAD, root / "second-name")


def _pipe(root: Path) -> None:
    (root / HEAD).unlink()
    os.mkfifo(root / HEAD)


def _device(root: Path) -> None:
    (root / HEAD).unlink()
    (root / HEAD).symlink_to("/dev/zero")


def _socket(root: Path) -> None:
    (root / HEAD).unlink()
    here = Path.cwd()
    os.chdir(root / "head")  # a socket's address has 108 characters
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("run.json")
    finally:
        os.chdir(here)


def _directory(root: Path) -> None:
    (root / HEAD).unlink()
    (root / HEAD).mkdir()


def _huge(root: Path) -> None:
    with (root / HEAD).open("r+b") as file:
        file.truncate(17 * MB)


_FOLDERS: list[tuple[Callable[[Path], None], str]] = [
    (_link_file, "symbolic link"),
    (_link_folder, "symbolic link"),
    (_hard_link, "hard link"),
    (_pipe, "not a regular file"),
    (_device, "symbolic link"),
    (_socket, "cannot be read"),
    (_directory, "not a regular file"),
    (_huge, "at most 16777216"),
]


@pytest.mark.parametrize(("plant", "words"), _FOLDERS)
def test_read_check__planted_in_the_folder__refused_without_the_path(
    tmp_path: Path, plant: Callable[[Path], None], words: str
) -> None:
    plant(_folder(tmp_path))
    with pytest.raises(DocumentError, match=words) as caught:
        read_check(tmp_path)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("name", ["missing", "nul\0byte"])
def test_read_check__no_such_path__refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DocumentError):
        read_check(tmp_path / name)


def test_read_check__samples_announce_gigabytes__refused_without_unpacking() -> None:
    run = json.loads(DOCUMENTS[HEAD])
    for replicate in run["pairs"]["replicates"]:
        columns = replicate["shapes"]["long"]
        columns["calls"] = [10_000_000] * len(columns["calls"])
        for name in ("wall", "cpu"):
            columns["times"][name]["count"] = sum(columns["calls"])
    with pytest.raises(DocumentError, match="at most 20000000 are read"):
        read_check(_zip({**DOCUMENTS, HEAD: json.dumps(run).encode()}))


def test_read_check__more_shapes_than_can_be_looked_up__refused() -> None:
    run = json.loads(DOCUMENTS[HEAD])
    run["workloads"][0]["shapes"] = [f"s{number}" for number in range(1_001)]
    with pytest.raises(DocumentError, match=r"head/run\.json lists 1001 shapes; at most 1000 are read"):
        read_check(_zip({**DOCUMENTS, HEAD: json.dumps(run).encode()}))


def test_read_check__any_damage_to_a_zip__is_a_document_error_or_no_harm() -> None:
    whole, rng = _zip(DOCUMENTS), random.Random(20201120)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            # Mostly where the structure is: local headers, the list of entries, the end.
            edges = [rng.randrange(len(data)), rng.randrange(60), len(data) - 1 - rng.randrange(220)]
            data[rng.choice(edges)] = rng.randrange(256)
        if rng.random() < 0.2:
            data = data[: rng.randrange(len(data))]
        assert _outcome(bytes(data)) in (None, DocumentError)


def _outcome(data: bytes) -> type[BaseException] | None:
    try:
        read_check(data)
    except DocumentError:
        return DocumentError
    return None


def test_zlib__ratio_of_a_bomb__is_what_the_limit_was_chosen_against() -> None:
    assert 1000 < 10 * MB / len(zlib.compress(bytes(10 * MB), 9)) < 1033
