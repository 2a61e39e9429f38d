from __future__ import annotations

from pathlib import Path

from perfgate.conductor.workers.cleanup import log_tail, one_line, read_log
from perfgate.system.logs import MAX_LOG_BYTES, bound_log


def test_bound_log__grown_over_the_bound__beginning_and_end_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"x" * (40 * 1024**2) + b"\nlast\n")
    with log.open("ab") as writer:
        bound_log(log)
        writer.write(b"after\n")
    data = log.read_bytes()
    assert len(data) < 3 * 1024**2
    assert data.startswith(b"first\n")
    assert b"the log grew over 32 MiB" in data
    assert data.endswith(b"\nlast\nafter\n")


def test_bound_log__within_the_bound__untouched(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"few words\n")
    bound_log(log)
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
