from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfgate.conductor.code.reads import watch_reads

NAMES = ("mapped", "opened", "by_another", "linked", "untouched")
OPEN_THREE_WAYS = """
import mmap, os
with open("mapped", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
    memory[0]
os.read(os.open("opened", os.O_RDONLY), 1)
open("link").read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("linked")
    time.sleep(0.05)  # the kernel's clock of files ticks
    return tmp_path


def test_watch_reads__python_a_mapping_and_another_program__each_shows(folder: Path) -> None:
    files_read = watch_reads(folder, [*NAMES, "link", "absent"])
    if files_read is None:
        pytest.skip("this file system keeps no access times")
    subprocess.run([sys.executable, "-c", OPEN_THREE_WAYS], cwd=folder, check=True)
    subprocess.run(["cat", "by_another"], cwd=folder, check=True, capture_output=True)
    assert files_read() == ["by_another", "link", "linked", "mapped", "opened"]


def test_watch_reads__read_just_before__only_what_is_read_again(folder: Path) -> None:
    for name in ("opened", "untouched"):
        (folder / name).read_text()
    before = (folder / "opened").stat()
    files_read = watch_reads(folder, NAMES)
    if files_read is None:
        pytest.skip("this file system keeps no access times")
    after = (folder / "opened").stat()
    assert (after.st_atime_ns, after.st_mtime_ns) == (before.st_atime_ns, before.st_mtime_ns)
    time.sleep(0.05)
    (folder / "opened").read_text()
    assert files_read() == ["opened"]


def test_watch_reads__last_read_long_ago__another_read_shows(folder: Path) -> None:
    old = time.time() - 90_000
    os.utime(folder / "opened", (old, old))
    files_read = watch_reads(folder, NAMES)
    if files_read is None:
        pytest.skip("this file system keeps no access times")
    assert files_read() == []
    (folder / "opened").read_text()
    assert files_read() == ["opened"]


def test_watch_reads__submodule__counts_as_read_if_it_is_filled(folder: Path) -> None:
    """git lists a submodule as one name; what is read below it does not show there."""
    for name in ("filled", "empty"):
        (folder / name).mkdir()
    (folder / "filled" / "weights").write_text("1")
    files_read = watch_reads(folder, [*NAMES, "filled", "empty"])
    if files_read is None:
        pytest.skip("this file system keeps no access times")
    (folder / "filled" / "weights").read_text()
    assert files_read() == ["filled"]


def test_watch_reads__folder_that_nothing_can_be_written_to__is_not_known(tmp_path: Path) -> None:
    assert watch_reads(tmp_path / "absent", []) is None
