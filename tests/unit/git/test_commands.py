from __future__ import annotations

import socket
from pathlib import Path

import pytest

from perfgate.errors import RepositoryError
from perfgate.git import commands as git
from perfgate.git.commands import run_git


def test_run_git__a_server_that_never_answers__ended_and_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/perfgate"
        with pytest.raises(RepositoryError, match=r"^git gave no answer in 1 s$"):
            run_git(tmp_path, ["ls-remote", address], {}, limit_seconds=0.6)


def test_run_git__slower_to_read_than_we_look__gets_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "TICK_SECONDS", 0.001)
    done = run_git(tmp_path, ["hash-object", "--stdin"], {}, feed=b"x" * 30_000_000, limit_seconds=20)
    assert done.data == b"676ae57b2eec067e51dd14112845c5afd48f7331\n"


def test_run_git__ends_before_it_has_read_all__its_own_words(tmp_path: Path) -> None:
    done = run_git(tmp_path, ["hash-object", "--nonsense"], {}, feed=b"x" * 1_000_000)
    assert done.code == 129
    assert "unknown option" in done.errors
