from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perfgate.system.logs import KEPT_BYTES, MAX_LOG_BYTES, bound_log, cut_log, log_tail, one_line, read_log


def test_bound_log__grown_over_the_bound__space_is_freed_and_no_byte_moves(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"x" * (40 * 1024**2) + b"\nlast\n")
    size = log.stat().st_size
    with log.open("ab") as writer:
        bound_log(log)
        writer.write(b"after\n")
    assert log.stat().st_size == size + len(b"after\n")
    assert log.stat().st_blocks * 512 < 3 * 1024**2
    assert log_tail(log) == "x" * (4000 - len("\nlast\nafter\n")) + "\nlast\nafter"


def test_bound_log__while_it_is_written__no_line_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as output, subprocess.Popen(["seq", "20000000"], stdout=output) as writer:
        while writer.poll() is None:
            bound_log(log)
    cut_log(log)
    lines = log.read_bytes()[-KEPT_BYTES:].split(b"\n")[1:]
    assert lines == [*(b"%d" % number for number in range(20_000_002 - len(lines), 20_000_001)), b""]


def test_cut_log__grown_over_the_bound__beginning_and_end_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"x" * (40 * 1024**2) + b"\nlast\n")
    bound_log(log)
    with log.open("ab") as writer:
        cut_log(log)
        writer.write(b"after\n")
    data = log.read_bytes()
    assert len(data) < 3 * 1024**2
    assert data.startswith(b"first\n")
    assert b"the log grew over 32 MiB" in data
    assert data.endswith(b"\nlast\nafter\n")
    assert b"\0" not in data


@pytest.mark.parametrize("keep", [bound_log, cut_log])
def test_log__within_the_bound__untouched(tmp_path: Path, keep: Callable[[Path], None]) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"few words\n")
    keep(log)
    assert log.read_bytes() == b"few words\n"


def test_read_log__a_file_that_says_to_be_endless__no_more_than_a_log_may_have(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.truncate(1 << 40)
    assert len(read_log(tmp_path / "log")) == MAX_LOG_BYTES


def test_log_tail__long_binary_log__the_end_as_text(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a" * 10_000 + b"\xff\0 the end \n")
    tail = log_tail(log)
    assert tail is not None
    assert tail.endswith("a\ufffd the end")
    assert len(tail) < 4_100


def test_log_tail__nothing_printed__none(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert log_tail(tmp_path / "log") is None
    assert log_tail(tmp_path / "absent") is None


def test_one_line__commands_and_escapes__one_harmless_line() -> None:
    assert one_line("loading\n::error::forged\x1b[2J\u202e") == "loading ::error::forged [2J"
