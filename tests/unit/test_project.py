"""A project is found from any folder inside it, and at the root of several the change says which one is meant."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perfgate.config import load_config
from perfgate.document.decision import DecisionDocument
from perfgate.errors import ConfigError, UsageError
from perfgate.flows.check.change import choose_change, project_of_change, skipped_decision
from perfgate.flows.shared.options import CheckOptions
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.project import find_project, projects_below

WORK_TREE = CheckOptions(out=Path("out"), work_tree=True, base="main")


def _git(root: Path, *arguments: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *author, *arguments], cwd=root, check=True, capture_output=True)


def _write(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text((root / file).read_text() + "x = 1\n" if (root / file).exists() else "")


@pytest.fixture
def monorepo(tmp_path: Path) -> Path:
    """Two projects, one of which lies inside a folder, in a repository with one commit on main."""
    root = tmp_path / "monorepo"
    _write(root, "a/perfgate.toml", "a/model.py", "libs/b/perfgate.toml", "libs/b/model.py", "shared.py")
    _git(root, "init", "-q", "-b", "main")
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", "one")
    return root


def test_find_project__from_a_folder_inside__the_nearest_within_the_repository(tmp_path: Path) -> None:
    root = tmp_path / "clone"
    _write(root, "perfgate.toml", "perf/deep/x.py", "sub/perfgate.toml", "sub/src/x.py")
    (root / ".git").mkdir()
    assert find_project(root / "perf" / "deep").resolve() == root
    assert find_project(root / "sub" / "src").resolve() == root / "sub"
    assert find_project(root) == root
    (root / "perf" / ".git").mkdir()  # another repository
    assert find_project(root / "perf" / "deep") == root / "perf" / "deep"


def test_find_project__from_the_current_folder__the_way_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, "perfgate.toml", "perf/deep/x.py")
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path / "perf" / "deep")
    assert find_project(Path()) == Path("../..")


def test_find_project__outside_a_repository__looks_no_further_up(tmp_path: Path) -> None:
    _write(tmp_path, "perfgate.toml", "perf/x.py")
    assert find_project(tmp_path / "perf") == tmp_path / "perf"


def test_load_config__root_of_several_projects__lists_them(monorepo: Path) -> None:
    assert projects_below(monorepo) == ["a", "libs/b"]
    with pytest.raises(ConfigError, match=r"but there is one in a/, libs/b/; name it with -C a or -C libs/b$"):
        load_config(monorepo)


def test_projects_below__folders_that_may_not_be_entered__none_in_them() -> None:
    assert projects_below(Path("/proc/1")) == []


def test_project_of_change__touches_one_project__that_one(monorepo: Path) -> None:
    _write(monorepo, "a/model.py")
    assert project_of_change(monorepo, WORK_TREE) == monorepo / "a"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((), "the change touches none of them: name one with -C a or -C libs/b"),
        (("shared.py",), "the change touches none of them: name one with -C a or -C libs/b"),
        (("a/model.py", "shared.py"), "the change touches a/ and other files: name one with -C a"),
        (("a/model.py", "libs/b/model.py"), "the change touches a/, libs/b/: name one with -C a or -C libs/b"),
    ],
)
def test_project_of_change__not_one_project__asks(monorepo: Path, files: tuple[str, ...], why: str) -> None:
    _write(monorepo, *files)
    with pytest.raises(ConfigError) as caught:
        project_of_change(monorepo, WORK_TREE)
    assert str(caught.value).endswith(f"but a/, libs/b/ have one each; {why}")


@pytest.fixture
def skips(monorepo: Path, tmp_path: Path) -> Callable[[], DecisionDocument | None]:
    """Judge the work tree of libs/b: a decision where nothing need be measured, None where the measuring would begin."""
    for project in ("a", "libs/b"):
        (monorepo / project / "perfgate.toml").write_text('workload = "perf.py:net"\n')
        (monorepo / project / "perf.py").write_text("import model\n")
    _git(monorepo, "add", "-A")
    _git(monorepo, "commit", "-q", "-m", "two")

    def judge() -> DecisionDocument | None:
        options = replace(WORK_TREE, out=tmp_path / "out")
        return skipped_decision(choose_change(monorepo / "libs/b", options))

    return judge


def test_local__only_another_project_changed__skipped_and_says_which(
    monorepo: Path, skips: Callable[[], DecisionDocument | None]
) -> None:
    _write(monorepo, "a/model.py")
    decision = skips()
    assert decision is not None
    assert (decision.verdict, exit_code(decision)) == ("SKIPPED", 0)
    assert "the change only touches `a/`, which this project does not use" in render_comment(
        decision, CommentContext(marker="<!-- m -->")
    )


@pytest.mark.parametrize(
    "line", ["from a.model import Net", "sys.path.append('../../a')", "import a", "open('/x/a/w')"]
)
def test_local__another_project_that_this_one_names__is_measured(
    monorepo: Path, skips: Callable[[], DecisionDocument | None], line: str
) -> None:
    (monorepo / "libs/b/perf.py").write_text(f"{line}\n")
    _git(monorepo, "commit", "-q", "-a", "-m", "uses a")
    _write(monorepo, "a/model.py")
    assert skips() is None


@pytest.mark.parametrize(
    "files", [("a/model.py", "shared.py"), ("a/model.py", "libs/b/model.py"), ("c/perfgate.toml",)]
)
def test_local__files_beside_other_projects_changed__is_measured(
    monorepo: Path, skips: Callable[[], DecisionDocument | None], files: tuple[str, ...]
) -> None:
    _write(monorepo, *files)
    assert skips() is None


def test_find_project__current_folder_was_removed__said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="the current folder was removed"):
        find_project(Path())


def test_with_lines__code_beside_the_project__named_if_the_project_imports_from_there(
    monorepo: Path, tmp_path: Path
) -> None:
    (monorepo / "libs/b/perfgate.toml").write_text(
        'workload = "perf.py:net"\n[measure]\npython_path = [".", "../common"]\n'
    )
    _write(monorepo, "libs/common/sums.py")
    _git(monorepo, "add", "-A")
    _git(monorepo, "commit", "-q", "-m", "two")
    shutil.copytree(monorepo, tmp_path / "base")
    _write(monorepo, "a/model.py", "libs/b/model.py", "libs/common/sums.py")

    change = choose_change(monorepo / "libs/b", WORK_TREE)
    changes = change.with_lines(tmp_path / "base/libs/b", monorepo / "libs/b").sides.head_source.changes

    assert [place.file for place in changes] == ["model.py", "../common/sums.py"]
