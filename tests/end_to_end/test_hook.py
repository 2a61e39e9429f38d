"""``git push`` with perfgate as the repository's own hook: a regression stays here, and prose costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Clone, Perfgate
from tests.end_to_end.pushing import REWORDED, Pushing


@pytest.fixture
def pushing(clone: Clone, perfgate: Perfgate, tmp_path: Path) -> Pushing:
    return Pushing(clone, perfgate, tmp_path / "remote.git")


def test_hook__only_a_comment_changed__skipped_with_the_rule_on_one_line_and_pushed(
    pushing: Pushing, tmp_path: Path
) -> None:
    pushing.hook()
    model = pushing.clone.root / "model.py"
    model.write_text(model.read_text() + "# words\n")
    pushing.clone.commit("words")
    done = pushing.push()
    assert not (tmp_path / "lock").exists()  # the machine was not even asked for
    assert done.returncode == 0, done.stderr
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "perfgate" in line]
    assert lines == ["perfgate: SKIPPED – only comments or formatting changed (1 file)"]
    assert pushing.there() == {"main", "feature"}


def test_hook__nothing_new__said_and_pushed(pushing: Pushing) -> None:
    pushing.hook()
    first = pushing.push("main:copy")
    commit = pushing.clone.git("rev-parse", "main")
    assert f"perfgate: nothing to judge, {commit[:12]} is in origin/main already" in first.stdout + first.stderr
    assert pushing.push("--delete", "copy").returncode == 0
    assert pushing.there() == {"main"}


@pytest.mark.slow
def test_hook__no_time_for_a_pair__undecided_and_pushed(pushing: Pushing) -> None:
    pushing.hook("--time-budget", "1")
    pushing.clone.commit("reworded", model=REWORDED)
    done = pushing.push()
    assert done.returncode == 0, done.stderr
    assert "perfgate: INCONCLUSIVE" in done.stdout
    assert "(undecided, so the push proceeds; --strict would block it)" in done.stdout


def test_hook__machine_is_busy__undecided_in_time(pushing: Pushing, tmp_path: Path) -> None:
    pushing.hook("--time-budget", "1")
    pushing.clone.commit("reworded", model=REWORDED)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        done = pushing.push()
        holder.communicate("\n")
    assert done.returncode == 0, done.stderr
    assert "perfgate: INCONCLUSIVE: the machine was busy for 1 s: another perfgate holds it" in done.stdout


def test_local__strict_without_hook__usage(perfgate: Perfgate, clone: Clone) -> None:
    done = perfgate("local", "--strict", cwd=clone.root)
    assert done.returncode == 2
    assert "belong to --hook" in done.stderr
