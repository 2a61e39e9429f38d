from __future__ import annotations

import socket
from pathlib import Path

import pytest

from perfgate.errors import RepositoryError
from perfgate.git import run_git


def test_run_git__a_server_that_never_answers__ended_and_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/perfgate"
        with pytest.raises(RepositoryError, match=r"^git gave no answer in 1 s$"):
            run_git(tmp_path, ["ls-remote", address], {}, limit_seconds=0.6)
