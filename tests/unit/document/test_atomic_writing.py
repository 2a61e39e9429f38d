import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.document.files import write_atomically, write_text_atomically
from perfgate.errors import PerfgateError

WRITE_UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
from perfgate.document.files import write_atomically
from perfgate.errors import PerfgateError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomically(Path(sys.argv[1]), b"x" * 5000)
except PerfgateError as error:
    print(error)
"""

WRITE_FOR_EVER = """
import sys
from pathlib import Path
from perfgate.document.files import write_atomically
number = 0
while True:
    number += 1
    write_atomically(Path(sys.argv[1]), str(number % 10).encode() * 300_000)
    print(number, flush=True)
"""


def test_write_atomically__new_file__has_the_bytes_and_the_usual_mode(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        write_atomically(tmp_path / "a", b"text")
    finally:
        os.umask(umask)
    assert (tmp_path / "a").read_bytes() == b"text"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_write_atomically__link__the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_write_atomically__file_too_large_for_its_place__clear_error_old_file_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", WRITE_UNDER_A_LIMIT, str(tmp_path / "a")], capture_output=True, text=True, check=True
    )
    assert (
        done.stdout == f"{tmp_path}/a cannot be written: File too large; free space there, or choose another folder\n"
    )
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_write_atomically__disk_full__clear_error_nothing_left(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    try:
        with pytest.raises(PerfgateError, match="No space left on device; free space there, or choose another folder"):
            write_atomically(tmp_path / "a", b"x" * 1_000_000)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_write_atomically__no_such_folder__says_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(PerfgateError, match="No such file or directory; make its folder first"):
        write_atomically(tmp_path / "no" / "a", b"")


@pytest.mark.parametrize("target", ["/dev/null", "/dev/full", "/"])
def test_write_atomically__device_or_folder__refused_and_untouched(target: str) -> None:
    before = Path(target).stat().st_mode
    with pytest.raises(PerfgateError, match="not a regular file; choose another path"):
        write_atomically(Path(target), b"x")
    assert Path(target).stat().st_mode == before


def test_write_atomically__path_with_nul__refused() -> None:
    with pytest.raises(PerfgateError, match="choose another path"):
        write_atomically(Path("a\0b"), b"x")


def test_write_atomically__killed_at_any_moment__readers_see_a_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    for lines in (1, 3, 6):
        with subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(target)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                writer.stdout.readline()
                data = target.read_bytes()
                assert len(data) == 300_000
                assert len(set(data)) == 1
            writer.send_signal(signal.SIGKILL)
        data = target.read_bytes()
        assert len(data) == 300_000
        assert len(set(data)) == 1


def test_write_text_atomically__lone_surrogate__written_as_a_question_mark(tmp_path: Path) -> None:
    write_text_atomically(tmp_path / "a", "a\udcffb")
    assert (tmp_path / "a").read_bytes() == b"a?b"
