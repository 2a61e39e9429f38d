from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from perfgate.conductor.machine.fitness import (
    judge_git,
    try_everything,
    try_lock,
    try_pinning,
    try_scratch,
    try_worktrees,
)
from tests.wording import text_of


def test_try_everything__this_machine__all_ok_and_nothing_left(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = try_everything(scratch, tmp_path / "lock")
    assert {check.name: check.status for check in found} == {
        "scratch home": "ok", "pinning": "ok", "git": "ok", "worktrees": "ok", "machine lock": "ok",
    }  # fmt: skip
    assert list(scratch.iterdir()) == []


def test_try_pinning__mask__is_as_before() -> None:
    mask = os.sched_getaffinity(0)
    assert try_pinning().status == "ok"
    assert os.sched_getaffinity(0) == mask


def test_try_scratch__folder_that_is_not_there__unfit(tmp_path: Path) -> None:
    found = try_scratch(tmp_path / "gone")
    assert found.status == "unfit"
    assert "No such file or directory" in text_of(found.seen)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("git version 2.39.5", "ok"),
        ("git version 2.31.0", "ok"),
        ("git version 2.30.9", "unfit"),
        ("git version 1.8.3.1", "unfit"),
        ("git version 10.0", "ok"),
        ("gitte", "attention"),
    ],
)
def test_judge_git__version__status(said: str, status: str) -> None:
    assert judge_git(said).status == status


def test_try_worktrees__folder_that_is_not_there__unfit(tmp_path: Path) -> None:
    assert try_worktrees(tmp_path / "gone").status == "unfit"


def test_try_lock__held_by_another__attention_and_who(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("process 77: perfgate check in /models\n")
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = try_lock(lock)
    assert found.status == "attention"
    assert "process 77: perfgate check in /models is measuring" in text_of(found.seen)


def test_try_lock__no_file_can_be_there__unfit(tmp_path: Path) -> None:
    assert try_lock(tmp_path).status == "unfit"
