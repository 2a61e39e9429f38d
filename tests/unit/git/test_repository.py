"""Real git repositories in every state a CI job or a desk can present."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.document.message import Message
from perfgate.errors import HostileRepositoryError, RepositoryError
from perfgate.git.repository import WORKTREE_FOLDER, Repository
from perfgate.git.settings import untie


def git(folder: Path, *arguments: str, **environment: str) -> str:
    who = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    # The settings of whoever runs the tests must not matter.
    clean = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **who, **clean, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def commit(folder: Path, message: str, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--allow-empty", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """main with two commits, the branch ``feature`` from the first one checked out, one commit ahead."""
    root = tmp_path / "clone"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    commit(root, "one", model="1")
    git(root, "branch", "feature")
    commit(root, "two", model="2")
    git(root, "checkout", "-q", "feature")
    commit(root, "three", other="3")
    return root


def _refused(clone: Path, revision: str) -> str:
    repository = Repository(clone)
    with pytest.raises(RepositoryError) as refusal:
        repository.choose_base(revision, repository.head())
    return str(refusal.value)


def test_repository__no_git__says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="is not in a git repository; run `git init` and commit"):
        Repository(tmp_path)


def test_repository__bare__needs_a_work_tree(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare")
    with pytest.raises(RepositoryError, match="bare repository; perfgate needs a work tree"):
        Repository(tmp_path)


def test_repository__git_not_installed__says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RepositoryError, match="git is not installed or not on PATH"):
        Repository(tmp_path)


def test_head__no_commit__says_commit_first(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(RepositoryError, match="no commit yet; commit something first"):
        Repository(tmp_path).head()


def test_main_branch__none__names_the_remedies(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "develop")
    commit(tmp_path, "one")
    with pytest.raises(RepositoryError, match=r"no branch main, master or trunk .* --base, .*main_branch"):
        Repository(tmp_path).main_branch()
    assert Repository(tmp_path).main_branch("develop") == "develop"


def test_main_branch__trunk__found_while_a_topic_is_checked_out(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk")
    commit(tmp_path, "one")
    git(tmp_path, "checkout", "-q", "-b", "topic")
    assert Repository(tmp_path).main_branch() == "trunk"


def test_main_branch__clone__the_remotes_default(clone: Path, tmp_path: Path) -> None:
    git(clone, "branch", "-m", "main", "stable")
    git(clone, "checkout", "-q", "stable")
    git(tmp_path, "clone", "-q", str(clone), "second")
    assert Repository(tmp_path / "second").main_branch() == "origin/stable"


@pytest.fixture
def single(clone: Path, tmp_path: Path) -> Path:
    """A shallow clone of the branch ``work`` alone, whose origin has checked out just that."""
    git(clone, "checkout", "-q", "-b", "work", "main~1")
    commit(clone, "of the feature")
    git(tmp_path, "clone", "-q", "--depth", "1", "-b", "work", f"file://{clone}", "single")
    assert git(tmp_path / "single", "rev-parse", "--abbrev-ref", "origin/HEAD") == "origin/work"
    return tmp_path / "single"


def test_main_branch__clone_of_a_single_branch__main_is_fetched_with_the_history_to_compare(
    single: Path, clone: Path
) -> None:
    repository = Repository(single)
    with pytest.raises(RepositoryError, match=r"name one with --base.*this clone has a single branch: `git fetch"):
        repository.main_branch()
    assert repository.main_of("origin", configured="") is None
    assert repository.main_branch(fetch=True) == "origin/main"
    assert repository.choose_base("origin/main", repository.head()).commit == git(clone, "rev-parse", "main~1")
    # It is there now, and a second question fetches nothing.
    git(single, "remote", "set-url", "origin", "/nowhere")
    assert repository.main_branch(fetch=True) == "origin/main"


def test_main_branch__clone_of_a_single_branch_with_another_main__as_configured(single: Path, clone: Path) -> None:
    git(clone, "branch", "-m", "main", "stable")
    assert Repository(single).main_branch("stable", fetch=True) == "origin/stable"


def test_main_branch__clone_of_a_single_branch_and_no_remote__asks(single: Path) -> None:
    git(single, "remote", "set-url", "origin", "/nowhere")
    with pytest.raises(RepositoryError, match="name one with --base"):
        Repository(single).main_branch(fetch=True)


def test_main_branch__origin_has_the_feature_checked_out__main_all_the_same(clone: Path, tmp_path: Path) -> None:
    git(clone, "checkout", "-q", "-b", "work", "main~1")
    git(tmp_path, "clone", "-q", str(clone), "whole")
    assert Repository(tmp_path / "whole").main_branch() == "origin/main"


def test_main_branch__commits_on_main_that_are_not_pushed__the_remotes(clone: Path, tmp_path: Path) -> None:
    git(clone, "checkout", "-q", "main")
    git(tmp_path, "clone", "-q", str(clone), "ahead")
    pushed = git(tmp_path / "ahead", "rev-parse", "HEAD")
    commit(tmp_path / "ahead", "not pushed")
    repository = Repository(tmp_path / "ahead")
    assert repository.main_branch() == "origin/main"
    assert repository.choose_base(repository.main_branch(), repository.head()).commit == pushed


def test_choose_base__branches_apart__merge_base(clone: Path) -> None:
    repository = Repository(clone)
    base = repository.choose_base("main", repository.head())
    assert base.commit == git(clone, "rev-parse", "main~1")
    assert base.because == Message("gate.base-merge-base", {"revision": "main"})


@pytest.mark.parametrize(
    ("revision", "code"),
    [
        ("HEAD", "gate.base-as-given-same"),
        ("HEAD~1", "gate.base-ancestor"),
        ("ahead", "gate.base-as-given-ahead"),
    ],
)
def test_choose_base__on_one_line_with_head__taken_as_given(clone: Path, revision: str, code: str) -> None:
    git(clone, "checkout", "-q", "-b", "ahead")
    commit(clone, "four")
    git(clone, "checkout", "-q", "feature")
    repository = Repository(clone)
    base = repository.choose_base(revision, repository.head())
    assert (base.commit, base.because) == (git(clone, "rev-parse", revision), Message(code, {"revision": revision}))


@pytest.mark.parametrize("revision", ["nonsense", "-x", "--upload-pack=touch x", "main:model.py"])
def test_choose_base__unknown__says_so(clone: Path, revision: str) -> None:
    assert f"git knows no commit {revision!r}" in _refused(clone, revision)


def test_choose_base__unrelated_histories__says_what_to_give(clone: Path) -> None:
    git(clone, "checkout", "-q", "--orphan", "island")
    commit(clone, "alone")
    assert "they share no history; give --base a commit that head descends from" in _refused(clone, "main")


def test_choose_base__shallow_clone_without_the_merge_base__says_how_to_fetch(clone: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "feature", f"file://{clone}", "shallow")
    shallow = tmp_path / "shallow"
    git(shallow, "fetch", "-q", "--depth", "1", "origin", "main:refs/remotes/origin/main")
    message = _refused(shallow, "origin/main")
    assert "no merge base of origin/main and head" in message
    assert "fetch-depth: 0" in message
    assert "GIT_DEPTH" in message
    assert "shallow clone: fetch more history" in _refused(shallow, "v1.0")


def test_dirty_files__changed_staged_and_odd_names__all_named(clone: Path) -> None:
    (clone / "model.py").write_text("changed")
    (clone / "naïve name.py").write_text("new")
    git(clone, "add", "naïve name.py")
    assert Repository(clone).dirty_files() == ["model.py", "naïve name.py"]


def test_dirty_files__touched_but_equal__none_and_the_index_is_not_rewritten(clone: Path) -> None:
    os.utime(clone / "model.py", (1, 1))
    index = (clone / ".git" / "index").read_bytes()
    assert Repository(clone).dirty_files() == []
    assert (clone / ".git" / "index").read_bytes() == index


def test_changed_files__below_a_folder__those_that_both_commits_have(clone: Path) -> None:
    (clone / "perf").mkdir()
    (clone / "perf" / "data.txt").write_text("1")
    base = commit(clone, "base", **{"perf/made": "1", "perf/same": "1", "other": "1"})
    (clone / "perf" / "data.txt").write_text("2")
    head = commit(clone, "head", **{"perf/made": "2", "perf/new": "1", "other": "2"})
    repository = Repository(clone)
    assert repository.changed_files(base, head, prefix="perf") == ["made.py"]
    assert repository.changed_files(base, head) == ["other.py", "perf/made.py"]


def test_snapshot__clean__head_itself(clone: Path) -> None:
    assert Repository(clone).snapshot() == (git(clone, "rev-parse", "HEAD"), False)


def test_snapshot__changes_untracked_and_ignored__all_but_the_ignored_and_nothing_is_touched(clone: Path) -> None:
    (clone / "model.py").write_text("changed")
    (clone / "new.py").write_text("new")
    (clone / "weights.bin").write_text("ignored")
    (clone / ".git" / "info" / "exclude").write_text("*.bin\n")
    (clone / "other.py").unlink()
    before = ((clone / ".git" / "index").read_bytes(), git(clone, "status", "--porcelain"), git(clone, "branch", "-av"))
    snapshot, dirty = Repository(clone).snapshot()
    assert dirty
    assert git(clone, "ls-tree", "-r", "--name-only", snapshot).splitlines() == ["model.py", "new.py"]
    assert git(clone, "show", f"{snapshot}:model.py") == "changed"
    assert git(clone, "rev-parse", f"{snapshot}^") == git(clone, "rev-parse", "HEAD")
    after = ((clone / ".git" / "index").read_bytes(), git(clone, "status", "--porcelain"), git(clone, "branch", "-av"))
    assert after == before


def test_snapshot__sparse_checkout__what_is_left_out_is_not_deleted(clone: Path) -> None:
    # As `git sparse-checkout set --no-cone` does since git 2.35; older ones know no such option.
    git(clone, "config", "core.sparseCheckout", "true")
    (clone / ".git" / "info" / "sparse-checkout").write_text("other.py\n")
    git(clone, "read-tree", "-mu", "HEAD")
    assert not (clone / "model.py").exists()
    assert Repository(clone).snapshot() == (git(clone, "rev-parse", "HEAD"), False)


def test_snapshot__edit_of_equal_size_in_the_second_of_the_index__held(clone: Path) -> None:
    # A file's ctime cannot be set; within one second git compares it no further either.
    git(clone, "config", "core.trustctime", "false")
    edited, second = clone / "model.py", (1.7e9, 1.7e9)
    os.utime(edited, second)
    git(clone, "add", "--all")
    edited.write_text("2")
    for path in (edited, clone / ".git" / "index"):
        os.utime(path, second)
    snapshot, dirty = Repository(clone).snapshot()
    assert dirty
    assert git(clone, "show", f"{snapshot}:model.py") == "2"


def test_snapshot__folder_of_an_earlier_result__not_a_change(clone: Path) -> None:
    from perfgate.flows.shared.session import prepare_out

    out = prepare_out(clone / ".perfgate" / "local")
    (out / "report.html").write_text("a report")
    assert Repository(clone).snapshot()[1] is False


def test_prefix__project_in_a_subfolder__its_path(clone: Path) -> None:
    (clone / "models" / "encoder").mkdir(parents=True)
    repository = Repository(clone / "models" / "encoder")
    assert repository.root == clone
    assert repository.prefix(clone / "models" / "encoder") == "models/encoder"
    assert repository.prefix(clone) == ""


def test_source__commit__author_subject_time_and_branch(clone: Path) -> None:
    repository = Repository(clone)
    source = repository.source(repository.head())
    (_, author, _) = repository.commits_between("HEAD~1", "HEAD")[0]
    assert source.author == author != ""
    assert (source.subject, source.branch, source.dirty) == ("three", "feature", False)
    assert source.committed_at is not None
    assert source.committed_at[:2] == "20"


def test_show__file_and_no_file__text_and_none(clone: Path) -> None:
    repository = Repository(clone)
    assert repository.show("main", "model.py") == "2"
    assert repository.show("main", "absent.py") is None


def _worktrees(clone: Path) -> list[str]:
    return git(clone, "worktree", "list").splitlines()


def test_worktrees__success__both_checked_out_and_removed(clone: Path) -> None:
    repository = Repository(clone)
    status = git(clone, "status", "--porcelain")
    with repository.worktrees({"base": "main", "head": "feature"}, link=[]) as trees:
        assert (trees["base"] / "model.py").read_text() == "2"
        assert (trees["head"] / "other.py").read_text() == "3"
        assert git(clone, "status", "--porcelain") == status
    assert len(_worktrees(clone)) == 1
    assert list((clone / ".git" / WORKTREE_FOLDER).iterdir()) == []
    assert not (clone / ".git" / "worktrees").exists()


def test_worktrees__error_and_folders_without_write_permission__removed(clone: Path) -> None:
    class ExpectedError(Exception):
        pass

    def fail() -> None:
        with Repository(clone).worktrees({"base": "main"}, link=[]) as trees:
            locked = trees["base"] / "locked"
            locked.mkdir()
            (locked / "file").touch()
            locked.chmod(0o500)
            raise ExpectedError

    with pytest.raises(ExpectedError):
        fail()
    assert len(_worktrees(clone)) == 1
    assert list((clone / ".git" / WORKTREE_FOLDER).iterdir()) == []


def test_worktrees__killed_session__swept_by_the_next_and_a_living_one_is_left_alone(clone: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from perfgate.git.repository import Repository\n"
        f"with Repository(Path({str(clone)!r})).worktrees({{'base': 'main'}}, link=[]):\n"
        "    print('there', flush=True)\n    sys.stdin.readline()\n"
    )
    arguments = [sys.executable, "-c", script]
    processes = [
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    killed, living = processes
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
    assert len(_worktrees(clone)) == 3
    killed.kill()
    killed.communicate()
    with Repository(clone).worktrees({"base": "main"}, link=[]):
        assert len(_worktrees(clone)) == 3  # the clone, the living one, ours
    assert len(_worktrees(clone)) == 2
    living.communicate("go\n")
    assert living.returncode == 0
    assert len(_worktrees(clone)) == 1


def test_worktrees__another_perfgate_adds_one__not_pruned_meanwhile(clone: Path) -> None:
    seen: list[bool] = []
    with Repository(clone).worktrees({"base": "main"}, link=[]):
        guard = os.open(clone / ".git" / WORKTREE_FOLDER, os.O_RDONLY)
        fcntl.flock(guard, fcntl.LOCK_EX)
        begun = clone / ".git" / "worktrees" / "head"
        begun.mkdir()

        def go_on() -> None:
            seen.append(begun.exists())
            os.close(guard)

        other = threading.Timer(0.5, go_on)
        other.start()
    other.join()
    assert seen == [True]


@pytest.fixture
def hooked(clone: Path) -> Iterator[Path]:
    """A clone with hooks that leave a file; the hooks are the change's own code."""
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-commit"):
        path = clone / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {hook} >> {clone.parent / 'hooked'}\n")
        path.chmod(0o755)
    yield clone
    assert not (clone.parent / "hooked").exists()


def test_worktrees_and_snapshot__hooks_in_the_repository__do_not_run(hooked: Path) -> None:
    (hooked / "new.py").write_text("new")
    repository = Repository(hooked)
    snapshot, _ = repository.snapshot()
    with repository.worktrees({"base": "main", "head": snapshot}, link=[]) as trees:
        assert (trees["head"] / "new.py").exists()


def test_worktrees__called_from_a_git_hook__the_callers_repository_and_index_stay(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git sets these for its hooks; obeyed, they would send our commands to another repository and index."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    index = (clone / ".git" / "index").read_bytes()
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(clone / ".git" / "index"))
    untie(os.environ)
    repository = Repository(clone)
    assert repository.root == clone
    with repository.worktrees({"base": "main"}, link=[]) as trees:
        assert (trees["base"] / "model.py").read_text() == "2"
    assert (clone / ".git" / "index").read_bytes() == index


def test_worktrees__links_of_each_side__each_has_its_own_and_no_file_of_a_commit(clone: Path) -> None:
    for name in ("weights", "data"):
        (clone / name).mkdir()
        (clone / name / "file").write_text("1")
    commits = {"base": "main", "head": "feature"}
    tracked = Repository(clone).files("feature")[0]
    links = {"base": ["weights", tracked], "head": ["data", tracked]}
    with Repository(clone).worktrees(commits, link=links) as trees:
        found = {side: {name for name in ("weights", "data") if (tree / name).exists()} for side, tree in trees.items()}
        assert found == {"base": {"weights"}, "head": {"data"}}
        assert not any((tree / tracked).is_symlink() for tree in trees.values())


def test_worktrees__linked_weights__shared_and_still_there_afterwards(clone: Path) -> None:
    (clone / "weights").mkdir()
    (clone / "weights" / "w.bin").write_text("large")
    with Repository(clone).worktrees({"base": "main"}, link=["weights", "absent"]) as trees:
        assert (trees["base"] / "weights" / "w.bin").read_text() == "large"
        assert not (trees["base"] / "absent").exists()
    assert (clone / "weights" / "w.bin").read_text() == "large"


def test_repository__submodule_that_names_a_command__run_by_nobody_and_said_to_be_the_commits_own(clone: Path) -> None:
    (clone / ".gitmodules").write_text('[submodule "k"]\n\tpath = k\n\turl = ../k\n\tupdate = !touch pwned\n')
    git(clone, "add", "--all")
    git(clone, "update-index", "--add", "--cacheinfo", f"160000,{git(clone, 'rev-parse', 'HEAD')},k")
    git(clone, "commit", "-qm", "hostile")
    with pytest.raises(
        HostileRepositoryError, match=r"its \.gitmodules names a command to run .*take `update` out"
    ) as refusal:
        Repository(clone).dirty_files()
    assert refusal.value.exit_code == 4
    assert not (clone / "pwned").exists()
