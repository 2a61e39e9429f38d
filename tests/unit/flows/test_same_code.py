"""Whether two commits of a clone have files with the same code."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.flows.trust import commits
from perfgate.flows.trust.commits import same_code_between
from tests.fakes.remote import git


@pytest.mark.parametrize(
    ("files", "same"),
    [
        (["a.py"], True),
        (["a.py", "d.py"], True),
        (["b.py"], False),
        (["a.py", "b.py"], False),
        (["c.txt"], False),
        (["old.py"], False),
        (["new.py"], False),
        (["link.py"], False),
    ],
)
def test_same_code_between__comments_code_data_and_links__comments_alone_are_none(
    tmp_path: Path, files: list[str], same: bool
) -> None:
    before = {"a.py": "x = 1\n", "b.py": "x = 1\n", "c.txt": "1\n", "d.py": "x = 1\n", "old.py": "x = 1\n"}
    base = _commit(tmp_path, before, link="a.py")
    (tmp_path / "old.py").unlink()
    after = {"a.py": "x = 1  # one\n", "b.py": "x = 2\n", "c.txt": "1 \n", "d.py": "x = (1)\n", "new.py": "x = 1\n"}
    head = _commit(tmp_path, after, link="(a.py)")
    assert same_code_between(tmp_path, base, head, files) is same


def test_same_code_between__file_made_executable__differs(tmp_path: Path) -> None:
    base = _commit(tmp_path, {"a.py": "x = 1\n"})
    (tmp_path / "a.py").chmod(0o755)
    head = _commit(tmp_path, {"a.py": "x = 1  # one\n"})
    assert not same_code_between(tmp_path, base, head, ["a.py"])


def test_same_code_between__commit_that_is_not_there__nothing_is_known(tmp_path: Path) -> None:
    base = _commit(tmp_path, {"a.py": "x = 1\n"})
    assert not same_code_between(tmp_path, base, "d" * 40, ["a.py"])


def test_same_code_between__more_files_than_are_compared__not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = _commit(tmp_path, {"a.py": "x = 1\n", "b.py": "x = 1\n"})
    head = _commit(tmp_path, {"a.py": "x = 1  # one\n", "b.py": "x = 1  # one\n"})
    assert same_code_between(tmp_path, base, head, ["a.py", "b.py"])
    monkeypatch.setattr(commits, "MOST_FILES", 1)
    assert not same_code_between(tmp_path, base, head, ["a.py", "b.py"])


def _commit(clone: Path, files: dict[str, str], *, link: str = "") -> str:
    if not (clone / ".git").exists():
        git(clone, "init", "-q", "-b", "main")
    for name, text in files.items():
        (clone / name).write_text(text)
    if link:
        (clone / "link.py").unlink(missing_ok=True)
        (clone / "link.py").symlink_to(link)
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "one")
    return git(clone, "rev-parse", "HEAD")
