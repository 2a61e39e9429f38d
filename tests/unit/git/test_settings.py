"""What git is told through its environment, as git itself reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.git.commands import run_git
from perfgate.git.settings import alone_in, as_environment, authorization, password_of


def test_as_environment__one_name_twice__git_reads_both_in_order(tmp_path: Path) -> None:
    environ = as_environment([("a.b", ""), ("a.b", "one = two"), ("http.https://forge.example.extraHeader", "X: y")])
    assert run_git(tmp_path, ["config", "--get-all", "a.b"], environ).output == "\none = two"
    found = run_git(tmp_path, ["config", "--get-urlmatch", "http.extraHeader", "https://forge.example/a"], environ)
    assert found.output == "X: y"


def test_as_environment__behind_settings_that_are_there__those_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.theirs", "GIT_CONFIG_VALUE_0": "1"}.items():
        monkeypatch.setenv(name, value)
    environ = as_environment([("a.ours", "2")], first=1)
    assert run_git(tmp_path, ["config", "--get-regexp", r"^a\."], environ).output == "a.theirs 1\na.ours 2"


def test_alone_in__settings_of_the_user_and_of_a_caller__do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, empty = tmp_path / "home", tmp_path / "empty"
    home.mkdir()
    empty.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = theirs\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert run_git(tmp_path, ["config", "--get", "user.name"], {}).output == "theirs"
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'user.name'='of git -c'")
    assert run_git(tmp_path, ["config", "--get", "user.name"], {}).output == "of git -c"
    assert run_git(tmp_path, ["config", "--get", "user.name"], alone_in(empty)).code == 1


def test_authorization__user_and_token__the_header_of_rfc_7617() -> None:
    assert password_of("Aladdin", "open sesame") == "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert authorization("QWxhZGRpbjpvcGVuIHNlc2FtZQ==") == "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
