"""A real ``git push`` with the real pre-commit: a regression stays here, what is as fast goes, and prose is not measured."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Clone, Perfgate, clone, made_clone, perfgate  # noqa: F401 - fixtures
from tests.end_to_end.pushing import PREPARED, REWORDED, Pushing

OURS = Path(__file__).parents[2]


@pytest.fixture
def pushing(clone: Clone, perfgate: Perfgate, tmp_path: Path) -> Pushing:  # noqa: F811
    return Pushing(clone, perfgate, tmp_path / "remote.git")


@pytest.fixture
def pre_commit(pushing: Pushing, perfgate: Perfgate, tmp_path: Path) -> Pushing:  # noqa: F811
    """Switch our hook on as docs/hook.md says, from a repository that holds our manifest."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(OURS / ".pre-commit-hooks.yaml", hooks)
    for arguments in (["init", "-q", "-b", "main"], ["add", "--all"], ["commit", "-qm", "the manifest"], ["tag", "v1"]):
        subprocess.run(["git", *arguments], cwd=hooks, env={**perfgate.environment, **_AUTHOR}, check=True)
    (pushing.clone.root / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {hooks}\n  rev: v1\n  hooks:\n  - id: perfgate-local\n"
    )
    pushing.clone.commit("the hook")
    # pre-commit runs what stands first on the PATH: the environment with torch.
    binaries = Path(sys.executable).parent
    perfgate.environment["PATH"] = f"{binaries}:{perfgate.environment['PATH']}"
    perfgate.environment["PRE_COMMIT_HOME"] = str(tmp_path / "pre-commit")
    command = [str(binaries / "pre-commit"), "install", "--hook-type", "pre-push"]
    subprocess.run(command, cwd=pushing.clone.root, env=perfgate.environment, check=True, capture_output=True)
    return pushing


_AUTHOR = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def _told(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("perfgate: ")]


def test_pre_commit__regression_then_good_then_prose__blocked_one_line_skipped(pre_commit: Pushing) -> None:
    pre_commit.clone.commit("slow", model=PREPARED)
    slow = pre_commit.push()
    assert slow.returncode == 1, slow.stderr
    assert "Failed" in slow.stdout + slow.stderr
    assert "FAIL" in slow.stdout + slow.stderr
    assert pre_commit.there() == {"main"}

    pre_commit.clone.commit("as fast as before", model=(PREPARED[1], PREPARED[0]))
    pre_commit.clone.commit("reworded", model=REWORDED)
    good = pre_commit.push()
    assert good.returncode == 0, good.stdout + good.stderr
    (line,) = _told(good)
    assert line.startswith(("perfgate: PASS", "perfgate: INCONCLUSIVE")), line  # the machine may not be quiet
    assert pre_commit.there() == {"main", "feature"}

    pre_commit.clone.git("checkout", "-qb", "prose", "main")
    (pre_commit.clone.root / "README.md").write_text("words")
    pre_commit.clone.git("checkout", "feature", "--", ".pre-commit-config.yaml")
    pre_commit.clone.git("rm", "-q", "--cached", ".pre-commit-config.yaml")
    pre_commit.clone.git("add", "README.md")
    pre_commit.clone.git("commit", "-qm", "words")
    prose = pre_commit.push("prose")
    assert prose.returncode == 0, prose.stdout + prose.stderr
    assert _told(prose) == ["perfgate: SKIPPED – only documentation changed (1 file)"]
    assert pre_commit.there() == {"main", "feature", "prose"}


def test_hook__regression_is_pushed__stopped_though_the_work_tree_is_clean_of_it(pushing: Pushing) -> None:
    pushing.hook()
    pushing.clone.commit("slow", model=PREPARED)
    slow = pushing.clone.git("rev-parse", "HEAD")
    # What is pushed counts, not what stands in the work tree now, not even a broken one.
    (pushing.clone.root / "model.py").write_text("raise SystemExit\n")
    done = pushing.push()
    assert done.returncode == 1, done.stderr
    assert "FAIL" in done.stdout
    assert "aten::contiguous" in done.stdout or "aten::clone" in done.stdout
    assert pushing.there() == {"main"}
    decision = json.loads((pushing.clone.root / ".perfgate/local/decision.json").read_text())
    assert (decision["sides"]["head"]["commit"], decision["sides"]["base"]["branch"]) == (slow, "origin/main")
    assert not decision["sides"]["head"]["dirty"]


def test_hook__head_does_not_run__stopped(pushing: Pushing) -> None:
    pushing.hook()
    pushing.clone.commit("broken", model=("def build():", "def build():\n    raise RuntimeError('no weights')"))
    done = pushing.push()
    assert done.returncode == 1
    assert "no weights" in done.stderr
    assert pushing.there() == {"main"}
