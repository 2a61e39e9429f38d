from __future__ import annotations

import socket
from pathlib import Path

import pytest

from perfgate.errors import RepositoryError
from perfgate.git import commands as git
from perfgate.git.commands import run_git
from perfgate.git.repository import Repository
from tests.unit.git.test_repository import commit
from tests.unit.git.test_repository import git as git_in


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


def test_run_git__settings_of_a_user_for_reading__do_not_change_what_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in ("a.txt", "below/b.txt"):
        (tmp_path / name).write_text("one")
    git_in(tmp_path, "init", "-q", "-b", "main")
    for setting in ("color.ui=always", "color.grep=always", "grep.lineNumber=true", "grep.column=true"):
        git_in(tmp_path, "config", *setting.split("="))
    for setting in ("log.showSignature=true", "diff.relative=true"):
        git_in(tmp_path, "config", *setting.split("="))
    commit(tmp_path, "first")
    (tmp_path / "a.txt").write_text("two")
    last = commit(tmp_path, "second")
    assert run_git(tmp_path, ["grep", "-h", "--fixed-strings", "wo", last]).output == "two"
    assert run_git(tmp_path, ["grep", "--name-only", "-z", "one", last]).output == f"{last}:below/b.txt\0"
    assert run_git(tmp_path / "below", [*git.NAMES_OF_CHANGED, f"{last}~1", last]).output == "a.txt\0"


def test_source__signed_commit_and_a_user_who_is_shown_signatures__its_own_subject(tmp_path: Path) -> None:
    git_in(tmp_path, "init", "-q", "-b", "main")
    checker = tmp_path / "gpg"
    checker.write_text("#!/bin/sh\necho 'Signature made today' >&2\n")
    checker.chmod(0o755)
    git_in(tmp_path, "config", "gpg.program", str(checker))
    git_in(tmp_path, "config", "log.showSignature", "true")
    head, _, message = git_in(tmp_path, "cat-file", "commit", commit(tmp_path, "first")).partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iHUE\n -----END PGP SIGNATURE-----"
    (tmp_path / "signed").write_text(f"{head}\n{signature}\n\n{message}\n")
    signed = git_in(tmp_path, "hash-object", "-t", "commit", "-w", "signed")
    source = Repository(tmp_path).source(signed)
    assert (source.author, source.subject) == ("someone", "first")
